"""Schedules of track 2's Record 7, at any run length, in float64."""

from __future__ import annotations

import dataclasses
import math

import torch

from record_model import Stage
from record_schedule import Schedule

COOLDOWN = 0.6
GROW_TO_BLOCKS = 13.5  # 1728 tokens by blocks of 128
ATTENTION_SCALE = 0.12


@dataclasses.dataclass
class Record7Schedule(Schedule):
    """Momentum and batch size are Schedule's."""

    def lr_multiplier(self, step: int) -> float:
        x = step / self.scheduled
        return 1.0 if x < 1 - COOLDOWN else (1 - x) / COOLDOWN

    def long_blocks(self, step: int) -> int:
        tokens = GROW_TO_BLOCKS * self.block_tokens * min(1.0, step / self.scheduled)
        return max(1, math.ceil(tokens / self.block_tokens))

    def stage(self, step: int) -> Stage:
        """No YaRN: the frequencies stay. Powers of an f32 grid, as the record's."""
        grid = torch.linspace(0, 1, self.head_dim // 4)
        f = torch.cat([torch.tensor(1 / 1024) ** grid, torch.zeros(self.head_dim // 4)])
        long = self.long_blocks(step)
        return Stage(long // 2 * self.block_tokens, long * self.block_tokens, ATTENTION_SCALE, f,
                     block_tokens=self.block_tokens)
