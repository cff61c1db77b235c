"""Schedules of the records, at any run length, in float64."""

from __future__ import annotations

import dataclasses
import math

import torch

from record_model import Stage
from records import Record, StreamRecord, UnifiedRecord

MOMENTUM_STEPS = 300
LONG_BLOCKS = (3, 7, 11)
FINAL_BLOCKS = 13  # of the extension, if it has a window of its own


@dataclasses.dataclass
class Schedule:
    """A run of `total` steps with the course of the record's."""

    record: Record | UnifiedRecord | StreamRecord
    total: int
    head_dim: int = 128
    block_tokens: int = 128

    def __post_init__(self) -> None:
        r = self.record
        scaled = lambda steps: math.floor(
            steps * self.total / (r.scheduled + r.extension) + 0.5)
        self.scheduled = self.total - scaled(r.extension)
        self.momentum_steps = max(1, scaled(MOMENTUM_STEPS))
        self.momentum_cooldown = scaled(r.momentum_cooldown)

    def lr_multiplier(self, step: int) -> float:
        x = min(0.9999, step / self.scheduled)
        if x < 0.5:
            return 1.0
        w = (1 - x) / 0.5
        return w + 0.1 * (1 - w)

    def momentum(self, step: int) -> float:
        t, left = 1.0, self.total - step
        if step < self.momentum_steps:
            t = step / self.momentum_steps
        elif left < self.momentum_cooldown:
            t = left / self.momentum_cooldown
        return 0.85 + 0.10 * t

    def rates(self, step: int) -> dict[str, float]:
        """What the optimizer's step takes besides gradients and step."""
        return {"lr_multiplier": self.lr_multiplier(step), "momentum": self.momentum(step)}

    def batch_tokens(self, step: int) -> int:
        """The same at every step here."""
        return self.record.batch_tokens

    def long_blocks(self, step: int) -> int:
        if self.record.final_in_extension:
            if step >= self.scheduled:
                return FINAL_BLOCKS
            return LONG_BLOCKS[math.floor(3 * (step / self.scheduled))]
        return LONG_BLOCKS[math.floor(3 * min(step / (self.scheduled + 1), 0.9999))]

    def stage(self, step: int) -> Stage:
        """Windows and rotary of a training step, YaRN replayed from step 0."""
        half = self.head_dim // 4
        f = torch.tensor([1024 ** (-j / (half - 1)) for j in range(half)] + [0.0] * half,
                         dtype=torch.float64).float()
        scale, old = 0.1, LONG_BLOCKS[0]
        for s in range(step + 1):
            new = self.long_blocks(s)
            if new == old:
                continue
            turns = self.block_tokens * old * f / (2 * math.pi)
            gamma = ((turns - 1) / 31).clamp(0, 1)
            f = f * (old / new + gamma * (1 - old / new))
            scale *= 0.2 * math.log(new / old) + 1
            old = new
        return Stage(old // 2 * self.block_tokens, old * self.block_tokens, scale, f)
