"""Report: what graph modification did, for people."""

import dataclasses

from mx_rec._process import Part, part


@dataclasses.dataclass(frozen=True)
class Moved:
    """A lookup whose ids are now computed and prepared in the dataset."""

    lookup: str
    table: str
    source: str  # the op that gave the batch
    target: str  # the op that gives it now
    ops: int  # copied into the dataset to compute the ids

    def __str__(self):
        return (
            f"moved: lookup '{self.lookup}' in table '{self.table}' with {self.ops} ops, from the step into the "
            f"dataset ({self.source} -> {self.target})"
        )


@dataclasses.dataclass(frozen=True)
class Stayed:
    """A lookup that is prepared in the step."""

    lookup: str
    table: str
    reason: str

    def __str__(self):
        return f"stayed: lookup '{self.lookup}' in table '{self.table}': {self.reason}"


@dataclasses.dataclass(frozen=True)
class Fused:
    """An op of the script that became a part of its lookups."""

    op: str
    kind: str
    lookups: int

    def __str__(self):
        return f"fused: {self.op} ({self.kind}) into {self.lookups} lookups"


@dataclasses.dataclass
class Report:
    """What graph modification did to one graph."""

    moved: list[Moved] = dataclasses.field(default_factory=list)
    stayed: list[Stayed] = dataclasses.field(default_factory=list)
    fused: list[Fused] = dataclasses.field(default_factory=list)

    def __str__(self):
        return "\n".join(map(str, [*self.moved, *self.stayed, *self.fused])) or "nothing was changed"


class _Last(Part):
    lasts = True

    def __init__(self):
        self.report = Report()


def last_report() -> Report:
    """Returns what the last graph modification of this process did."""
    return part(_Last).report


def remember(report: Report) -> None:
    """Makes `report` the last one."""
    part(_Last).report = report
