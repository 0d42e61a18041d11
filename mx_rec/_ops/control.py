"""MxrecSetThreshold and MxrecTimestamp, which scripts run beside the training step."""

from mx_rec._ops import library


def set_threshold(value, table_name, name):
    """Builds the op that gives a table, or all that count, the access threshold `value`, and tells how many."""
    return library.ops().mxrec_set_threshold(value=value, table=table_name, name=name)


def timestamp(any_tensor, name):
    """Builds the op that tells the time of the machine in seconds, anew for each value of an int64 tensor."""
    return library.ops().mxrec_timestamp(any=any_tensor, name=name)
