"""Which checkpoint a path means, and reading it beside processes that save. Without TensorFlow."""
