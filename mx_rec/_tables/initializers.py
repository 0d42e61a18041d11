"""TensorFlow's initializers in the form that the core knows: the first value of a row follows from its key."""

import inspect
import math

import numpy as np

from mx_rec._native.table_config import InitializerSpec

# Rows sampled from an initializer that the core does not know; keys share them by hash. 65,536 rows are more distinct
# starting points than a random initializer needs, and at most 16 MiB.
_POOL_ROWS = 65536
_POOL_FLOATS = 4 * 2**20

# The standard deviation of a unit normal cut at two deviations: TensorFlow divides by it, so that what remains has the
# variance asked for.
_CUT_DEVIATION = 0.87962566103423978


def convert(initializer, table: str, dim: int, rows: int, scale: float) -> InitializerSpec:
    """Returns the core's form of `initializer` for rows of `dim` floats, times `scale`.

    Stock initializers are computed natively. Variance scaling takes its fans from [rows, dim]. Any other callable is
    sampled once into a pool of rows.
    """
    import tensorflow as tf

    if inspect.isclass(initializer):
        initializer = initializer()
    if not callable(initializer):
        raise ValueError(
            f"table '{table}': `emb_initializer` must be a TensorFlow initializer or a callable (shape, dtype) -> "
            f"values, got {initializer!r}"
        )
    settings = initializer.get_config() if _is_stock(initializer) else {}
    seed = settings.get("seed")
    if not isinstance(seed, int):
        seed = tf.compat.v1.get_default_graph().seed or 0
    native = _native(type(initializer).__name__ if _is_stock(initializer) else "", settings, rows, dim)
    if native is not None:
        kind, a, b = native
        return InitializerSpec(kind, a, b, scale, seed)
    return InitializerSpec("pool", scale=scale, seed=seed, pool=_sample(initializer, table, dim, rows, seed))


def _is_stock(initializer):
    module = type(initializer).__module__
    return module.split(".")[0] in ("tensorflow", "keras", "tf_keras") and hasattr(initializer, "get_config")


def _native(name, settings, rows, dim):
    """Returns (kind, a, b) of the core, or None."""
    if name == "Zeros":
        return "constant", 0.0, 0.0
    if name == "Ones":
        return "constant", 1.0, 0.0
    if name == "Constant":
        value = settings["value"]
        return ("constant", float(value), 0.0) if np.ndim(value) == 0 else None
    if name == "RandomUniform":
        high = settings.get("maxval")
        return "uniform", float(settings["minval"]), 1.0 if high is None else float(high)
    if name == "RandomNormal":
        return "normal", float(settings["mean"]), float(settings["stddev"])
    if name == "TruncatedNormal":
        return "truncated_normal", float(settings["mean"]), float(settings["stddev"])
    scaling = _SCALINGS.get(name)
    if name == "VarianceScaling":
        scaling = (settings["scale"], settings["mode"], settings["distribution"])
    return None if scaling is None else _variance_scaling(*scaling, rows, dim)


_SCALINGS = {
    "GlorotUniform": (1.0, "fan_avg", "uniform"),
    "GlorotNormal": (1.0, "fan_avg", "truncated_normal"),
    "HeUniform": (2.0, "fan_in", "uniform"),
    "HeNormal": (2.0, "fan_in", "truncated_normal"),
    "LecunUniform": (1.0, "fan_in", "uniform"),
    "LecunNormal": (1.0, "fan_in", "truncated_normal"),
}


def _variance_scaling(scale, mode, distribution, rows, dim):
    fan = {"fan_in": rows, "fan_out": dim, "fan_avg": (rows + dim) / 2.0}[mode]
    variance = scale / max(1.0, fan)
    if distribution == "uniform":
        limit = math.sqrt(3.0 * variance)
        return "uniform", -limit, limit
    if distribution == "untruncated_normal":
        return "normal", 0.0, math.sqrt(variance)
    return "truncated_normal", 0.0, math.sqrt(variance) / _CUT_DEVIATION


def _sample(initializer, table, dim, rows, seed):
    import tensorflow as tf

    count = max(1, min(_POOL_ROWS, _POOL_FLOATS // dim, rows))
    try:
        with tf.Graph().as_default():
            tf.compat.v1.set_random_seed(seed)
            try:
                value = initializer([count, dim], dtype=tf.float32)
            except TypeError:
                value = initializer([count, dim])
            if tf.is_tensor(value):
                with tf.compat.v1.Session() as session:
                    value = session.run(value)
        pool = np.asarray(value, np.float32)
    except Exception as error:
        raise ValueError(
            f"table '{table}': `emb_initializer` {initializer!r} failed when asked for [{count}, {dim}] values: {error}"
        ) from error
    if pool.shape != (count, dim):
        raise ValueError(
            f"table '{table}': `emb_initializer` {initializer!r} must return the shape asked for, [{count}, {dim}], "
            f"got {list(pool.shape)}"
        )
    return pool
