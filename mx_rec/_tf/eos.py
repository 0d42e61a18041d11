"""dataset.eos_map: the end of data where scripts announce it."""

from tensorflow.python.data.ops import dataset_ops

from mx_rec import _check
from mx_rec._tf.patch import Patch
from mx_rec.constants.constants import EVAL_CHANNEL_ID, TRAIN_CHANNEL_ID


def _eos_map(self, librec=None, channel_id=TRAIN_CHANNEL_ID, max_train_steps=-1, max_eval_steps=-1):
    """Returns the same dataset, ending after `max_train_steps` elements on the channel of training (0), or after
    `max_eval_steps` on that of evaluation (1); -1: where it ends by itself. `librec`, the vendor's op module, has no
    effect."""
    del librec
    _check.choice("channel_id", channel_id, (TRAIN_CHANNEL_ID, EVAL_CHANNEL_ID))
    limit = max_train_steps if channel_id == TRAIN_CHANNEL_ID else max_eval_steps
    _check.integer("max_train_steps" if channel_id == TRAIN_CHANNEL_ID else "max_eval_steps", limit, -1, 2**31 - 1)
    return self if limit == -1 else self.take(limit)


PATCHES = [Patch(lambda: dataset_ops.DatasetV2, "eos_map", _eos_map, "scripts of the original call it")]
