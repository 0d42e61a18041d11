"""Vendor operations that ported models call, as their stock TensorFlow equals."""

__all__ = ["dropout"]


def dropout(x, keep_prob, noise_shape=None, seed=None, name=None):
    """`tf.nn.dropout` in its keep-probability form."""
    import tensorflow as tf

    return tf.compat.v1.nn.dropout(x, rate=1.0 - keep_prob, noise_shape=noise_shape, seed=seed, name=name)
