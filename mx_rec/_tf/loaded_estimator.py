"""Estimators for patches, which must not import them: `estimator.py` does."""

import sys
from typing import Optional

EXPORT = "_export_all_saved_models"  # its method that all exports go through
TRAIN = "_train_with_estimator_spec"  # its method that trains the model which model_fn has made


def estimator_class() -> Optional[type]:
    """The class, if somebody has imported it."""
    module = sys.modules.get("tensorflow_estimator.python.estimator.estimator")
    return None if module is None else module.Estimator


def evaluation_listener():
    """The class of the listener by which train_and_evaluate evaluates what was saved, if somebody has imported it."""
    module = sys.modules.get("tensorflow_estimator.python.estimator.training")
    return None if module is None else module._NewCheckpointListenerForEvaluate
