"""All patches of TensorFlow: of functions that know nothing of tables and must, while there are some."""

import importlib

from mx_rec._process import Part, part

# Modules with a list `PATCHES` (mx_rec/_tf/patch.py), by name: they belong to rooms that stand on this one.
_EARLY = (
    *("mx_rec._tables.meta_graph", "mx_rec._sessions.guard", "mx_rec._tf.eos", "mx_rec._tf.structure"),
    *("mx_rec._sessions.failing", "mx_rec._sessions.together"),  # of several ranks
)
_MODULES = (
    "mx_rec.saver.saver",
    *_EARLY,
    "mx_rec._sessions.monitored",
    "mx_rec.saver._estimator",
    "mx_rec.saver._warm_start",
    "mx_rec.saver.saved_model",
    "mx_rec.saver._ranked_export",
)


class _Installed(Part):
    """Remembers that there are patches to take out."""

    def close(self):
        uninstall()


def install() -> None:
    """Installs all patches; those of a part of TensorFlow that has been imported since the last call, too."""
    part(_Installed)
    for patch in _all():
        patch.install()


def install_early() -> None:
    """Installs what scripts may use before there is a table. Imports TensorFlow."""
    part(_Installed)
    for patch in _all(_EARLY):
        patch.install()


def uninstall() -> None:
    """Takes all patches out."""
    for patch in _all():
        patch.uninstall()


def described() -> list[tuple[str, str]]:
    """Returns the name of each patch, and why it is there."""
    return [(patch.name, patch.why) for patch in _all()]


def _all(modules=_MODULES):
    return [patch for module in modules for patch in importlib.import_module(module).PATCHES]
