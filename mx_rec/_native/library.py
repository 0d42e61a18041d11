"""Loads the two native libraries, on first use.

``core()`` is the C++ core without TensorFlow, through its C interface. ``ops()`` is the TensorFlow op library; it
refuses to load into a TensorFlow it was not built for, because some mismatched pairs load silently and then corrupt
memory.
"""

import ctypes
import functools
import importlib.resources


def _path(name):
    # Not __file__: in an editable install the libraries lie beside the build, not in the source tree.
    with importlib.resources.as_file(importlib.resources.files(__package__) / name) as path:
        if not path.exists():
            raise ImportError(f"mx_rec: {name} is missing; build the package first (`make setup`, or `pip install .`)")
        return str(path)


@functools.cache
def core() -> ctypes.CDLL:
    """The C interface of the core (native/capi)."""
    library = ctypes.CDLL(_path("libmxrec_core.so"))
    library.mxrec_last_error.restype = ctypes.c_char_p
    return library


@functools.cache
def ops():
    """The module of TensorFlow ops (native/tf), gradients registered."""
    import tensorflow as tf

    check_version(tf.__version__)
    core().mxrec_keep_freed_memory()
    # The op library links to the core, which core() has loaded from our own path.
    module = tf.load_op_library(_path("_mxrec_ops.so"))
    from mx_rec._ops import gradients

    gradients.register()
    return module


def check_version(running: str) -> None:
    """Raises ImportError unless the op library was built for the TensorFlow version `running`."""
    from mx_rec._native import _build_info

    if running != _build_info.TF_VERSION:
        raise ImportError(
            f"mx_rec was built for TensorFlow {_build_info.TF_VERSION} but runs with {running}; rebuild it here: "
            "`pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps <source of mx_rec>`, "
            f"or install tensorflow-cpu=={_build_info.TF_VERSION}"
        )
