"""TensorFlow 1 in TensorFlow 2."""

import tensorflow as tf

__all__ = ["enable_v1"]


def enable_v1() -> None:
    """Makes TensorFlow behave as version 1 does: graphs and sessions, as `tf.compat.v1.disable_v2_behavior()`."""
    tf.compat.v1.disable_v2_behavior()
