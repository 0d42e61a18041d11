"""Activation functions of the vendor, as their stock TensorFlow equals."""

import tensorflow as tf

__all__ = ["gelu"]


def gelu(x):
    """Returns x * P(X <= x) for a standard normal X, in the approximation by tanh that the vendor's hardware uses."""
    return tf.nn.gelu(x, approximate=True)
