"""Sizes in static shapes, as ints: after `tf.compat.v1.disable_v2_behavior()` TensorFlow gives them as objects of a
class `Dimension`, which are neither ints nor None."""

from typing import Optional


def count(shape) -> Optional[int]:
    """Returns the number of elements of a tf.TensorShape; None if it is not known."""
    return shape.num_elements()


def size(shape, axis: int) -> Optional[int]:
    """Returns the size of an axis of a tf.TensorShape; None if it is not known. The shape's rank must be known."""
    return shape.as_list()[axis]
