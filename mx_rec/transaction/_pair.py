"""Both halves of a checkpoint under hidden names, and how they take their place.

D/.sparse-model-7.tmp-<owner>/            the tables, and the manifest
D/.dense-model-7.tmp-<owner>/model-7.*    the dense part

The pair is complete from the instant in which its manifest appears, for that is written last: with the checksum of the
dense part's index, and with those of what lay under the checkpoint's name before. Then D/model-7 means the pair: a
restore reads both halves from it. It stays complete while the dense files get their names in D, one after the other,
until the tables are renamed. So at any instant both halves of one save can be found, though D holds files of two.
"""

import contextlib
import dataclasses
import filecmp
import os
import re
from typing import Optional

from mx_rec.checkpoint import _chain, _files, _layout, _manifest


@dataclasses.dataclass(frozen=True)
class Pair:
    """The pair of one checkpoint and owner. What is said of a pair is read from the disk, each time."""

    prefix: str
    owner: str

    @property
    def sparse(self) -> str:
        """The directory of the tables."""
        return _layout.hidden(self.prefix, "sparse", "tmp", self.owner)

    @property
    def dense(self) -> str:
        """The directory of the dense part."""
        return _layout.hidden(self.prefix, "dense", "tmp", self.owner)

    @property
    def dense_prefix(self) -> str:
        """The dense part, as TensorFlow calls it."""
        return os.path.join(self.dense, os.path.basename(self.prefix))

    def make(self) -> None:
        """Makes both directories, which must not exist."""
        for directory in (self.sparse, self.dense):
            os.mkdir(directory, 0o750)

    def complete(self, manifest: _manifest.Manifest) -> None:
        """Syncs all files and then writes `manifest`, which makes the pair complete."""
        for name in self._dense_names():
            _files.sync(os.path.join(self.dense, name))
        _files.sync(self.dense)
        _files.sync(os.path.dirname(self.sparse))
        _manifest.write(manifest, self.sparse)

    def read(self) -> Optional[_manifest.Manifest]:
        """Its manifest; None unless the pair is complete."""
        try:
            manifest = _manifest.read(self.sparse)
        except (OSError, ValueError):
            return None
        if manifest is None or not os.path.isdir(self.dense):
            return None
        if manifest.dense_index_crc32c != _layout.dense_crc32c(self.dense_prefix):
            return None
        return manifest if manifest.share is None or self._is_decided(manifest.share) else None

    def _is_decided(self, share):
        """Whether the save is complete on all ranks: the first one completes its share when the others have. Until then
        theirs are none."""
        return share.rank == 0 or any(self._directories(share, 0))

    def _directories(self, share, rank):
        """Yields the directories of the tables that a rank has saved in the same save."""
        prefix = _chain.prefix_of_share(self.sparse, share, rank)
        hidden = [one.path for one in _layout.list_hidden(os.path.dirname(prefix)) if one.prefix == prefix]
        # The visible one last: what is hidden now may get its name meanwhile.
        for directory in (*hidden, None):
            directory = directory or _layout.of(prefix)
            with contextlib.suppress(OSError, ValueError):
                manifest = _manifest.read(directory)
                if manifest is not None and manifest.share is not None and manifest.share.save == share.save:
                    yield directory

    def prefixes(self) -> list[str]:
        """Those of the checkpoints of all ranks that were saved with it. The pair must be complete."""
        return _chain.prefixes_of_save(self.sparse)

    def has_predecessor(self) -> bool:
        """Tells whether D holds files of the checkpoint that are not of this pair, or holds its whole dense part: a
        process may have died before it gave the tables their name, but a part of a dense part was never a checkpoint.
        Of a rank's share: whether that holds for any rank's, so that all of them stay or none. The pair must be
        complete."""
        if self._replaces():
            return True
        share = _manifest.read(self.sparse).share
        for rank in range(0 if share is None else len(share.directories)):
            for directory in self._directories(share, rank):
                hidden = _layout.parse(directory)
                if hidden is None or hidden.kind == "old" or Pair(hidden.prefix, hidden.owner)._replaces():
                    return True
        return False

    def _replaces(self):
        names = self._dense_names()
        held = [name for name in names if os.path.lexists(self._visible(name))]
        return (
            os.path.isdir(_layout.of(self.prefix))
            or (len(held) == len(names) > 0)
            or not all(self._is_installed(name) for name in held)
        )

    def install(self) -> None:
        """Gives both halves their final names, and removes what they replace. The pair must be complete. After a
        failure it still is, or it is in its place; calling it again, in any process, goes on."""
        parent = os.path.dirname(self.sparse)
        names = self._dense_names()
        temporary = _layout.hidden(self.prefix, "dense", "new")
        try:
            for name in names:
                _files.put(os.path.join(self.dense, name), self._visible(name), temporary)
        except BaseException:
            _files.remove(temporary)
            raise
        _files.sync(parent)

        before, old = _layout.of(self.prefix), _layout.hidden(self.prefix, "sparse", "old")
        is_delta = _manifest.read(self.sparse).parent is not None
        has_predecessor = os.path.lexists(before)
        if has_predecessor:  # else one may be in `old` already, by which a restore knows that the pair replaces it
            _files.remove(old)
            os.rename(before, old)
        try:
            os.rename(self.sparse, _layout.target(self.prefix, is_delta))
        except BaseException:
            if has_predecessor:
                os.rename(old, before)
            raise
        _files.sync(parent)

        # What follows is tidying: the checkpoint is in its place.
        self._remove_other_shards(names)
        _files.remove(self.dense)
        _files.remove_later(old)

    def withdraw(self) -> None:
        """Removes the pair, and those of its dense files that have got their names in D. There must be no predecessor
        that they have replaced."""
        for name in reversed(self._dense_names()):
            if self._is_installed(name):
                os.unlink(self._visible(name))
        self.remove()

    def remove(self) -> None:
        """Removes the pair, of which nothing is in D. Whatever fails, a part of it is not taken for a complete one."""
        try:
            os.unlink(os.path.join(self.sparse, _manifest.NAME))
            _files.sync(self.sparse)
        except (FileNotFoundError, NotADirectoryError):
            pass
        _files.remove(self.sparse)
        _files.remove(self.dense)

    def _visible(self, name):
        return os.path.join(os.path.dirname(self.sparse), name)

    def _dense_names(self):
        """Returns the files of the dense part in the order in which they are installed: the index last, as TensorFlow
        takes a checkpoint with an index for whole."""
        try:
            entries = [entry.name for entry in os.scandir(self.dense) if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return sorted(entries, key=lambda name: (name.endswith(".index"), name))

    def _is_installed(self, name):
        """Tells whether the file in D is that of the pair, or a copy of it."""
        source, target = os.path.join(self.dense, name), self._visible(name)
        try:
            return _files.is_same(source, target) or filecmp.cmp(source, target, shallow=False)
        except OSError:
            return False

    def _remove_other_shards(self, names):
        """Removes data files that a predecessor left: it may have had another number of them, which the new index does
        not know."""
        pattern = re.compile(re.escape(os.path.basename(self.prefix)) + r"\.data-\d{5}-of-\d{5}")
        for name in os.listdir(os.path.dirname(self.sparse) or "."):
            if pattern.fullmatch(name) and name not in names:
                _files.remove(self._visible(name))
