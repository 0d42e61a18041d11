"""Optimizers of TensorFlow: what they share with classes that are derived from them."""

_STOCK = "tensorflow."


def written(cls, name):
    """The method of that name that a script has written for its optimizer; None if TensorFlow's is in force."""
    for kind in cls.__mro__:
        if name in vars(kind):
            return None if kind.__module__.startswith(_STOCK) else vars(kind)[name]
    return None


def prepare(optimizer) -> None:
    """Makes the tensors of an optimizer's numbers, before it updates anything."""
    optimizer._prepare()


def apply_sparse(optimizer, slices, variable):
    """The op by which an optimizer updates rows of a variable by their gradients, each row once: by the method that the
    script has written, or by TensorFlow's."""
    if written(type(optimizer), "_apply_sparse_duplicate_indices") is not None:
        return optimizer._apply_sparse_duplicate_indices(slices, variable)
    if written(type(optimizer), "_apply_sparse") is not None:
        return optimizer._apply_sparse(slices, variable)
    return optimizer._resource_apply_sparse_duplicate_indices(slices.values, variable, slices.indices)


def add_zeros(optimizer, variable, slot: str) -> None:
    """Adds a slot of zeros to a variable, unless the optimizer has made it before."""
    optimizer._zeros_slot(variable, slot, f"{optimizer.get_name()}/{slot}")
