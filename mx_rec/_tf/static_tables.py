"""Static tables: stateful by TensorFlow's book, but filled once, before training, and always the same from then on."""

_TABLES = ("HashTable", "HashTableV2")
_READS = ("LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2")


def is_one(op) -> bool:
    return op.type in _TABLES


def handle_of(table):
    """The tensor by which ops read a table."""
    return table.outputs[0]


def is_read(op) -> bool:
    """Whether an op reads a table, static or not."""
    return op.type in _READS


def reads_one(op) -> bool:
    """Whether the table that an op reads is static."""
    return is_one(op.inputs[0].op)
