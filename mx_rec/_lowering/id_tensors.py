"""Ids as scripts give them to lookups, other than by FeatureSpecs: tensors and plain numbers."""

from mx_rec._tf.walking import maker_of


def as_tensor(table_name: str, ids):
    """Returns `ids` as a dense tensor: numbers become a constant. ValueError for what is neither."""
    import tensorflow as tf

    if isinstance(ids, (tf.SparseTensor, tf.RaggedTensor)):
        remedy = "tf.sparse.to_dense(ids)" if isinstance(ids, tf.SparseTensor) else "ids.to_tensor()"
        raise ValueError(
            f"table '{table_name}': `ids` must be dense, got a {type(ids).__name__}; use {remedy}, with a padding "
            "key as the default value"
        )
    if tf.is_tensor(ids):
        return ids
    rule = f"table '{table_name}': `ids` must be a FeatureSpec, a list of FeatureSpecs, a dense Tensor or integers"
    if isinstance(ids, (list, tuple)) and any(map(tf.is_tensor, ids)):
        raise ValueError(f"{rule}, got a {type(ids).__name__} with a Tensor; tf.stack them, or look each of them up")
    array = _array(ids)
    if array is None or array.dtype.kind not in "iu" or not _fits(array):
        kind = "" if array is None or array.dtype == object else f" of {array.dtype}"
        raise ValueError(f"{rule} within int64, got {type(ids).__name__}{kind}; convert or hash them first")
    return tf.constant(array, tf.int64, name="ids")


def _array(ids):
    """Returns `value` as an array; None if it is none, such as lists of different lengths."""
    import numpy as np

    try:
        array = np.asarray(ids)
    except (TypeError, ValueError, NotImplementedError):
        return None
    # NumPy takes lists of nothing for floats.
    return array.astype(np.int64) if array.size == 0 and isinstance(ids, (list, tuple)) else array


def _fits(array):
    return array.size == 0 or int(array.max()) < 2**63


def check(who, ids) -> None:
    """Raises ValueError unless `ids`, a dense tensor that `who` looks up, are whole numbers. It names the op that made
    them, and what to add."""
    import tensorflow as tf

    if ids.dtype in (tf.int64, tf.int32):
        return
    maker = maker_of(ids)
    raise ValueError(
        f"{who}: ids must be int64 or int32, got {ids.dtype.name}, made by '{maker.name}' ({maker.type}); "
        f"{_remedy(ids.dtype, maker)}"
    )


def _remedy(dtype, maker):
    import tensorflow as tf

    if maker.type == "StringToNumber":
        return (
            "write tf.strings.to_number(..., tf.int64): by default it gives float32, which a later "
            "tf.cast(ids, tf.int64) makes whole numbers again, but exact only up to 2**24"
        )
    if dtype == tf.string:
        return "hash them first: tf.strings.to_hash_bucket_fast(ids, 2**62)"
    if dtype.is_integer or dtype.is_bool:
        return "add tf.cast(ids, tf.int64)"
    return "add tf.cast(ids, tf.int64), or read them as whole numbers where they come from"
