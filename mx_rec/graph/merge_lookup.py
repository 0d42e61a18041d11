"""do_merge_lookup, which scripts of the original call before they make gradients."""

from mx_rec import _check, _process

__all__ = ["do_merge_lookup"]


def do_merge_lookup(is_train: bool = True) -> None:
    """Has nothing left to do: one op serves all lookups of a batch, and gradients are summed per key, whether
    `compute_gradients` or `tf.gradients` makes them. EnvironmentError before `init`."""
    _check.boolean("is_train", is_train)
    _process.config()
