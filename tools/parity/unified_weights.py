"""Initial weights of the record of 2026-01-18 (Unified Optimizers)."""

from __future__ import annotations

import math

import torch

from record_model import GATE, Weights, is_bf16
from records import UnifiedRecord
from unified_model import ATTENTION_LAYERS, LAYERS, VALUE_LAYERS

MLP_SLOTS = 12  # the last is padding


def shapes(vocab: int, dim: int, heads: int, mlp_dim: int) -> dict[str, tuple[int, ...]]:
    """Name to stored shape."""
    return {
        "attn_bank": (len(ATTENTION_LAYERS), 4 * dim, dim),
        "mlp_bank": (MLP_SLOTS, 2, mlp_dim, dim),
        "scalars": (3 * LAYERS + 3,),
        "value_embeds.0.weight": (vocab, dim),
        "value_embeds.1.weight": (vocab, dim),
        "value_embeds.2.weight": (vocab, dim),
        "smear_gate.weight": (1, GATE),
        "skip_gate.weight": (1, GATE),
        "attn_gate_bank": (len(ATTENTION_LAYERS), heads, GATE),
        "ve_gate_bank": (len(VALUE_LAYERS), heads, GATE),
        "x0_lambdas": (LAYERS,),
        "lm_head.weight": (dim, vocab),
        "embed.weight": (vocab, dim),
    }


def initial_weights(record: UnifiedRecord, vocab: int, dim: int, heads: int, mlp_dim: int,
                    seed: int, dense: bool) -> Weights:
    """The record's initial weights; `dense`: nothing but the padding is zero, so that every
    gradient has content. The embedding is the transposed head in both."""
    del record  # there is one of this family
    random = torch.Generator().manual_seed(seed)
    normal = lambda shape, scale: scale * torch.randn(shape, generator=random)
    bound = math.sqrt(3) * dim**-0.5
    uniform = lambda shape, bound: bound * (2 * torch.rand(shape, generator=random) - 1)
    w = {n: torch.zeros(shape) for n, shape in shapes(vocab, dim, heads, mlp_dim).items()}
    w["attn_bank"][:, : 3 * dim] = uniform((len(ATTENTION_LAYERS), 3 * dim, dim), bound)
    w["mlp_bank"][:, 0] = uniform((MLP_SLOTS, mlp_dim, dim), bound / 2)
    w["scalars"] += torch.tensor([1.1] * LAYERS + [0.5, 1.0] * LAYERS + [0.0, 0.5, -1.5])
    w["lm_head.weight"] = normal((dim, vocab), 0.05 if dense else 0.005)
    if dense:
        w["attn_bank"][:, 3 * dim :] = uniform((len(ATTENTION_LAYERS), dim, dim), bound / 2)
        w["mlp_bank"][:LAYERS, 1] = uniform((LAYERS, mlp_dim, dim), bound / 2)
        for name in ("scalars", "x0_lambdas"):
            w[name] += normal(w[name].shape, 0.2)
        for name in w:
            if "gate" in name:
                w[name] = normal(w[name].shape, 0.3)
            elif name.startswith("value_embeds"):
                w[name] = normal(w[name].shape, 1.0)
    stored = {n: v.bfloat16() if is_bf16(n) else v for n, v in w.items()}
    stored["embed.weight"] = stored["lm_head.weight"].T.contiguous()
    return stored
