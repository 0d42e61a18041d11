"""Checkpoints: what TensorFlow's Saver, its hook and its warm start keep to themselves."""

import tensorflow as tf
from tensorflow.python.checkpoint.checkpoint_management import checkpoint_exists_internal
from tensorflow.python.training import warm_starting_util
from tensorflow.python.training.saving.saveable_object import SaveableObject, SaveSpec

WARM_STARTING = warm_starting_util  # the module in which Estimators look for `warm_start`, for patches


def exists(prefix: str) -> bool:
    """Whether there is a checkpoint of this name, in TensorFlow's old format or the new one."""
    return checkpoint_exists_internal(prefix)


class StandIn(SaveableObject):
    """Stands in for variables where there are none: TensorFlow refuses to write a checkpoint of nothing. The name is
    that of a number in the file, which a restore ignores."""

    def __init__(self, name: str):
        tensor = tf.constant(1, name=name)
        super().__init__(tensor, [SaveSpec(tensor, "", name)], name)

    def restore(self, restored_tensors, restored_shapes):
        del restored_tensors, restored_shapes
        return tf.no_op()


# ---- Saver.

BUILD = "_build"  # its method that makes its ops, for patches


def saveables() -> list[object]:
    """What a Saver covers in the default graph that is given no `var_list`."""
    saveable_objects = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS)
    return tf.compat.v1.global_variables() + saveable_objects


def is_built(saver) -> bool:
    """Whether a Saver has its ops."""
    return saver._is_built


def variables_of(saver):
    """The `var_list` that a Saver was given; None: none."""
    return saver._var_list


def give_variables(saver, variables) -> None:
    """Sets the `var_list` of a Saver that is not built."""
    saver._var_list = variables


def prefix_of(saver, save_path: str, step: int) -> str:
    """The name of the checkpoint that a Saver writes at a step."""
    return f"{save_path}-{step:08d}" if saver._pad_step_number else f"{save_path}-{step}"


def names_relative_paths(saver) -> bool:
    """Whether a Saver's list of checkpoints names them relative to its directory."""
    return saver._save_relative_paths


def known_to(saver) -> list[str]:
    """The checkpoints that a Saver keeps, and those that it is about to remove."""
    return [path for path, _ in saver._last_checkpoints + saver._checkpoints_to_be_deleted]


def record(saver, path: str) -> None:
    """Adds a checkpoint to those that a Saver keeps, and moves those beyond `max_to_keep` to those that it removes."""
    saver._RecordLastCheckpoint(path)


def remove_old(saver, meta_graph_suffix: str) -> None:
    """Removes the dense files of those that a Saver is about to remove."""
    saver._MaybeDeleteOldCheckpoints(meta_graph_suffix=meta_graph_suffix)


def forget_old(saver) -> None:
    """Forgets those that a Saver is about to remove, without removing them."""
    saver._checkpoints_to_be_deleted.clear()


# ---- CheckpointSaverHook.

HOOK_SAVE = "_save"  # its method that saves, for patches


def step_tensor_of(hook):
    """The number of the step at which a hook saves."""
    return hook._global_step_tensor


def has_listeners(hook) -> bool:
    """Whether somebody looks at what a hook saves."""
    return bool(hook._listeners)


def has_saved_at(hook, step: int) -> bool:
    """Whether a hook's last save was at this step."""
    return step == hook._timer.last_triggered_step()


def seconds_of(hook):
    """The seconds between a hook's saves; None if it counts steps."""
    return hook._timer._every_secs


def throttle_of(listener):
    """The seconds between the evaluations of train_and_evaluate, of its listener."""
    return listener._eval_throttle_secs


def set_timer(hook, timer) -> None:
    """Gives a hook or a listener another timer."""
    hook._timer = timer


def save_at(hook, session, step: int) -> bool:
    """Lets a hook save. Whether a listener asks for the end of the training."""
    hook._timer.update_last_triggered_step(step)
    return hook._save(session, step)


# ---- Warm start.


def variables_by_name(selector) -> dict[str, list]:
    """The variables of the default graph that a warm start takes for `vars_to_warm_start`, those that are parts of one
    together."""
    return warm_starting_util._get_grouped_variables(selector)
