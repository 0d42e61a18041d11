"""tf.contrib, as far as scripts for recommendation models use it: layers and lookup.

TensorFlow 2 has no such package. What lives on elsewhere is handed on; the rest is written here from its documentation.
"""

import sys
import types


def install():
    """The package tensorflow.contrib, which can be imported from now on."""
    from mx_rec._tf import contrib_lookup

    parts = {"layers": _layers(), "lookup": contrib_lookup.contents()}
    contrib = _module(
        "tensorflow.contrib",
        {name: _module(f"tensorflow.contrib.{name}", contents) for name, contents in parts.items()},
    )
    contrib.__path__ = []
    return contrib


class _Part(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        known = ", ".join(sorted(key for key in vars(self) if not key.startswith("_")))
        raise AttributeError(
            f"TensorFlow 2 has no {self.__name__}.{name}, and `mx_rec run` brings back only {known}; use what "
            "TensorFlow 2 has in its place"
        )


def _module(name, contents):
    module = _Part(name, f"What `mx_rec run` brings back of {name}.")
    vars(module).update(contents)
    sys.modules[name] = module
    return module


def _layers():
    import tensorflow.compat.v1 as v1

    def l1_regularizer(scale, scope=None):
        """A function weights -> scale * sum of |weights|."""
        return _regularizer("l1_regularizer", scale, scope, lambda weights: v1.reduce_sum(v1.abs(weights)))

    def l2_regularizer(scale, scope=None):
        """A function weights -> scale * half the sum of squares."""
        return _regularizer("l2_regularizer", scale, scope, v1.nn.l2_loss)

    def l1_l2_regularizer(scale_l1=1.0, scale_l2=1.0, scope=None):
        return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope or "l1_l2_regularizer")

    def sum_regularizer(regularizer_list, scope=None):
        """A function weights -> the sum of what the regularizers give, or None."""

        def regularize(weights):
            with v1.name_scope(scope, "sum_regularizer", [weights]):
                losses = [one(weights) for one in regularizer_list if one is not None]
                losses = [loss for loss in losses if loss is not None]
                return v1.add_n(losses) if losses else None

        return regularize

    def apply_regularization(regularizer, weights_list=None):
        """The regularizer's loss of all weights, by default those of the collection WEIGHTS; also in the collection of
        losses."""
        weights_list = weights_list or v1.get_collection(v1.GraphKeys.WEIGHTS)
        if not weights_list:
            raise ValueError("apply_regularization: `weights_list` must hold at least one variable, got none")
        losses = [loss for loss in map(regularizer, weights_list) if loss is not None]
        total = v1.add_n(losses) if losses else v1.constant(0.0)
        v1.add_to_collection(v1.GraphKeys.REGULARIZATION_LOSSES, total)
        return total

    def xavier_initializer(uniform=True, seed=None, dtype=v1.float32):
        kind = v1.glorot_uniform_initializer if uniform else v1.glorot_normal_initializer
        return kind(seed=seed, dtype=dtype)

    def variance_scaling_initializer(factor=2.0, mode="FAN_IN", uniform=False, seed=None, dtype=v1.float32):
        distribution = "uniform" if uniform else "truncated_normal"
        return v1.variance_scaling_initializer(factor, mode.lower(), distribution, seed=seed, dtype=dtype)

    def fully_connected(
        inputs,
        num_outputs,
        activation_fn=v1.nn.relu,
        normalizer_fn=None,
        normalizer_params=None,
        weights_initializer=None,
        weights_regularizer=None,
        biases_initializer=v1.zeros_initializer,
        biases_regularizer=None,
        reuse=None,
        variables_collections=None,
        outputs_collections=None,
        trainable=True,
        scope=None,
    ):
        """activation(inputs @ weights + biases) along the last axis, with the variables `weights` and `biases` in
        `scope`. A `normalizer_fn` stands in the place of the biases."""
        with v1.variable_scope(scope, "fully_connected", [inputs], reuse=reuse):
            inputs = v1.convert_to_tensor(inputs)
            options = {"dtype": inputs.dtype, "trainable": trainable}
            weights = v1.get_variable(
                "weights",
                [v1.dimension_value(inputs.shape[-1]), num_outputs],
                initializer=weights_initializer or xavier_initializer(),
                regularizer=weights_regularizer,
                collections=_collections(variables_collections, "weights"),
                **options,
            )
            outputs = v1.tensordot(inputs, weights, [[-1], [0]])
            outputs.set_shape([*inputs.shape[:-1], num_outputs])
            if normalizer_fn is not None:
                outputs = normalizer_fn(outputs, **(normalizer_params or {}))
            elif biases_initializer is not None:
                biases = v1.get_variable(
                    "biases",
                    [num_outputs],
                    initializer=biases_initializer,
                    regularizer=biases_regularizer,
                    collections=_collections(variables_collections, "biases"),
                    **options,
                )
                outputs = v1.nn.bias_add(outputs, biases)
            if activation_fn is not None:
                outputs = activation_fn(outputs)
            v1.add_to_collections(outputs_collections or [], outputs)
            return outputs

    def _regularizer(name, scale, scope, loss):
        if not isinstance(scale, (int, float)) or isinstance(scale, bool) or scale < 0:
            raise ValueError(f"{name}: `scale` must be a number from 0, got {scale!r}")

        def regularize(weights):
            if scale == 0:
                return None
            with v1.name_scope(scope, name, [weights]) as full_name:
                return v1.multiply(v1.constant(scale, weights.dtype.base_dtype), loss(weights), name=full_name)

        return regularize

    def _collections(given, kind):
        own = given.get(kind) if isinstance(given, dict) else given
        return [v1.GraphKeys.GLOBAL_VARIABLES, *(own or [])]

    return {
        one.__name__: one
        for one in (
            apply_regularization,
            fully_connected,
            l1_l2_regularizer,
            l1_regularizer,
            l2_regularizer,
            sum_regularizer,
            variance_scaling_initializer,
            xavier_initializer,
        )
    }
