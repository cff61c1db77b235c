"""The model of 2026-01-18 with the mainline's banks after ANVIL (pull request 360).

qk_bank [60, 2 head_dim, D]: of each layer with attention Q and then K, two neighbouring heads a
matrix. vo_bank [20, D, D]: V and O of each.
"""

from __future__ import annotations

import math

import torch

import unified_weights
from record_model import Weights
from records import UnifiedRecord
from unified_model import ATTENTION_LAYERS, UnifiedModel


class AnvilModel(UnifiedModel):
    def attention_weights(self, slot: int) -> torch.Tensor:
        halves = (self.w[n].view(-1, 2 * self.dim, self.dim)[slot] for n in ("qk_bank", "vo_bank"))
        return torch.cat(list(halves))


def initial_weights(record: UnifiedRecord, vocab: int, dim: int, heads: int, mlp_dim: int,
                    seed: int, dense: bool) -> Weights:
    """As unified_weights.initial_weights, but Q, K, V and O uniform within sqrt(3 / D) / 2."""
    w = unified_weights.initial_weights(record, vocab, dim, heads, mlp_dim, seed, dense)
    del w["attn_bank"]
    random = torch.Generator().manual_seed(seed + 1)
    bound, layers = math.sqrt(3 / dim) / 2, len(ATTENTION_LAYERS)
    shapes = {"qk_bank": (layers * heads, 2 * dim // heads, dim), "vo_bank": (2 * layers, dim, dim)}
    return {n: (bound * (2 * torch.rand(shape, generator=random) - 1)).bfloat16()
            for n, shape in shapes.items()} | w
