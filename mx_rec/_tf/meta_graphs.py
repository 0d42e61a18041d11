"""MetaGraphs, and the SavedModels that hold them: what TensorFlow does not tell of their making."""

import tensorflow as tf
from tensorflow.python.framework import meta_graph

MAKERS = meta_graph  # the module of the functions that make and import MetaGraphs, for patches
# The base of all builders of SavedModels, for patches.
SavedModelBuilder = tf.compat.v1.saved_model.Builder.__base__
# Methods of theirs: the one that notes what a model needs besides its variables, and the one that adds a graph.
ADD_COLLECTIONS = "_add_collections"
ADD_META_GRAPH = "_tag_and_add_meta_graph"


def read(path: str):
    """The MetaGraph in a file, binary or text."""
    return meta_graph.read_meta_graph_file(path)


def directory_of(builder) -> str:
    """Where a builder of SavedModels writes."""
    return tf.compat.as_str(builder._export_dir)
