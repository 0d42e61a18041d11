"""Whole scripts: the examples, those of the original and of TensorFlow 1, and what runs them."""
