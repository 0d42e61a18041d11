"""Attributes of ops that stand in a graph already. They can change until a session has run the op."""


def set_attributes(op, **values) -> None:
    """Sets attributes that are ints, bools or lists of ints."""
    import tensorflow as tf

    proto = tf.compat.v1.AttrValue
    for name, value in values.items():
        if isinstance(value, bool):
            attribute = proto(b=value)
        elif isinstance(value, int):
            attribute = proto(i=value)
        else:
            attribute = proto(list=proto.ListValue(i=value))
        op._set_attr(name, attribute)


def set_entry(op, name, number, value) -> None:
    """Changes one entry of an attribute that is a list of ints."""
    values = list(op.get_attr(name))
    if values[number] != value:
        values[number] = value
        set_attributes(op, **{name: values})


def set_text(op, name, text) -> None:
    """Sets an attribute that is a string."""
    import tensorflow as tf

    op._set_attr(name, tf.compat.v1.AttrValue(s=text.encode()))
