"""A checkpoint of so few bytes that every one can be changed, and the model that it is of."""

import numpy as np
import tensorflow as tf

from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import sparse_lookup
from mx_rec.optimizers import lazy_adam
from tests.shared import model

v1 = tf.compat.v1
DIM, KEYS = 2, np.arange(8, dtype=np.int64) - 3


class Trained:
    """Table `a`, which counts its keys and refuses the rarer ones, table `b`, which does not, and a dense variable."""

    def __init__(self):
        random = np.random.RandomState(0)
        tables = {name: model.table(name, dim=DIM, rows=100) for name in "ab"}
        specs = {"a": FeatureSpec("a", access_threshold=8, eviction_threshold=50, faae_coefficient=3)}
        specs["b"] = FeatureSpec("b")
        data = {name: random.choice(KEYS[:5], (10, 4)) for name in tables}
        data["time"] = np.arange(10, dtype=np.int64) + 1000
        insert = get_asc_insert_func([*specs.values(), FeatureSpec("time", is_timestamp=True)])
        dataset = tf.data.Dataset.from_tensor_slices(data).map(insert)
        batch = v1.data.make_one_shot_iterator(dataset).get_next()
        self.tables = tables
        self.weight = v1.get_variable("w", initializer=np.ones(DIM, np.float32))
        embedded = sum(sparse_lookup(tables[name], specs[name], batch=batch) for name in tables)
        variables = [self.weight, *(table.variable for table in tables.values())]
        gradients = tf.gradients(tf.reduce_sum(tf.square(embedded * self.weight - 1.0)), variables)
        self.step = tf.group(
            v1.train.GradientDescentOptimizer(0.01).apply_gradients([(gradients[0], self.weight)]),
            lazy_adam.create_hash_optimizer(0.1).apply_gradients(list(zip(gradients[1:], variables[1:]))),
        )
        self.dense = [v for v in v1.global_variables() if v.shape.num_elements() != 0]
        start_asc_pipeline()
        self.saver = v1.train.Saver()
        self.session = v1.Session()
        self.session.run(v1.global_variables_initializer())

    def state(self):
        """All that a checkpoint holds, as bytes that can be compared."""
        found = [np.asarray(value).tobytes() for value in self.session.run(self.dense)]
        for table in self.tables.values():
            found += [array.tobytes() for array in model.dump(table)]
            found.append(table.native.tracking)
            if table.native.tracking is not None:
                found += [array.tobytes() for array in table.native.history(KEYS)]
        return found

    def save(self, directory):
        return self.saver.save(self.session, str(directory / "model"), global_step=1)


def columns(table):
    usual = ["key", "embedding", "LazyAdam_momentum", "LazyAdam_velocity"]
    return usual + (["table_2_threshold", "history_record", "last_step"] if table == "a" else [])


FILES = [f"sparse-model-1/{t}/{c}/slice.{kind}" for t in "ab" for c in columns(t) for kind in ("data", "attribute")]
DENSE = ["model-1.index", "model-1.data-00000-of-00001"]
