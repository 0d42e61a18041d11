"""Finds the native libraries, and loads the core on first use.

``core()`` is the C++ core without TensorFlow, through its C interface. The library of TensorFlow ops, which
mx_rec/_ops loads, must not be loaded into a TensorFlow it was not built for: some mismatched pairs load without an
error and then corrupt memory.
"""

import ctypes
import functools
import importlib.resources


def path(name: str) -> str:
    """Returns where the library of this name lies; ImportError if it was not built."""
    # Not __file__: in an editable install the libraries lie beside the build, not in the source tree.
    with importlib.resources.as_file(importlib.resources.files(__package__) / name) as found:
        if not found.exists():
            raise ImportError(f"mx_rec: {name} is missing; build the package first (`make setup`, or `pip install .`)")
        return str(found)


@functools.cache
def core() -> ctypes.CDLL:
    """Returns the C interface of the core (native/capi)."""
    from mx_rec._native import c_api  # imports NumPy

    library = ctypes.CDLL(path("libmxrec_core.so"))
    c_api.apply(library)
    return library


def check_version(running: str) -> None:
    """Raises ImportError unless the op library was built for the TensorFlow version `running`."""
    from mx_rec._native import _build_info

    if running != _build_info.TF_VERSION:
        raise ImportError(
            f"mx_rec was built for TensorFlow {_build_info.TF_VERSION} but runs with {running}; rebuild it here: "
            "`pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps <source of mx_rec>`, "
            f"or install tensorflow-cpu=={_build_info.TF_VERSION}"
        )
