"""manifest.json: what a sparse directory holds and how to tell that it is whole.

It is written last, so a directory with a manifest is complete. One without comes from the original SDK.

    {"format": 1, "mx_rec": "0.1.0", "step": 7, "dense_index_crc32c": "8c28b28a",
     "tables": {"user": {"dim": 8, "rows": 2, "key_dtype": "int64", "optimizer": "LazyAdam",
                         "slots": ["LazyAdam_momentum", "LazyAdam_velocity"], "tracking": null,
                         "files": {"key/slice.data": {"bytes": 16, "crc32c": "e3069283"}, ...}}}}
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Optional

import mx_rec
from mx_rec._native.checkpoint import FileFacts
from mx_rec._native.table import Tracking

NAME = "manifest.json"
# On disk: raise it when older versions could misread what a newer one writes.
FORMAT = 1


@dataclasses.dataclass(frozen=True)
class TableEntry:
    """One table of a checkpoint."""

    dim: int
    rows: int
    key_dtype: str
    slots: tuple[str, ...]
    optimizer: Optional[str]
    files: Mapping[str, FileFacts]  # by name relative to the table's directory
    tracking: Optional[Tracking] = None  # None: the table did not count its keys


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A checkpoint's tables."""

    step: Optional[int]
    # Of the dense part's index file, which holds a checksum of every dense variable: ties the tables to the dense part
    # they were saved with.
    dense_index_crc32c: Optional[int]
    tables: Mapping[str, TableEntry]


def write(manifest: Manifest, directory: str) -> None:
    """Writes or replaces the manifest of `directory` and returns when it has reached the disk."""
    crc = manifest.dense_index_crc32c
    content = {
        "format": FORMAT,
        "mx_rec": mx_rec.__version__,
        "step": manifest.step,
        "dense_index_crc32c": None if crc is None else _hex(crc),
        "tables": {name: _table_to_json(entry) for name, entry in manifest.tables.items()},
    }
    path = os.path.join(directory, NAME)
    fresh = path + ".new"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(fresh, path)
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(directory: str) -> Optional[Manifest]:
    """The manifest of `directory`; None if there is none; ValueError if it is damaged or too new."""
    path = os.path.join(directory, NAME)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        version = int(content["format"])
        if version <= FORMAT:
            crc = content["dense_index_crc32c"]
            return Manifest(
                step=content["step"],
                dense_index_crc32c=None if crc is None else int(crc, 16),
                tables={name: _table_from_json(entry) for name, entry in content["tables"].items()},
            )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # no UTF-8, no JSON, or not what we write
        raise ValueError(f"checkpoint file '{path}' is damaged: {type(error).__name__}: {error}") from error
    raise ValueError(
        f"checkpoint file '{path}' has format {version}, this version of mx_rec reads up to {FORMAT}; restore with the "
        f"version that wrote it ({content.get('mx_rec')}) or a newer one"
    )


def _hex(crc):
    return f"{crc:08x}"


def _table_to_json(entry):
    content = dataclasses.asdict(entry)
    content["files"] = {name: {"bytes": f.bytes, "crc32c": _hex(f.crc32c)} for name, f in entry.files.items()}
    return content


def _table_from_json(content) -> TableEntry:
    files: dict[str, FileFacts] = {
        name: FileFacts(int(facts["bytes"]), int(facts["crc32c"], 16)) for name, facts in content["files"].items()
    }
    return TableEntry(
        dim=int(content["dim"]),
        rows=int(content["rows"]),
        key_dtype=content["key_dtype"],
        slots=tuple(content["slots"]),
        optimizer=content["optimizer"],
        files=files,
        tracking=Tracking(**content["tracking"]) if content.get("tracking") else None,
    )
