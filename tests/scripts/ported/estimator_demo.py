"""An Estimator script in the manner of the demos: train, train_and_evaluate, predict, with hooks of graph modification.

python estimator_demo.py MODE...: spec (FeatureSpecs), modify (graph modification), slice (with slicers before it).
"""

import sys

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.core.feature_process import EvictHook
from mx_rec.graph import GraphModifierHook, LookupSubgraphSlicerHook, OrphanLookupKeySlicerHook
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable
from tf_adapter import NPUEstimator, NPURunConfig, npu_hooks_append

tf.compat.v1.disable_eager_execution()
DIM, STEPS = 8, 10


class Demo:
    def __init__(self, mode):
        self.mode = mode
        self.is_modified = mode != "spec"
        self.specs = [FeatureSpec("user", table_name="user_table"), FeatureSpec("item", table_name="item_table")]

    def hooks(self, *others):
        hooks = [GraphModifierHook(modify_graph=self.is_modified)]
        if self.mode == "slice":
            slicers = [LookupSubgraphSlicerHook(["StringToHashBucketFast"]), OrphanLookupKeySlicerHook()]
            hooks = slicers + hooks
        return npu_hooks_append(hooks_list=[*hooks, *others])

    def input_fn(self, is_training):
        random = np.random.RandomState(int(is_training))
        item = random.randint(0, 50, [640])
        data = {
            "user": random.randint(0, 90, [640]),
            "item": item,
            "word": np.array([f"item {number}" for number in item]),
            "label": (item % 2).astype(np.float32),
        }
        dataset = tf.data.Dataset.from_tensor_slices(data).batch(32, drop_remainder=True)
        if is_training:
            dataset = dataset.repeat()
        if not self.is_modified:
            dataset = dataset.map(get_asc_insert_func(self.specs, is_training=is_training))
        return dataset.prefetch(10)

    def model_fn(self, features, mode, params):
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        tables = [
            create_table(tf.int64, tf.TensorShape([DIM]), name, tf.compat.v1.truncated_normal_initializer(), 1000)
            for name in ("user_table", "item_table")
        ]
        options = {"is_train": is_training, "modify_graph": self.is_modified, "batch": features}
        if self.is_modified:
            words = tf.strings.to_hash_bucket_fast(features["word"], 1000)
            keys = [(tables[0], features["user"]), (tables[1], words), (tables[1], words + 2000)]
            if self.mode == "slice":
                keys.append((tables[0], tf.constant([7], tf.int64)))
        else:
            keys = list(zip(tables, self.specs))
        embeddings = [sparse_lookup(table, ids, name=f"lookup_{n}", **options) for n, (table, ids) in enumerate(keys)]
        wide = sum(tf.reduce_sum(one, axis=-1) for one in embeddings)
        weight = tf.compat.v1.get_variable("weight", [1], initializer=tf.compat.v1.ones_initializer())
        logits = wide * weight
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"probability": tf.sigmoid(logits)})
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=features["label"], logits=logits)
        loss = tf.reduce_mean(losses)
        if mode == tf.estimator.ModeKeys.EVAL:
            auc = tf.compat.v1.metrics.auc(features["label"], tf.sigmoid(logits))
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"auc": auc})
        dense, sparse = get_dense_and_sparse_variable()
        step = tf.compat.v1.train.get_global_step()
        gradients = tf.gradients(loss, dense + sparse)
        train_dense = tf.compat.v1.train.AdamOptimizer(params["rate"]).apply_gradients(
            zip(gradients[: len(dense)], dense), global_step=step
        )
        train_sparse = create_hash_optimizer(params["rate"]).apply_gradients(zip(gradients[len(dense) :], sparse))
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.group(train_dense, train_sparse))

    def run(self):
        init(max_steps=4 * STEPS, train_steps=STEPS, eval_steps=5, save_steps=STEPS)
        config = NPURunConfig(model_dir=f"model-{self.mode}", save_checkpoints_steps=STEPS, keep_checkpoint_max=3,
                              iterations_per_loop=1, precision_mode="allow_mix_precision")  # fmt: skip
        estimator = NPUEstimator(model_fn=self.model_fn, config=config, params={"rate": 0.05})
        evict = EvictHook(evict_enable=True, evict_step_interval=100)
        estimator.train(lambda: self.input_fn(True), hooks=self.hooks(evict), max_steps=2 * STEPS)
        train_spec = tf.estimator.TrainSpec(lambda: self.input_fn(True), max_steps=4 * STEPS, hooks=self.hooks())
        eval_spec = tf.estimator.EvalSpec(
            lambda: self.input_fn(False), steps=5, hooks=self.hooks(), start_delay_secs=0, throttle_secs=0
        )
        metrics, _ = tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
        assert metrics["global_step"] == 4 * STEPS and metrics["auc"] > 0.5, metrics
        answers = list(estimator.predict(lambda: self.input_fn(False), hooks=self.hooks()))
        # Modified data end after eval_steps batches.
        assert len(answers) == (5 * 32 if self.is_modified else 640)
        assert all(0 <= one["probability"] <= 1 for one in answers)
        # What serving feeds are plain tensors, also with FeatureSpecs.
        inputs = {
            name: tf.TensorSpec([None], tf.string if name == "word" else tf.int64, name)
            for name in ("user", "item", "word")
        }

        def serving_input():
            fed = {name: tf.compat.v1.placeholder(spec.dtype, spec.shape, name) for name, spec in inputs.items()}
            return tf.estimator.export.ServingInputReceiver(dict(fed), fed)

        estimator.export_saved_model(f"exported-{self.mode}", serving_input)
        terminate_config_initializer()


for mode in sys.argv[1:]:
    Demo(mode).run()
    print(mode, "done", flush=True)
