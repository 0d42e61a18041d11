"""What the lookups of a table say about feature admission and eviction: one setting per table, wherever it is said."""

from mx_rec._native.table import Tracking

# The words of FeatureSpec and access_and_evict_config, and what they mean if nobody says them.
_DEFAULTS = {"access_threshold": -1, "eviction_threshold": -1, "faae_coefficient": 1}

# Table -> what scripts have said so far in this process. A graph that is built again, as Estimators do, says nothing
# new, so thresholds that were changed or restored meanwhile stay.
_said: dict[str, dict[str, int]] = {}


def declare(table, who, access_threshold=None, eviction_threshold=None, faae_coefficient=None) -> None:
    """Notes what `who`, a lookup of `table`, asks for; None asks for nothing. ValueError if another lookup of the same
    graph asked for something else."""
    asked = {
        "access_threshold": access_threshold,
        "eviction_threshold": eviction_threshold,
        "faae_coefficient": faae_coefficient,
    }
    asked = {label: value for label, value in asked.items() if value is not None}
    for label, value in asked.items():
        other, before = table.asked.setdefault(label, (who, value))
        if before != value:
            raise ValueError(
                f"table '{table.table_name}': all lookups of a table share one `{label}`, but {other} says {before} "
                f"and {who} says {value}"
            )
    said = _said.get(table.table_name, {})
    if all(said.get(label) == value for label, value in asked.items()):
        return
    said = {**said, **asked}
    settings = {**_DEFAULTS, **said}
    table.native.track(
        Tracking(
            settings["access_threshold"],
            settings["eviction_threshold"],
            settings["faae_coefficient"],
            table.admission_filter_bytes,
        )
    )
    _said[table.table_name] = said


def evicts_by_time(table) -> bool:
    """Whether the table's keys need timestamps."""
    tracking = table.native.tracking
    return tracking is not None and tracking.eviction_threshold >= 0


def forget_all() -> None:
    """Forgets what was said; the tables are gone."""
    _said.clear()
