"""DeepNet: the dense part of the end-to-end model for TensorFlow peers, 26 x 16 -> 400 -> 400 -> 1 with Adam."""

import tensorflow as tf

v1 = tf.compat.v1
LAYERS = (400, 400, 1)


def logits(inputs):
    """[examples, 1]. The first call makes the weights, later ones share them; they start the same in every process."""
    hidden = inputs
    with v1.variable_scope("net", reuse=v1.AUTO_REUSE, use_resource=True):
        for number, units in enumerate(LAYERS):
            weights = v1.get_variable(
                f"weights{number}", [hidden.shape[1], units], initializer=v1.glorot_uniform_initializer(seed=number)
            )
            bias = v1.get_variable(f"bias{number}", [units], initializer=v1.zeros_initializer())
            hidden = tf.matmul(hidden, weights) + bias
            if number + 1 < len(LAYERS):
                hidden = tf.nn.relu(hidden)
    return hidden


class DeepNet:
    """The net over `inputs` [examples, tables * dim]: an op that trains it, and the gradient for the tables.
    `average` makes of (gradient, variable) pairs those of several ranks."""

    def __init__(self, inputs, labels, average=lambda pairs: pairs):
        self.inputs = inputs
        loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels[:, tf.newaxis], logits=logits(inputs))
        variables = v1.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES, scope="net/")
        self.input_gradient, *gradients = tf.gradients(tf.reduce_mean(loss), [inputs, *variables])
        pairs = average(list(zip(gradients, variables)))
        self.train_dense = v1.train.AdamOptimizer(1e-3).apply_gradients(pairs)
