"""Schedules of the mainline after ANVIL (pull request 360), at any run length, in float64."""

from __future__ import annotations

import dataclasses
import math

from unified_schedule import UnifiedSchedule

# First steps of the stages of 1174 scheduled steps, and their end.
STARTS = (0, 320, 681, 1107, 1174)
RATE_FACTORS = (1.0, 1.52, 1.73, 1.73 * math.sqrt(20 / 24))
COOLDOWN, FLOOR = 0.8, 0.3
ENGAGED_FROM, SLOWER_FROM, STEPS = 514, 336, 1194
MOMENTUM, WARMUP, MOMENTUM_COOLDOWN = (0.85, 0.93), 240, 50


@dataclasses.dataclass
class AnvilSchedule(UnifiedSchedule):
    """Rotary is Schedule's."""

    def start(self, stage: int) -> int:
        return math.ceil(self.scheduled * (STARTS[stage] / STARTS[-1] - 1e-9))

    def stage_at(self, step: int) -> int:
        return sum(step >= self.start(k) for k in (1, 2, 3))

    def lr_multiplier(self, step: int) -> float:
        n = self.scheduled
        if step >= n:
            return FLOOR
        start = math.floor((1 - COOLDOWN) * n)
        t = max(0, step - start) / (n - start)
        return RATE_FACTORS[self.stage_at(step)] * (1 - t) + FLOOR * t

    def momentum(self, step: int) -> float:
        scaled = lambda steps: math.floor(steps * self.total / STEPS + 0.5)
        warmup, cooldown, left = max(1, scaled(WARMUP)), scaled(MOMENTUM_COOLDOWN), self.total - step
        t = step / warmup if step < warmup else left / cooldown if left < cooldown else 1
        return (1 - t) * MOMENTUM[0] + t * MOMENTUM[1]

    def engaged(self, step: int) -> bool:
        return step >= math.floor(ENGAGED_FROM * self.total / STEPS + 0.5)

    def slower(self, step: int) -> bool:
        """The value embeddings' updates."""
        return step >= math.floor(SLOWER_FROM * self.total / STEPS + 0.5)

    def loss_weights(self, step: int) -> tuple[float, ...]:
        part = min(2, self.stage_at(step))
        if part == 2:
            return (1.0,)
        begin, end = self.start(part), self.start(part + 1)
        left = 1 - (step - begin) / (end - begin)
        return (1.0, 0.5, 0.25 * left) if part == 0 else (1.0, 0.5 * left)

    def batch_tokens(self, step: int) -> int:
        stage = 4 if step >= self.scheduled else self.stage_at(step)
        return (131072, 262144, 393216, 327680, 131072)[stage]

    def last_tied_step(self) -> int:
        return self.scheduled // 2 * 2 + 1

    def long_blocks(self, step: int) -> int:
        return 13 if step >= self.scheduled else (3, 7, 11, 11)[self.stage_at(step)]

    def rates(self, step: int) -> dict[str, float]:
        return super().rates(step) | {"engaged": self.engaged(step), "slower": self.slower(step)}
