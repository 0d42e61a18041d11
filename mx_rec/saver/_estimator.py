"""What Estimators do otherwise when their models have tables."""

import tensorflow as tf

from mx_rec._log import logger
from mx_rec._tables import graphs
from mx_rec._tf import loaded_estimator
from mx_rec._tf.patch import Patch
from mx_rec.saver import _parked


def _train(self, estimator_spec, worker_hooks, hooks, global_step_tensor, saving_listeners):
    graph = tf.compat.v1.get_default_graph()
    tables = graphs.state(graph).tables
    arguments = (hooks, global_step_tensor, saving_listeners)
    if not tables:
        return PATCHES[0].stock(self, estimator_spec, worker_hooks, *arguments)
    if tf.train.latest_checkpoint(self.model_dir) is None:
        _parked.put_aside(tables.values(), graph)
        _begin_anew(tables.values(), self.model_dir)
    with _parked.training(graph, self.model_dir) as hook:
        return PATCHES[0].stock(self, estimator_spec, [*worker_hooks, hook], *arguments)


def _begin_anew(tables, model_dir):
    """Empties tables whose model has no checkpoint: they outlive Estimators, but where dense variables start from their
    initial values, rows of an earlier training in this process have no place."""
    for table in tables:
        if table.size() > 0:
            logger.info(
                "table '%s': training starts anew, as '%s' holds no checkpoint; %d rows of an earlier training go",
                table.table_name,
                model_dir,
                table.size(),
            )
        table.native.clear()


PATCHES = [
    Patch(
        loaded_estimator.estimator_class,
        loaded_estimator.TRAIN,
        _train,
        "rows being trained survive what else is evaluated",
    )
]
