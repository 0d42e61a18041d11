"""What tells whether a file is still as it was written."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from mx_rec._native import library
from mx_rec._native.c_api import CheckpointFile


@dataclasses.dataclass(frozen=True)
class FileFacts:
    """The size and checksum of a file."""

    bytes: int
    crc32c: int


def crc32c(data, crc: int = 0) -> int:
    """Returns the checksum of some bytes A and then `data`, bytes or an array; `crc` is that of A."""
    block = np.frombuffer(data, np.uint8)
    return library.core().mxrec_crc32c(crc, block.ctypes.data, block.size)


def joined(first: FileFacts, second: FileFacts) -> FileFacts:
    """Returns what tells of a file whose first part and whose rest are these."""
    crc = library.core().mxrec_crc32c_combine(first.crc32c, second.crc32c, second.bytes)
    return FileFacts(first.bytes + second.bytes, crc)


def to_c(files: Mapping[str, FileFacts]):
    """Returns the files as the C interface takes them."""
    array = (CheckpointFile * len(files))()
    for file, (name, facts) in zip(array, files.items()):
        file.name, file.bytes, file.crc32c = name.encode(), facts.bytes, facts.crc32c
    return array


def from_c(files) -> dict[str, FileFacts]:
    """Returns the reverse of `to_c`."""
    return {file.name.decode(): FileFacts(file.bytes, file.crc32c) for file in files}
