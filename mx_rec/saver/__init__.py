"""Checkpoints: what `tf.compat.v1.train.Saver` does when a graph has tables."""
