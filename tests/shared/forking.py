"""Children of a process that has imported TensorFlow, but not used it, which saves them the time for that."""

import gc
import importlib

import tensorflow as tf

from mx_rec._ops import library

v1 = tf.compat.v1
# A child lives for a few steps: what optimizes its graph would take longer than it saves.
QUICK_START = v1.ConfigProto(inter_op_parallelism_threads=2, intra_op_parallelism_threads=1)
QUICK_START.graph_options.rewrite_options.disable_meta_optimizer = True
_LATER = ("mx_rec._lowering.lookups", "mx_rec._ops.collectives", "mx_rec._ops.ranked", "mx_rec.saver.saver")


def warm_up() -> None:
    """Has this process do what each child would spend most of its life on. No session is run, so TensorFlow starts no
    threads, which a child would not inherit."""
    library.ops()
    for name in _LATER:
        importlib.import_module(name)
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", initializer=v1.ones_initializer(), shape=[4])
        v1.train.AdamOptimizer(0.01).minimize(tf.reduce_sum(weight), v1.train.get_or_create_global_step())
        v1.train.Saver()
    gc.collect()
    gc.freeze()
    gc.disable()  # it would touch, and so copy, all that a child shares with this process
