"""What the lookups of a table require of admission and eviction: one setting per table, whichever lookup gives it."""

from mx_rec._native.table import Tracking
from mx_rec._process import Part, part

# The words of FeatureSpec and access_and_evict_config, and what they mean if nobody says them.
_DEFAULTS = {"access_threshold": -1, "eviction_threshold": -1, "faae_coefficient": 1}


class _Settings(Part):
    """What scripts have required so far, by table. A graph that is built again, as Estimators do, requires nothing new,
    so thresholds that were changed or restored meanwhile stay."""

    def __init__(self):
        self.of_table: dict[str, dict[str, int]] = {}


def require(table, who, access_threshold=None, eviction_threshold=None, faae_coefficient=None) -> None:
    """Makes the table track its keys as `who`, a lookup of it, requires; None requires nothing. ValueError if another
    lookup of the same graph requires something else."""
    required = {
        "access_threshold": access_threshold,
        "eviction_threshold": eviction_threshold,
        "faae_coefficient": faae_coefficient,
    }
    required = {label: value for label, value in required.items() if value is not None}
    for label, value in required.items():
        other, before = table.required.setdefault(label, (who, value))
        if before != value:
            raise ValueError(
                f"table '{table.table_name}': all lookups of a table share one `{label}`, but {other} says {before} "
                f"and {who} says {value}"
            )
    of_table = part(_Settings).of_table
    known = of_table.get(table.table_name, {})
    if all(known.get(label) == value for label, value in required.items()):
        return
    known = {**known, **required}
    settings = {**_DEFAULTS, **known}
    table.native.track(
        Tracking(
            settings["access_threshold"],
            settings["eviction_threshold"],
            settings["faae_coefficient"],
            table.admission_filter_bytes,
        )
    )
    of_table[table.table_name] = known


def evicts_by_time(table) -> bool:
    """Tells whether the table's keys need timestamps."""
    tracking = table.native.tracking
    return tracking is not None and tracking.eviction_threshold >= 0
