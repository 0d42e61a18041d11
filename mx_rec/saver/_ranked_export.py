"""Exports by several ranks: one model, in rank 0's directory, to whose tables every rank adds its share.

All ranks export together, as they save together. What TensorFlow's exporters write on the other ranks goes into a
directory of their own, which is then removed; they return when the model is complete, and give rank 0's path.
"""

import shutil
import tempfile

from mx_rec import _ranks
from mx_rec._process import Part, Scoped, part
from mx_rec._tables import graphs
from mx_rec._tf import loaded_estimator, meta_graphs
from mx_rec._tf.notes import Note
from mx_rec._tf.patch import Patch

# Of a builder: the path that the script gave, and where it writes instead.
_GIVEN, _ASIDE = Note("given"), Note("aside")


class _IsAside(Scoped):
    """Whether an exporter that knows of builders' directories has its own on this rank already."""

    default = False


class _Exports(Part):
    """How many models with tables this process has exported."""

    def __init__(self):
        self.count = 0


def note_tables() -> None:
    """Notes that a model with tables is being exported."""
    part(_Exports).count += 1


def _is_other():
    return _ranks.are_several() and _ranks.rank() > 0


def _make_builder(self, export_dir, *arguments, **keywords):
    if not _is_other() or part(_IsAside).get() or not graphs.state().tables:
        return PATCHES[0].stock(self, export_dir, *arguments, **keywords)
    aside = tempfile.mkdtemp(prefix="mx_rec-export-")
    _GIVEN.set(self, export_dir)
    _ASIDE.set(self, aside)
    return PATCHES[0].stock(self, f"{aside}/model", *arguments, **keywords)


def _save_builder(self, *arguments, **keywords):
    written = PATCHES[1].stock(self, *arguments, **keywords)
    if part(_IsAside).get() or not graphs.state().tables:
        return written
    aside = _ASIDE.of(self)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)
    return _ranks.together("export/complete", lambda: written)[0]


def _export_estimator(self, export_dir_base, *arguments, **keywords):
    stock, before = PATCHES[2].stock, part(_Exports).count
    aside = tempfile.mkdtemp(prefix="mx_rec-export-") if _is_other() else None
    try:
        with part(_IsAside).set(True):
            written = stock(self, aside or export_dir_base, *arguments, **keywords)
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
    if part(_Exports).count == before:
        return written
    return _ranks.together("export/complete", lambda: written)[0]


def _among_ranks(find):
    return lambda: find() if _ranks.are_several() else None


PATCHES = [
    Patch(
        _among_ranks(lambda: meta_graphs.SavedModelBuilder), "__init__", _make_builder, "several ranks export one model"
    ),
    Patch(_among_ranks(lambda: meta_graphs.SavedModelBuilder), "save", _save_builder, "the same: when it is complete"),
    Patch(
        _among_ranks(loaded_estimator.estimator_class),
        loaded_estimator.EXPORT,
        _export_estimator,
        "the same, in a directory that Estimators rename",
    ),
]
