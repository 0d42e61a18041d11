"""The C interface of the core, native/capi/*.h: a prototype for each function, by which ctypes checks and converts.

NumPy arrays are passed as they are; one of another type, or with gaps, is a ctypes.ArgumentError.
"""

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint32, c_void_p

import numpy as np

from mx_rec._native import errors, table_config

Int64s = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
Floats = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
Bytes = np.ctypeslib.ndpointer(np.uint8, flags="C_CONTIGUOUS")
_Int32, _Int64, _Handle, _Texts = (POINTER(kind) for kind in (c_int32, c_int64, c_void_p, c_char_p))


class CheckpointFile(ctypes.Structure):
    """mxrec_checkpoint_file."""

    _fields_ = [("name", ctypes.c_char * 272), ("bytes", c_int64), ("crc32c", c_uint32)]


_Files = POINTER(CheckpointFile)

# By name: the type of the result, then those of the arguments. A result of c_int is a status.
PROTOTYPES = {
    # capi.h
    "mxrec_last_error": (c_char_p,),
    "mxrec_table_create": (c_int, POINTER(table_config.InC)),
    "mxrec_table_set_slots": (c_int, c_char_p, c_int32, _Texts, POINTER(c_float)),
    "mxrec_table_slot_name": (c_int, c_char_p, c_int32, c_char_p, c_int64),
    "mxrec_table_facts": (c_int, c_char_p, _Int64),
    "mxrec_table_tier": (c_int, c_char_p, _Int64),
    "mxrec_table_track": (c_int, c_char_p, _Int64),
    "mxrec_table_tracking": (c_int, c_char_p, _Int64),
    "mxrec_table_check_tracking": (c_int, c_char_p, c_int64, c_int64, c_int64, c_int64),
    "mxrec_table_restore_tracking": (c_int, c_char_p, c_int64, c_int64, c_int64, c_int64),
    "mxrec_table_history": (c_int, c_char_p, Int64s, c_int64, Int64s, Int64s, Int64s),
    "mxrec_eviction_begin": (c_int, c_char_p, c_int32, c_double, c_int64, _Handle),
    "mxrec_eviction_run": (c_int, c_void_p, c_int64, _Int32, _Int64),
    "mxrec_eviction_end": (None, c_void_p),
    "mxrec_table_read": (c_int, c_char_p, Int64s, c_int64, Floats, Bytes),
    "mxrec_table_write": (c_int, c_char_p, Int64s, c_int64, Floats),
    "mxrec_table_assign": (c_int, c_char_p, Int64s, c_int64, Floats),
    "mxrec_table_keys": (c_int, c_char_p, Int64s, c_int64, _Int64),
    "mxrec_table_some_keys": (c_int, c_char_p, Int64s, c_int64, _Int64),
    "mxrec_table_erase": (c_int, c_char_p, Int64s, c_int64, _Int64),
    "mxrec_table_clear": (c_int, c_char_p),
    "mxrec_keep_freed_memory": (None,),
    "mxrec_registry_clear": (None,),
    # world_capi.h
    "mxrec_world_join": (c_int, c_char_p, c_double, c_double, _Int32, _Int32),
    "mxrec_world_leave": (None, c_char_p),
    "mxrec_world_begun": (c_int64,),
    "mxrec_world_fail_since": (c_int, c_int64, _Texts, c_int32, c_int32, c_char_p),
    "mxrec_world_gather": (c_int, c_char_p, c_char_p, c_int64, _Int64, _Texts),
    "mxrec_world_free": (None, c_char_p),
    "mxrec_world_statistics": (c_int, _Int64),
    "mxrec_table_scale_gradients": (c_int, c_char_p, c_float),
    "mxrec_table_replicate": (c_int, c_char_p),
    "mxrec_world_owners": (None, Int64s, c_int64, c_int32, _Int32),
    # checkpoint_capi.h
    "mxrec_snapshot_take": (c_int, c_char_p, c_int64, c_int32, _Handle, _Int64),
    "mxrec_snapshot_count": (c_int, c_void_p, _Int64),
    "mxrec_snapshot_write": (c_int, c_void_p, c_char_p, _Int64, _Int64, c_int32, _Int64, _Files, c_int32, _Int32),
    "mxrec_snapshot_end": (None, c_void_p),
    "mxrec_table_follow_changes": (c_int, c_char_p, c_int32),
    "mxrec_table_moment": (c_int, c_char_p, _Int64),
    "mxrec_table_knows_since": (c_int, c_char_p, c_int64, _Int32),
    "mxrec_reader_open": (
        *(c_int, c_char_p, c_char_p, c_int32, c_int32, c_int32, c_int32, c_int32),
        *(_Files, c_int32, _Handle),
    ),
    "mxrec_reader_verify": (c_int, c_void_p, c_int32, _Int64),
    "mxrec_reader_load": (c_int, c_void_p, _Int64),
    "mxrec_reader_close": (None, c_void_p),
    "mxrec_crc32c": (c_uint32, c_uint32, c_void_p, c_int64),
    "mxrec_crc32c_combine": (c_uint32, c_uint32, c_uint32, c_int64),
}


def apply(library: ctypes.CDLL) -> None:
    """Gives the functions of the core their prototypes, and has them raise the exceptions that errors.py lists."""
    for name, (result, *arguments) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
        if result is c_int:
            function.errcheck = lambda code, *_: errors.check(code, library.mxrec_last_error)
