"""The configuration of sessions."""

from __future__ import annotations

import tensorflow as tf

from mx_rec import _check

__all__ = ["npu_config_proto"]

_CUSTOM_OPTIMIZER = "NpuOptimizer"  # a pass of the vendor over graphs; TensorFlow has no such pass


def npu_config_proto(config_proto: tf.compat.v1.ConfigProto | None = None) -> tf.compat.v1.ConfigProto:
    """Returns a tf.compat.v1.ConfigProto for sessions: a copy of the given one, without the vendor's pass over graphs
    if it has that; a default one without."""
    config = tf.compat.v1.ConfigProto()
    if config_proto is not None:
        _check.instance("config_proto", config_proto, tf.compat.v1.ConfigProto, "a tf.compat.v1.ConfigProto")
        config.CopyFrom(config_proto)
    passes = config.graph_options.rewrite_options.custom_optimizers
    for number in reversed(range(len(passes))):
        if passes[number].name == _CUSTOM_OPTIMIZER:
            del passes[number]
    return config
