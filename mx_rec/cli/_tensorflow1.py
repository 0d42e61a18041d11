"""TensorFlow 1's names for scripts that import `tensorflow`.

Scripts see a module of their own: tf.compat.v1, then what only TensorFlow 2 has. The real module stays what it is, for
mx_rec and every other installed package.
"""

import builtins
import os
import sys
import sysconfig
import types

import mx_rec
from mx_rec._process import Part, part

# Installed code gets the real TensorFlow,
_INSTALLED = tuple(
    {os.path.join(os.path.realpath(path), "") for key, path in sysconfig.get_paths().items() if key.endswith("lib")}
    | {os.path.join(os.path.dirname(os.path.realpath(mx_rec.__file__)), "")}
)
# but for what hands it on to scripts.
_FOR_SCRIPTS = ("mx_rec.npu.npu_init",)
_import = builtins.__import__


def install() -> None:
    """From here on `import tensorflow` in code that is not installed gives TensorFlow 1's names and behaviour."""
    builtins.__import__ = _import_for_scripts


def _import_for_scripts(name, globals=None, locals=None, fromlist=(), level=0):
    is_tensorflow = level == 0 and (name == "tensorflow" or name.startswith("tensorflow."))
    if not is_tensorflow or _is_installed(globals):
        return _import(name, globals, locals, fromlist, level)
    facade = part(_Facade).module
    found = _import(name, globals, locals, fromlist, level)
    return facade if found is sys.modules["tensorflow"] else found


def _is_installed(globals):
    globals = globals or {}
    if globals.get("__name__") in _FOR_SCRIPTS:
        return False
    path = globals.get("__file__")
    return path is None or os.path.realpath(path).startswith(_INSTALLED)


class _TensorFlow1(types.ModuleType):
    def __getattr__(self, name):
        real = sys.modules["tensorflow"]
        # Packages, such as tf.python, are not names of the API.
        for place in (real.compat.v1, real):
            if hasattr(place, name):
                return getattr(place, name)
        raise AttributeError(
            f"module 'tensorflow' has no attribute {name!r}: neither TensorFlow {real.__version__} nor its compat.v1"
        )

    def __dir__(self):
        real = sys.modules["tensorflow"]
        return sorted({*vars(self), *dir(real.compat.v1), *dir(real)})


class _Facade(Part):
    """The scripts' own tensorflow; made, with TensorFlow 1's behaviour, when it is first asked for."""

    lasts = True

    def __init__(self):
        import tensorflow as tf

        from mx_rec.cli import _contrib

        tf.compat.v1.disable_v2_behavior()
        self.module = made = _TensorFlow1("tensorflow", tf.__doc__)
        made.__path__, made.__file__, made.__spec__ = tf.__path__, tf.__file__, tf.__spec__
        made.compat = tf.compat  # that of compat.v1 lacks some names
        made.Tensorshape = tf.compat.v1.TensorShape  # as some documents spell it
        made.contrib = _contrib.install()
