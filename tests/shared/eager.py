"""`eager_mode()`: eager execution inside a block, in a process of graphs. TensorFlow has no public name for it."""

from tensorflow.python.eager.context import eager_mode as eager_mode
