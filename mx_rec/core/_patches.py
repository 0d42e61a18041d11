"""All patches of TensorFlow: what knows nothing of tables and must, while there are some."""

import importlib

# Modules with a list `PATCHES` (mx_rec/_patch.py).
_EARLY = ("mx_rec.core._meta_graph", "mx_rec.graph._eos", "mx_rec.graph._guard", "mx_rec.graph._structure")
_MODULES = (
    *_EARLY,
    "mx_rec.graph._monitored",
    "mx_rec.saver._estimator",
    "mx_rec.saver._warm_start",
    "mx_rec.saver.saved_model",
)


def install() -> None:
    """Installs all patches; those of a part of TensorFlow that has been imported since the last call, too."""
    from mx_rec.saver import saver

    saver.install()
    for patch in _all():
        patch.install()


def install_early() -> None:
    """Installs what scripts may use before there is a table. Imports TensorFlow."""
    for patch in _all(_EARLY):
        patch.install()


def uninstall() -> None:
    """Takes all patches out. RuntimeError if a save in the background failed; they are out then, too."""
    from mx_rec.saver import saver

    for patch in _all():
        patch.uninstall()
    saver.uninstall()  # last, as it may raise


def _all(modules=_MODULES):
    return [patch for module in modules for patch in importlib.import_module(module).PATCHES]
