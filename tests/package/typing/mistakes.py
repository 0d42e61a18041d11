"""What a type checker must find: each of these lines has the error that its comment names."""

import tensorflow as tf

import mx_rec
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.util.initialize import init

init(max_step=100)  # call-arg
init(use_dynamic="yes")  # arg-type
table = create_table(tf.int64, 16, 7, tf.zeros)  # arg-type
create_table(tf.int64, 16, "t", tf.zeros, device_vocabulary=100)  # arg-type
create_table(tf.int64, 16, "t", 0.5)  # arg-type
sparse_lookup("table", FeatureSpec("a"))  # call-overload
sparse_lookup(table, FeatureSpec("a"), combiner="max")  # call-overload
FeatureSpec("a", access_threshold="3")  # arg-type
get_asc_insert_func(tgt_key_specs="user")  # arg-type
table.read([1])[0].no_such_method()  # attr-defined
mx_rec.reset_tables(1)  # arg-type
