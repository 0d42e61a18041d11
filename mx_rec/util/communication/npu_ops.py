"""Vendor operations that ported models call, as their stock TensorFlow equals."""

__all__ = ["dropout"]


def dropout(x, keep_prob, noise_shape=None, seed=None, name=None):
    """Does what `tf.nn.dropout` does, given the probability to keep."""
    import tensorflow as tf

    return tf.compat.v1.nn.dropout(x, rate=1.0 - keep_prob, noise_shape=noise_shape, seed=seed, name=name)
