"""Activation functions of the vendor, as their stock TensorFlow equals."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["gelu"]


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Returns x * P(X <= x) for a standard normal X, in the approximation by tanh that the vendor's hardware uses."""
    return tf.nn.gelu(x, approximate=True)
