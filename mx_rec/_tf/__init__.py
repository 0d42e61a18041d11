"""The border to TensorFlow: patches, notes on its objects, its private names, walking and editing of graphs."""
