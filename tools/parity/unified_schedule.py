"""Schedules of the record of 2026-01-18 (Unified Optimizers), at any run length, in float64."""

from __future__ import annotations

import dataclasses
import math

from record_model import Stage
from record_schedule import Schedule

RATE_FACTORS = (1.0, 1.52, 1.73)  # of the thirds of the scheduled steps
TIED_FRACTION = 2 / 3  # of the scheduled steps


@dataclasses.dataclass
class UnifiedSchedule(Schedule):
    """Windows, rotary and momentum are Schedule's."""

    def lr_multiplier(self, step: int) -> float:
        x = min(1.0, step / self.scheduled)
        # A third's first step still has the factor before.
        base = RATE_FACTORS[(x > 1 / 3) + (x > 2 / 3)]
        if x < 0.5:
            return base
        w = (1 - x) / 0.5
        return base * w + (1 - w) * 0.1

    def loss_weights(self, step: int) -> tuple[float, ...]:
        x = step / self.scheduled
        if x < 1 / 3:
            return (1.0, 0.5, 0.25 * (1 - 3 * x))
        return (1.0, 0.5 * (2 - 3 * x)) if x < 2 / 3 else (1.0,)

    def batch_tokens(self, step: int) -> int:
        ends = [math.floor(self.scheduled * k / 3 + 0.5) for k in (1, 2)]
        return self.record.batch_tokens[sum(step >= end for end in ends)]

    def last_tied_step(self) -> int:
        """The first step from two thirds on in which Adam updates: those are the odd ones."""
        first = math.ceil(TIED_FRACTION * self.scheduled)
        return first if first % 2 == 1 else first + 1

    def rates(self, step: int) -> dict[str, float]:
        return super().rates(step) | {"tied": step <= self.last_tied_step()}

    def stage(self, step: int) -> Stage:
        return dataclasses.replace(super().stage(step), loss_weights=self.loss_weights(step))
