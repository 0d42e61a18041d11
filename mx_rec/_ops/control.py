"""MxrecSetThreshold and MxrecTimestamp, which scripts run beside the training step (native/tf/control.cc)."""

from mx_rec._ops import library


def set_threshold(value, table_name, name):
    """How many tables got the access threshold `value`; without a name, all that count their keys get it."""
    return library.ops().mxrec_set_threshold(value=value, table=table_name, name=name)


def timestamp(any_tensor, name):
    """The time of the machine in seconds, read anew for each value of an int64 tensor."""
    return library.ops().mxrec_timestamp(any=any_tensor, name=name)
