"""The ranks that train together, as the core sees them (native/exchange/world.h)."""

import ctypes
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mx_rec._native import library


class Statistics(NamedTuple):
    """What the exchanges with other ranks have cost this one so far."""

    exchanges: int
    bytes: int  # sent to other ranks
    wait_microseconds: int

    def text(self) -> str:
        """Returns them in words."""
        return (
            f"{self.exchanges:,} exchanges with other ranks, {self.bytes / 1e6:,.1f} MB sent, "
            f"{self.wait_microseconds / 1e6:,.1f} s waited"
        )


def is_open_mpi(path: str) -> bool:
    """Whether the library at `path` has Open MPI's binary interface. OSError if it cannot be loaded."""
    return hasattr(ctypes.CDLL(path, ctypes.RTLD_GLOBAL), "ompi_mpi_comm_world")


def join(path: str, warn_seconds: float, error_seconds: float) -> tuple[int, int]:
    """Joins the ranks by the MPI library at `path`; returns (rank, size). KeyError if it cannot be loaded."""
    rank, size = ctypes.c_int32(), ctypes.c_int32()
    library.core().mxrec_world_join(path.encode(), warn_seconds, error_seconds, ctypes.byref(rank), ctypes.byref(size))
    return rank.value, size.value


def leave(why: str = "") -> None:
    """Leaves them; who waits for this rank gets an error that holds `why`."""
    library.core().mxrec_world_leave(why.encode())


def begun() -> int:
    """The number of exchanges that this rank has begun so far."""
    return library.core().mxrec_world_begun()


def fail_since(number: int, streams: list[str], code: int, message: str) -> None:
    """Fails, on all ranks, the next exchange of those streams that this rank has not come to since `begun` was
    `number`. `code`: as in native/base/status.h."""
    names = (ctypes.c_char_p * len(streams))(*(name.encode() for name in streams))
    library.core().mxrec_world_fail_since(number, names, len(streams), code, message.encode())


def gather(stream: str, data: bytes, size: int) -> list[bytes]:
    """Gives `data` to every one of `size` ranks and returns what each has given, when all have."""
    sizes, gathered = (ctypes.c_int64 * size)(), ctypes.c_char_p()
    core = library.core()
    core.mxrec_world_gather(stream.encode(), data, len(data), sizes, ctypes.byref(gathered))
    try:
        at, parts = ctypes.cast(gathered, ctypes.c_void_p).value, []
        for length in sizes:
            parts.append(ctypes.string_at(at, length))
            at += length
        return parts
    finally:
        core.mxrec_world_free(gathered)


def statistics() -> Statistics:
    """What exchanges have cost so far."""
    facts = (ctypes.c_int64 * len(Statistics.__annotations__))()
    library.core().mxrec_world_statistics(facts)
    return Statistics(*facts)


def replicate(table: str) -> None:
    """Makes a table one that every rank holds whole. RuntimeError if it has rows already."""
    library.core().mxrec_table_replicate(table.encode())


def owners(keys: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int32]:
    """Returns the rank, of `size`, that has the row of each key, in a table that is not replicated."""
    found = np.empty(keys.size, np.int32)
    into = found.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
    library.core().mxrec_world_owners(np.ascontiguousarray(keys.reshape(-1)), keys.size, size, into)
    return found.reshape(keys.shape)


def scale_gradients(table: str, scale: float) -> None:
    """Multiplies this rank's summed gradients of a table's rows before they go to the rows' owners."""
    library.core().mxrec_table_scale_gradients(table.encode(), scale)
