"""Which classes implement a record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import anvil_model
import anvil_optimizer
import anvil_schedule
import record7_model
import record7_optimizer
import record7_schedule
import record7_weights
import record_model
import record_optimizer
import record_schedule
import record_weights
import shard_batches
import unified_model
import unified_optimizer
import unified_schedule
import unified_weights
from record_model import Weights
from records import RECORDS, StreamRecord, UnifiedRecord


@dataclasses.dataclass(frozen=True)
class Family:
    """The classes are called as those of the record_*.py files."""

    model: type
    optimizer: type
    schedule: type[record_schedule.Schedule]
    initial_weights: Callable[..., Weights]
    batches: Callable[..., Iterator[record_model.Batch]] = shard_batches.global_batches
    is_bf16: Callable[[str], bool] = record_model.is_bf16  # whether a weight is stored so
    sizes: tuple[int, ...] = (50304, 768, 6, 3072)  # vocabulary, dim, heads, mlp_dim


LAYERED = Family(record_model.RecordModel, record_optimizer.RecordOptimizer,
                 record_schedule.Schedule, record_weights.initial_weights)
UNIFIED = Family(unified_model.UnifiedModel, unified_optimizer.UnifiedOptimizer,
                 unified_schedule.UnifiedSchedule, unified_weights.initial_weights)
ANVIL = Family(anvil_model.AnvilModel, anvil_optimizer.AnvilOptimizer,
               anvil_schedule.AnvilSchedule, anvil_model.initial_weights,
               sizes=(50304, 768, 6, 2816))
RECORD7 = Family(record7_model.Record7Model, record7_optimizer.Record7Optimizer,
                 record7_schedule.Record7Schedule, record7_weights.initial_weights,
                 shard_batches.stream_batches, record7_weights.is_bf16, (50304, 1024, 8, 4096))


def family_of(record: str) -> Family:
    if isinstance(RECORDS[record], StreamRecord):
        return RECORD7
    if record == "anvil":
        return ANVIL
    return UNIFIED if isinstance(RECORDS[record], UnifiedRecord) else LAYERED
