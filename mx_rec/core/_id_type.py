"""The types of tensors that may be ids."""

# Ops that hand values on: what made them is further back.
_PASSING = ("ExpandDims", "GatherV2", "Identity", "Reshape", "Squeeze", "StridedSlice", "Transpose", "ConcatV2", "Pack")


def check(who, ids) -> None:
    """ValueError unless `ids`, a dense tensor that `who` looks up, are whole numbers. It names the op that made them,
    and what to add."""
    import tensorflow as tf

    if ids.dtype in (tf.int64, tf.int32):
        return
    maker = _maker_of(ids)
    raise ValueError(
        f"{who}: ids must be int64 or int32, got {ids.dtype.name}, made by '{maker.name}' ({maker.type}); "
        f"{_remedy(ids.dtype, maker)}"
    )


def _maker_of(tensor):
    while tensor.op.type in _PASSING and tensor.op.inputs[0].dtype == tensor.dtype:
        tensor = tensor.op.inputs[0]
    return tensor.op


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
