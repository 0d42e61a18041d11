"""NPUEstimator: tf.estimator.Estimator under the name that ported scripts use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from mx_rec._tf.estimator import estimator
from mx_rec.npu.npu_run_config import NPURunConfig

__all__ = ["NPUEstimator"]


class NPUEstimator(estimator.Estimator):
    """An Estimator. Tables work in any other Estimator just as well.

    Args:
        model_fn, model_dir, config, params, warm_start_from: as in tf.estimator.Estimator. `config` is an NPURunConfig
            or any RunConfig; `warm_start_from` may name several checkpoints (docs/estimator.md).
        job_start_file: of the vendor's cluster; without effect.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any] | None = None,
        model_dir: str | None = None,
        config: Any = None,
        params: Any = None,
        job_start_file: str = "",
        warm_start_from: Any = None,
    ) -> None:
        del job_start_file
        super().__init__(
            model_fn=model_fn, model_dir=model_dir, config=config, params=params, warm_start_from=warm_start_from
        )

    def _assert_members_are_not_overridden(self):
        pass  # TensorFlow forbids what `train` below does, so that nobody relies on it

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> NPUEstimator:
        """As in tf.estimator.Estimator. ValueError if `steps` or `max_steps` is no multiple of the config's
        `iterations_per_loop`."""
        if isinstance(self.config, NPURunConfig):
            loop = self.config.iterations_per_loop
            for name, value in (("steps", steps), ("max_steps", max_steps)):
                if value is not None and value % loop:
                    raise ValueError(
                        f"`{name}` must be a multiple of iterations_per_loop={loop}, got {value}; pass "
                        f"{value - value % loop + loop}, or set NPURunConfig(iterations_per_loop=1)"
                    )
        return super().train(input_fn, hooks, steps, max_steps, saving_listeners)
