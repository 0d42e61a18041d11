"""The border to TensorFlow: patches, private names, walking and editing of graphs."""
