"""Vendor operations that ported models call, as their stock TensorFlow equals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["dropout"]


def dropout(
    x: tf.Tensor,
    keep_prob: float | tf.Tensor,
    noise_shape: Sequence[int] | tf.Tensor | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Does what `tf.nn.dropout` does, given the probability to keep."""
    import tensorflow as tf

    return tf.compat.v1.nn.dropout(x, rate=1.0 - keep_prob, noise_shape=noise_shape, seed=seed, name=name)
