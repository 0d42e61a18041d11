"""manifest.json: what a sparse directory holds and how to tell that it is whole.

It is written last, so a directory with a manifest is complete. One without comes from the original SDK.

    {"format": 1, "mx_rec": "0.1.0", "step": 7, "dense_index_crc32c": "8c28b28a",
     "replaces": {"manifest_crc32c": null, "dense_index_crc32c": null},
     "tables": {"user": {"dim": 8, "rows": 2, "key_dtype": "int64", "optimizer": "LazyAdam",
                         "slots": ["LazyAdam_momentum", "LazyAdam_velocity"], "tracking": null,
                         "files": {"key/slice.data": {"bytes": 16, "crc32c": "e3069283"}, ...}}},
     "crc32c": "4a17b156"}

A delta has also `"parent": {"directory": "sparse-model-6", "manifest_crc32c": "5b2f0c3d"}`: what it has changed since;
and for each table `"table_rows"`, how many the table had in all.

The last entry is the checksum of all bytes before the comma that precedes it.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Optional

import mx_rec
from mx_rec._native.checkpoint import FileFacts, crc32c
from mx_rec._native.table import Tracking
from mx_rec.saver import _files

NAME = "manifest.json"
# On disk: raise it when older versions could misread what a newer one writes.
FORMAT = 1
_SEALED = re.compile(rb'(.*),\n "crc32c": "([0-9a-f]{8})"\n}\n', re.DOTALL)


class NewerFormatError(ValueError):
    """A later version of this package wrote it."""


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
    table_rows: Optional[int] = None  # of the whole table; None unless `rows` are those of a delta


@dataclasses.dataclass(frozen=True)
class Replaced:
    """What lay under a checkpoint's name when it was saved: the checksums of these files, None without them."""

    manifest_crc32c: Optional[int]
    dense_index_crc32c: Optional[int]


@dataclasses.dataclass(frozen=True)
class Parent:
    """The tables that a delta builds on."""

    directory: str  # its name, beside that of the delta
    manifest_crc32c: int


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A checkpoint's tables."""

    step: Optional[int]
    # Of the dense part's index file, which holds a checksum of every dense variable: ties the tables to the dense part
    # they were saved with.
    dense_index_crc32c: Optional[int]
    tables: Mapping[str, TableEntry]
    replaces: Replaced
    parent: Optional[Parent] = None  # None: it holds all rows


def write(manifest: Manifest, directory: str) -> None:
    """Writes or replaces the manifest of `directory` and returns when it has reached the disk."""
    content = {
        "format": FORMAT,
        "mx_rec": mx_rec.__version__,
        "step": manifest.step,
        "dense_index_crc32c": _hex(manifest.dense_index_crc32c),
        "replaces": {name: _hex(crc) for name, crc in dataclasses.asdict(manifest.replaces).items()},
        **({} if manifest.parent is None else {"parent": _parent_to_json(manifest.parent)}),
        "tables": {name: _table_to_json(entry) for name, entry in manifest.tables.items()},
    }
    path = os.path.join(directory, NAME)
    _files.write(path, seal(content), path + ".new", 0o640)


def seal(content: dict) -> bytes:
    """The file for `content`, with its checksum."""
    body = json.dumps(content, indent=1).removesuffix("\n}").encode()
    return body + f',\n "crc32c": "{_hex(crc32c(body))}"\n}}\n'.encode()


def identity(directory: str) -> Optional[int]:
    """What tells the manifest of `directory`, whole or damaged, from another one; None if there is none."""
    try:
        with open(os.path.join(directory, NAME), "rb") as file:
            return crc32c(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None


def read(directory: str) -> Optional[Manifest]:
    """The manifest of `directory`; None if there is none; ValueError if it is damaged, or a NewerFormatError."""
    path = os.path.join(directory, NAME)
    try:
        with open(path, "rb") as file:
            data = file.read()
        content = json.loads(data.decode())
        version = int(content["format"])
        if version <= FORMAT:
            sealed = _SEALED.fullmatch(data)
            if sealed is None:
                raise ValueError('it does not end in its "crc32c"')
            if crc32c(sealed.group(1)) != int(sealed.group(2), 16):
                raise ValueError(
                    f"the CRC32C of its first {len(sealed.group(1))} bytes is 0x{crc32c(sealed.group(1)):08x}, "
                    f"expected 0x{sealed.group(2).decode()} (as written)"
                )
            return Manifest(
                step=content["step"],
                dense_index_crc32c=_number(content["dense_index_crc32c"]),
                tables={name: _table_from_json(entry) for name, entry in content["tables"].items()},
                replaces=Replaced(**{name: _number(crc) for name, crc in content["replaces"].items()}),
                parent=_parent_from_json(content["parent"]) if "parent" in content else None,
            )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # no UTF-8, no JSON, or not what we write
        raise ValueError(f"checkpoint file '{path}' is damaged: {type(error).__name__}: {error}") from error
    raise NewerFormatError(
        f"checkpoint file '{path}' has format {version}, this version of mx_rec reads up to {FORMAT}; restore with the "
        f"version that wrote it ({content.get('mx_rec')}) or a newer one"
    )


def _hex(crc):
    return None if crc is None else f"{crc:08x}"


def _number(crc):
    return None if crc is None else int(crc, 16)


def _parent_to_json(parent):
    return {"directory": parent.directory, "manifest_crc32c": _hex(parent.manifest_crc32c)}


def _parent_from_json(content):
    directory = content["directory"]
    if os.path.basename(directory) != directory or directory in ("", ".", ".."):
        raise ValueError(f"a delta's parent lies beside it, got {directory!r}")
    return Parent(directory, int(content["manifest_crc32c"], 16))


def _table_to_json(entry):
    content = dataclasses.asdict(entry)
    if entry.table_rows is None:
        del content["table_rows"]
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
        table_rows=content.get("table_rows"),
    )
