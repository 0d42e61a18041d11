"""The prototypes are those of the headers, and the library has all of them."""

import ctypes
import pathlib
import re

import numpy as np
import pytest

from mx_rec._native import c_api, library, table_config
from mx_rec._native.c_api import Bytes, CheckpointFile, Floats, Int64s

HEADERS = sorted((pathlib.Path(__file__).resolve().parents[2] / "native/capi").glob("*capi.h"))
# What Python may pass for a type in C.
TYPES = {
    "void": [None],
    "int": [ctypes.c_int],
    "int32_t": [ctypes.c_int32],
    "int64_t": [ctypes.c_int64],
    "uint32_t": [ctypes.c_uint32],
    "uint64_t": [ctypes.c_uint64],
    "float": [ctypes.c_float],
    "double": [ctypes.c_double],
    "char*": [ctypes.c_char_p],
    "void*": [ctypes.c_void_p],
    "int32_t*": [ctypes.POINTER(ctypes.c_int32)],
    "int64_t*": [Int64s, ctypes.POINTER(ctypes.c_int64)],
    "float*": [Floats, ctypes.POINTER(ctypes.c_float)],
    "uint8_t*": [Bytes],
    "char**": [ctypes.POINTER(ctypes.c_char_p)],
    "mxrec_table_config*": [ctypes.POINTER(table_config.InC)],
    "mxrec_checkpoint_file*": [ctypes.POINTER(CheckpointFile)],
    **{f"mxrec_{name}*": [ctypes.c_void_p] for name in ("eviction", "snapshot", "reader")},
    **{f"mxrec_{name}**": [ctypes.POINTER(ctypes.c_void_p)] for name in ("eviction", "snapshot", "reader")},
}


def declared():
    """{name: types in C, that of the result first} of all functions in the headers."""
    found = {}
    for header in HEADERS:
        text = re.sub(r"//.*", "", header.read_text())
        for result, name, arguments in re.findall(r"^([\w ]+?\**) *(mxrec_\w+)\(([^)]*)\);", text, re.MULTILINE):
            types = [re.sub(r"\w+$", "", one.strip()) for one in arguments.split(",")] if arguments != "void" else []
            found[name] = [re.sub(r"\bconst\b|\s", "", one) for one in (result, *types)]
    return found


def test_every_function_has_the_prototype_of_its_header():
    functions = declared()
    assert len(functions) > 30
    assert set(c_api.PROTOTYPES) == set(functions)
    for name, types in functions.items():
        kinds = c_api.PROTOTYPES[name]
        assert len(kinds) == len(types), name
        for number, (kind, in_c) in enumerate(zip(kinds, types)):
            assert kind in TYPES[in_c], f"{name}: {in_c} at place {number}"


def test_the_configuration_of_a_table_has_the_fields_of_its_header():
    header = re.sub(r"//.*", "", (HEADERS[0].parent / "capi.h").read_text())
    body = re.search(r"typedef struct {([^}]*)} mxrec_table_config;", header).group(1)
    fields = [re.fullmatch(r"(.*?)(\w+)", one.strip()).groups() for one in body.split(";") if one.strip()]
    assert [name for _, name in fields] == [name for name, _ in table_config.InC._fields_]
    for (in_c, name), (_, kind) in zip(fields, table_config.InC._fields_):
        assert kind in TYPES[re.sub(r"\bconst\b|\s", "", in_c)], name


def test_the_struct_of_a_file_is_as_long_as_in_c():
    room = re.search(r"MXREC_FILE_NAME_BYTES (\d+)", "".join(header.read_text() for header in HEADERS))
    assert CheckpointFile.bytes.offset == int(room.group(1))


def test_arrays_of_another_type_or_with_gaps_are_refused():
    core, rows = library.core(), np.zeros((2, 4), np.float32)
    for keys in (np.zeros(2, np.int32), np.zeros(4, np.int64)[::2]):
        with pytest.raises(ctypes.ArgumentError):
            core.mxrec_table_write(b"no table", keys, 2, rows)
