"""Chains of checkpoints on disk: one that holds all rows, and deltas, each with what has changed since the one before.

D/sparse-model-10          all rows at step 10
D/delta-sparse-model-20    what has changed since: its manifest names its parent, and the checksum of that's manifest
D/delta-sparse-model-30    what has changed since step 20

A checkpoint that max_to_keep removes keeps its tables as long as a delta builds on them.
"""

import dataclasses
import functools
import os
from collections.abc import Collection, Mapping
from typing import Callable, Optional

from mx_rec.checkpoint import _layout, _manifest
from mx_rec.checkpoint._table_files import TableFiles


@dataclasses.dataclass(frozen=True)
class Link:
    """One checkpoint's tables."""

    directory: str
    manifest: Optional[_manifest.Manifest]  # None: written by the original SDK

    @functools.cached_property
    def tables(self) -> Mapping[str, TableFiles]:
        """Its tables by name: of a delta, what has changed."""
        if self.manifest is not None:
            entries = self.manifest.tables
        else:
            names = sorted(os.listdir(self.directory))
            entries = {name: None for name in names if os.path.isdir(os.path.join(self.directory, name, "key"))}
        return {name: TableFiles(name, os.path.join(self.directory, name), entry) for name, entry in entries.items()}

    @property
    def is_delta(self) -> bool:
        return self.manifest is not None and self.manifest.parent is not None


def links(directory: str) -> list[Link]:
    """Returns what the tables in `directory` consist of, in the order in which it is to be loaded. ValueError naming
    the link that is missing, damaged, or not the one that the next was built on."""
    chain = [Link(directory, _manifest.read(directory))]
    while chain[0].is_delta:
        child, parent = chain[0].directory, chain[0].manifest.parent
        path = os.path.join(os.path.dirname(child), parent.directory)
        remedy = "restore a checkpoint before it, or bring back the directory"
        if not os.path.isdir(path):
            raise ValueError(f"checkpoint '{child}' holds what has changed since '{path}', which is missing; {remedy}")
        _check_identity(child, path, parent, remedy)
        if any(os.path.samefile(path, link.directory) for link in chain):
            raise ValueError(f"checkpoint '{child}' holds what has changed since itself, by way of '{path}'")
        chain.insert(0, Link(path, _manifest.read(path)))
        _check_identity(child, path, parent, remedy)  # again: it may have been replaced before it was read
        lacking = sorted(set(chain[1].manifest.tables) - set(chain[0].manifest.tables))
        if lacking:
            raise ValueError(f"checkpoint '{child}' has tables {lacking}, which '{path}' lacks, though it builds on it")
    return chain


def with_shares(directory: str, locate: Callable[[str], str]) -> list[Link]:
    """Returns what all ranks' tables consist of, in the order in which it is to be loaded, where `directory` is the
    share of one of them; else what `links` returns. The last link is that of `directory` itself. `locate` tells where
    the tables of a checkpoint are to be read. ValueError also if a share is missing or of another save."""
    own = links(directory)
    share = own[-1].manifest.share if own[-1].manifest is not None else None
    if share is None:
        return own
    chains = [own if rank == share.rank else _sibling(own[-1], rank, locate) for rank in range(len(share.directories))]
    if len({len(chain) for chain in chains}) > 1:
        raise ValueError(
            f"checkpoint '{directory}' is one of several ranks' shares of a save, whose chains of deltas differ in "
            f"length: {[len(chain) for chain in chains]}; restore another checkpoint"
        )
    chains.append(chains.pop(share.rank))
    return [link for level in zip(*chains) for link in level]


def prefixes_of_save(directory: str) -> list[str]:
    """Returns the prefixes of all ranks' checkpoints that were saved together with the tables in `directory`: one,
    unless these are a rank's share. ValueError if their manifest is damaged."""
    manifest = _manifest.read(directory)
    if manifest is None or manifest.share is None:
        return [_layout.prefix_of(directory)]
    return prefixes_of_shares(directory, manifest.share)


def prefixes_of_shares(directory: str, share: _manifest.Share) -> list[str]:
    """Returns the prefix of each rank's checkpoint, of the save whose share `directory` is."""
    return [prefix_of_share(directory, share, rank) for rank in range(len(share.directories))]


def prefix_of_share(directory: str, share: _manifest.Share, rank: int) -> str:
    """Returns the prefix of a rank's checkpoint, of the save whose share `directory` is."""
    return _layout.prefix_of(os.path.normpath(os.path.join(os.path.dirname(directory), share.directories[rank])))


def _sibling(own, rank, locate):
    share = own.manifest.share
    path = locate(prefix_of_share(own.directory, share, rank))
    what = f"checkpoint '{own.directory}' is the share of rank {share.rank} of a save of {len(share.directories)} ranks"
    if not os.path.isdir(path):
        raise ValueError(
            f"{what}, but '{path}', that of rank {rank}, is missing; bring it back, or restore another one"
        )
    chain = links(path)
    found = None if chain[-1].manifest is None else chain[-1].manifest.share
    if found is None or (found.save, found.rank, len(found.directories)) != (share.save, rank, len(share.directories)):
        raise ValueError(
            f"{what}, but '{path}', where that of rank {rank} should be, is of another save: this one was interrupted, "
            "or replaced in part; restore another checkpoint"
        )
    return chain


def _check_identity(child, path, parent, remedy):
    identity = _manifest.identity(path)
    if identity != parent.manifest_crc32c:
        raise ValueError(
            f"checkpoint '{child}' holds what has changed since '{path}', but that has been replaced or damaged "
            f"since: the CRC32C of its {_manifest.NAME} is {_text(identity)}, expected "
            f"{_text(parent.manifest_crc32c)}; {remedy}"
        )


def release(prefix: str) -> None:
    """Removes the tables of a checkpoint whose dense part is gone, unless a delta builds on them; with them goes what
    only they were built on. Failures are logged."""
    directory = _layout.of(prefix)
    while directory is not None:
        prefix = _layout.prefix_of(directory)
        if not os.path.isdir(directory) or _layout.has_dense(prefix) or children(directory):
            return
        parent = _parent(directory)
        _layout.remove(prefix)
        directory = parent


def children(directory: str) -> list[str]:
    """Returns the deltas that were built on the tables in `directory`."""
    folder = os.path.dirname(directory)
    names = filter(_layout.is_delta_name, sorted(os.listdir(folder or ".")))
    return [path for path in (os.path.join(folder, name) for name in names) if _parent(path) == directory]


def needed(folder: str, removed: Collection[str]) -> dict[str, str]:
    """Returns {directory of tables: a delta that builds on it, at once or by way of others} for all deltas in `folder`
    but those of the checkpoints `removed`."""
    found = {}
    for name in sorted(os.listdir(folder)):
        delta = os.path.join(folder, name)
        hidden = _layout.parse(delta)
        is_tables = _layout.is_delta_name(name) or (hidden is not None and hidden.half == "sparse")
        if not is_tables or _layout.prefix_of(delta) in removed:
            continue
        parent = _parent(delta)
        while parent is not None and parent not in found:
            found[parent] = delta
            parent = _parent(parent)
    return found


def _parent(directory):
    """Returns what the tables in `directory` build on; None if that is nothing, or cannot be known."""
    try:
        manifest = _manifest.read(directory)
    except (OSError, ValueError):
        return None
    if manifest is None or manifest.parent is None:
        return None
    return os.path.join(os.path.dirname(directory), manifest.parent.directory)


def _text(crc):
    return "missing" if crc is None else f"0x{crc:08x}"
