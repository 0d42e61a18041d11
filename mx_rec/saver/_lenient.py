"""lenient: which differences between a checkpoint and a model a restore shall overlook.

    with lenient(unused_tables=True):
        saver.restore(session, "D/model-7")

By default a restore is strict: what was saved comes back whole, or nothing changes.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

from mx_rec import _check
from mx_rec._process import Scoped, part

__all__ = ["lenient"]


@dataclasses.dataclass(frozen=True)
class Allowed:
    """What is overlooked, with a warning."""

    missing_tables: bool = False
    unused_tables: bool = False
    other_optimizer: bool = False
    other_dense_part: bool = False


class _Allowed(Scoped):
    default = Allowed()


def allowed() -> Allowed:
    """What restores of this thread may overlook now."""
    return part(_Allowed).get()


@contextlib.contextmanager
def lenient(
    missing_tables: bool = False,
    unused_tables: bool = False,
    other_optimizer: bool = False,
    other_dense_part: bool = False,
) -> Iterator[None]:
    """Restores inside it overlook what is True, with a warning; also those of a MonitoredTrainingSession or Estimator.

    Args:
        missing_tables: tables of the model that the checkpoint lacks stay as they are.
        unused_tables: tables of the checkpoint that the model lacks are left out.
        other_optimizer: optimizer slots that the checkpoint lacks start from their initial values.
        other_dense_part: the tables are of another save than the dense variables beside them.
    """
    for label, value in (
        ("missing_tables", missing_tables),
        ("unused_tables", unused_tables),
        ("other_optimizer", other_optimizer),
        ("other_dense_part", other_dense_part),
    ):
        _check.boolean(label, value)
    with part(_Allowed).set(Allowed(missing_tables, unused_tables, other_optimizer, other_dense_part)):
        yield
