"""Tables as TensorFlow's graphs see them."""
