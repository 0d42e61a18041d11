"""How a save takes its place, whatever is interrupted, and who may save. Without TensorFlow."""
