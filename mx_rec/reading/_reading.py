"""Reading the tables of a checkpoint without training: a delta together with the checkpoints that it builds on.

Imports no TensorFlow: the command line's tools start in a fraction of a second.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Optional

from mx_rec.checkpoint import _chain, _layout, _manifest
from mx_rec.checkpoint._errors import CheckpointError, DamagedError, unreadable
from mx_rec.checkpoint._merging import MergedTable
from mx_rec.checkpoint._table_files import TableFiles
from mx_rec.reading import _finding
from mx_rec.transaction._pair import Pair


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The tables of one checkpoint: of a delta, with the rows of those that it builds on."""

    chain: Sequence[_chain.Link]  # the last is the checkpoint itself, those before it are what it builds on
    format: Optional[int]
    writer: Optional[str]  # the version of mx_rec
    tables: Mapping[str, TableFiles]

    @property
    def directory(self) -> str:
        return self.chain[-1].directory

    @property
    def manifest(self) -> Optional[_manifest.Manifest]:
        """The manifest; None if the original SDK wrote the checkpoint."""
        return self.chain[-1].manifest

    @property
    def is_delta(self) -> bool:
        return self.chain[-1].is_delta

    @property
    def prefix(self) -> str:
        """The name of the checkpoint, as TensorFlow has it."""
        return _layout.prefix_of(self.directory)

    @property
    def dense_prefix(self) -> str:
        """The prefix of the dense part of these tables: the checkpoint's, unless they lie in a pair (_pair.py)."""
        hidden = _layout.parse(self.directory)
        return self.prefix if hidden is None else Pair(hidden.prefix, hidden.owner).dense_prefix

    @property
    def step(self) -> Optional[int]:
        return _finding.split_step(self.prefix)[1] if self.manifest is None else self.manifest.step

    @property
    def dense(self) -> str:
        """How the dense part beside it belongs to these tables: "fits", "differs", "missing", or "unknown"."""
        crc = _layout.dense_crc32c(self.dense_prefix)
        if crc is None:
            return "missing"
        if self.manifest is None or self.manifest.dense_index_crc32c is None:
            return "unknown"
        return "fits" if crc == self.manifest.dense_index_crc32c else "differs"

    def table(self, name: str) -> TableFiles:
        if name not in self.tables:
            raise CheckpointError(
                f"checkpoint '{self.directory}': table '{name}' is not in it, only {sorted(self.tables)}"
            )
        return self.tables[name]


def open_checkpoint(path: str) -> Checkpoint:
    """Returns the checkpoint that `path` means (_finding.py). Reads manifests and nothing else."""
    directory = _finding.find(path)
    try:
        chain = _chain.links(directory)
        tables = [link.tables for link in chain]
    except CheckpointError:
        raise
    except ValueError as error:
        raise DamagedError(str(error)) from error
    except OSError as error:
        raise unreadable(error.filename or directory, error) from error
    merged = tables[-1]
    if len(chain) > 1:
        merged = {name: MergedTable([held[name] for held in tables]) for name in merged}
    return Checkpoint(chain, *_manifest.read_head(directory), merged)
