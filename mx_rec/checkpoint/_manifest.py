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

Where several ranks have saved to paths of their own, each has also `"share": {"rank": 0, "save": "5f0c9a31",
"directories": ["sparse-model-0-7", "sparse-model-1-7"], "whole": []}`: that of which rank the directory is, what tells
the save from others, where those of all ranks lie, as seen from beside this one, and the tables that each of them has
whole.

The last entry is the checksum of all bytes before the comma that precedes it.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Optional

from mx_rec import _check
from mx_rec._native.file_facts import FileFacts, crc32c
from mx_rec._native.table import Tracking
from mx_rec._version import VERSION
from mx_rec.checkpoint import _fields as fields
from mx_rec.checkpoint import _files
from mx_rec.checkpoint._errors import NewerFormatError

NAME = "manifest.json"
# On disk: raise it when older versions could misread what a newer one writes.
FORMAT = 2
_FORMAT_WITHOUT_SHARES = 1
# A table takes about a kilobyte.
_MAX_BYTES = 64 << 20
_SEALED = re.compile(rb'(.*),\n "crc32c": "([0-9a-f]{8})"\n}\n', re.DOTALL)


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
class Share:
    """Which part of a model's tables a directory holds, and where the others are."""

    rank: int
    save: int  # the same in all shares of a save, and in no other
    directories: tuple[str, ...]  # of all ranks' shares, as seen from beside this one
    whole: tuple[str, ...] = ()  # tables of which each share holds all rows


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
    share: Optional[Share] = None  # None: it holds what all ranks have


def write(manifest: Manifest, directory: str) -> None:
    """Writes or replaces the manifest of `directory` and returns when it has reached the disk."""
    content = {
        "format": _FORMAT_WITHOUT_SHARES if manifest.share is None else FORMAT,
        "mx_rec": VERSION,
        "step": manifest.step,
        "dense_index_crc32c": _hex(manifest.dense_index_crc32c),
        "replaces": {name: _hex(crc) for name, crc in dataclasses.asdict(manifest.replaces).items()},
        **({} if manifest.parent is None else {"parent": _parent_to_json(manifest.parent)}),
        **({} if manifest.share is None else {"share": _share_to_json(manifest.share)}),
        "tables": {name: _table_to_json(entry) for name, entry in manifest.tables.items()},
    }
    path = os.path.join(directory, NAME)
    _files.write(path, seal(content), path + ".new", 0o640)


def seal(content: dict) -> bytes:
    """Returns the bytes of the file for `content`, with their checksum."""
    body = json.dumps(content, indent=1).removesuffix("\n}").encode()
    return body + f',\n "crc32c": "{_hex(crc32c(body))}"\n}}\n'.encode()


def identity(directory: str) -> Optional[int]:
    """Returns what tells the manifest of `directory`, whole or damaged, from another one; None if there is none."""
    try:
        content = _content(directory)
    except ValueError:
        return -1  # no manifest has this checksum
    return None if content is None else crc32c(content)


def read(directory: str) -> Optional[Manifest]:
    """Returns the manifest of `directory`, None without one; ValueError if it is damaged, or NewerFormatError."""
    data = _content(directory)
    if data is None:
        return None
    path = os.path.join(directory, NAME)
    try:
        content = fields.mapping("it", json.loads(data.decode()))
        version = fields.integer("format", content.get("format"), 1)
        if version <= FORMAT:
            _check_seal(data)
            return _from_json(content)
    # No UTF-8, no JSON, nested too deeply, or not what we write.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"checkpoint file '{path}' is damaged: {type(error).__name__}: {error}") from error
    raise NewerFormatError(
        f"checkpoint file '{path}' has format {version}, this version of mx_rec reads up to {FORMAT}; restore with the "
        f"version that wrote it ({str(content.get('mx_rec'))[:100]}) or a newer one"
    )


def read_head(directory: str) -> tuple[Optional[int], Optional[str]]:
    """Returns (format, version of mx_rec) of a whole manifest; (None, None) without one."""
    data = _content(directory)
    if data is None:
        return None, None
    content = json.loads(data.decode())
    return content["format"], str(content.get("mx_rec"))


def _content(directory):
    """Returns the bytes of the manifest; None without one."""
    try:
        _files.check_no_links(directory, NAME)
        return _files.read_regular(os.path.join(directory, NAME), _MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _check_seal(data):
    sealed = _SEALED.fullmatch(data)
    if sealed is None:
        raise ValueError('it does not end in its "crc32c"')
    found, expected = crc32c(sealed.group(1)), int(sealed.group(2), 16)
    if found != expected:
        raise ValueError(
            f"the CRC32C of its first {len(sealed.group(1))} bytes is 0x{found:08x}, expected 0x{expected:08x} "
            "(as written)"
        )


def _from_json(content):
    step = content.get("step")
    replaces = fields.mapping("replaces", content.get("replaces"))
    tables = fields.mapping("tables", content.get("tables"))
    return Manifest(
        step=None if step is None else fields.integer("step", step, -(2**63)),
        dense_index_crc32c=fields.crc32c("dense_index_crc32c", content.get("dense_index_crc32c")),
        tables={_check.table_name("name", name): _table_from_json(name, entry) for name, entry in tables.items()},
        replaces=Replaced(
            **{field: fields.crc32c(f"replaces.{field}", replaces.get(field)) for field in _names(Replaced)}
        ),
        parent=_parent_from_json(content["parent"]) if "parent" in content else None,
        share=_share_from_json(content["share"]) if "share" in content else None,
    )


def _names(kind):
    return [field.name for field in dataclasses.fields(kind)]


def _hex(crc):
    return None if crc is None else f"{crc:08x}"


def _parent_to_json(parent):
    return {"directory": parent.directory, "manifest_crc32c": _hex(parent.manifest_crc32c)}


def _parent_from_json(content):
    parent = fields.mapping("parent", content)
    crc = fields.crc32c("parent.manifest_crc32c", parent.get("manifest_crc32c"), is_optional=False)
    return Parent(fields.component("parent.directory", parent.get("directory")), crc)


def _share_to_json(share):
    return {**dataclasses.asdict(share), "save": _hex(share.save)}


def _share_from_json(content):
    share = fields.mapping("share", content)
    directories = tuple(
        fields.path("share.directories", d) for d in fields.sequence("share.directories", share.get("directories"))
    )
    return Share(
        rank=fields.integer("share.rank", share.get("rank"), 0, len(directories) - 1),
        save=fields.crc32c("share.save", share.get("save"), is_optional=False),
        directories=directories,
        whole=tuple(
            _check.table_name("share.whole", name) for name in fields.sequence("share.whole", share.get("whole"))
        ),
    )


def _table_to_json(entry):
    content = dataclasses.asdict(entry)
    if entry.table_rows is None:
        del content["table_rows"]
    content["files"] = {name: {"bytes": f.bytes, "crc32c": _hex(f.crc32c)} for name, f in entry.files.items()}
    return content


def _table_from_json(name, content) -> TableEntry:
    label = f"tables.{name}"
    entry = fields.mapping(label, content)
    tracking, table_rows, optimizer = (entry.get(field) for field in ("tracking", "table_rows", "optimizer"))
    return TableEntry(
        dim=fields.integer(f"{label}.dim", entry.get("dim"), 1, 2**31),
        rows=fields.integer(f"{label}.rows", entry.get("rows"), 0, 2**48),
        key_dtype=fields.text(f"{label}.key_dtype", entry.get("key_dtype")),
        slots=_slots_from_json(f"{label}.slots", entry.get("slots")),
        optimizer=None if optimizer is None else fields.text(f"{label}.optimizer", optimizer),
        files=_files_from_json(f"{label}.files", entry.get("files")),
        tracking=None if not tracking else _tracking_from_json(f"{label}.tracking", tracking),
        table_rows=None if table_rows is None else fields.integer(f"{label}.table_rows", table_rows, 0, 2**48),
    )


def _slots_from_json(label, content) -> tuple[str, ...]:
    return tuple(fields.component(label, slot) for slot in fields.sequence(label, content))


def _files_from_json(label, content) -> dict[str, FileFacts]:
    files = {}
    for name, facts in fields.mapping(label, content).items():
        column, _, kind = name.rpartition("/")
        if kind not in ("slice.data", "slice.attribute"):
            raise ValueError(f"{label} names {name[:300]!r}, which is no file of a table")
        fields.component(label, column)
        facts = fields.mapping(f"{label}.{name}", facts)
        size = fields.integer(f"{label}.{name}.bytes", facts.get("bytes"), 0)
        files[name] = FileFacts(size, fields.crc32c(f"{label}.{name}.crc32c", facts.get("crc32c"), is_optional=False))
    return files


def _tracking_from_json(label, content) -> Tracking:
    found = fields.mapping(label, content)
    return Tracking(**{name: fields.integer(f"{label}.{name}", found.get(name, 0), -1) for name in _names(Tracking)})
