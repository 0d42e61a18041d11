"""tf.contrib.lookup: TensorFlow 2 still has what was in it, but most of it without a public name."""

from tensorflow.python.ops import lookup_ops


def contents() -> dict[str, object]:
    """Returns the classes and functions of the package, by name."""

    class HashTable(lookup_ops.StaticHashTableV1):
        """A table that is filled once, by an initializer."""

        @property
        def init(self):
            return self.initializer

    names = (
        "HasherSpec",
        "FastHashSpec",
        "StrongHashSpec",
        "IdTableWithHashBuckets",
        "KeyValueTensorInitializer",
        "MutableHashTable",
        "TextFileIdTableInitializer",
        "TextFileIndex",
        "TextFileInitializer",
        "TextFileStringTableInitializer",
        "index_table_from_file",
        "index_table_from_tensor",
        "index_to_string_table_from_file",
        "index_to_string_table_from_tensor",
    )
    found = {name: getattr(lookup_ops, name) for name in names}
    return {**found, "HashTable": HashTable, "MutableDenseHashTable": lookup_ops.DenseHashTable}
