"""Which classes implement a record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import record_model
import record_optimizer
import record_schedule
import record_weights
import unified_model
import unified_optimizer
import unified_schedule
import unified_weights
from record_model import Weights
from records import RECORDS, UnifiedRecord


@dataclasses.dataclass(frozen=True)
class Family:
    """The classes are called as those of the record_*.py files."""

    model: type
    optimizer: type
    schedule: type[record_schedule.Schedule]
    initial_weights: Callable[..., Weights]


LAYERED = Family(record_model.RecordModel, record_optimizer.RecordOptimizer,
                 record_schedule.Schedule, record_weights.initial_weights)
UNIFIED = Family(unified_model.UnifiedModel, unified_optimizer.UnifiedOptimizer,
                 unified_schedule.UnifiedSchedule, unified_weights.initial_weights)


def family_of(record: str) -> Family:
    return UNIFIED if isinstance(RECORDS[record], UnifiedRecord) else LAYERED
