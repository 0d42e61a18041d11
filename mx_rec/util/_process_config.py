"""The smaller parts of ConfigInitializer: optimizer, features, eviction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mx_rec import _check
from mx_rec._process import process

if TYPE_CHECKING:
    from mx_rec.core.asc.feature_spec import FeatureSpec


class OptimizerConfig:
    """The sparse optimizer of the process."""

    @property
    def optimizer_instance(self) -> Any:
        """The sparse optimizer that was made last, or that was put here; None if there is none."""
        return process.optimizer

    @optimizer_instance.setter
    def optimizer_instance(self, optimizer: Any) -> None:
        process.optimizer = optimizer


class FeatureSpecConfig:
    """The FeatureSpecs that insert functions have seen."""

    @property
    def feature_spec_dict(self) -> dict[str, FeatureSpec]:
        """{name with its running number: FeatureSpec}, a copy."""
        return dict(process.feature_specs)

    def get_feature_spec(self, name: str) -> FeatureSpec | None:
        """Returns the FeatureSpec of that name, with its running number or without; None if there is none. Of several
        the last."""
        for spec in reversed(list(process.feature_specs.values())):
            if name in (spec.name, spec.given_name):
                return spec
        return None

    def insert_feature_spec(self, feature: FeatureSpec, is_training: bool) -> None:
        """Adds a FeatureSpec; that it is looked up, and for what, its lookups say themselves."""
        from mx_rec.core.asc.feature_spec import FeatureSpec

        _check.boolean("is_training", is_training)
        _check.instance("feature", feature, FeatureSpec, "a FeatureSpec")
        process.feature_specs[feature.name] = feature


class HybridManagerConfig:
    """The state of the pipeline, and eviction."""

    @property
    def freeze(self) -> bool:
        """Whether the pipeline of the default graph has started."""
        from mx_rec._tables import graphs

        return graphs.state().is_started

    def trigger_evict(self) -> bool:
        """Evicts by time, as `mx_rec.core.feature_process.evict()`; returns whether there was a table to evict from."""
        from mx_rec.core.feature_process import evict

        return bool(evict())
