"""Weights of the records: initial values, files, device copies."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from safetensors.torch import load_file, save_file

from records import Record
from record_model import GATE, LAYERS, NO_ATTENTION, Weights, is_bf16


def shapes(record: Record, vocab: int, dim: int, heads: int,
           mlp_dim: int) -> dict[str, tuple[int, ...]]:
    """Name to stored shape."""
    out = {"scalars": (record.scalars,), "embed.weight": (vocab, dim), "smear_gate.weight": (1, GATE)}
    out |= {f"value_embeds.{k}.weight": (vocab, dim) for k in range(3)}
    for i in range(1, LAYERS):
        if i not in NO_ATTENTION:
            out[f"blocks.{i}.attn.qkvo_w"] = (dim, 4 * dim)
            out[f"blocks.{i}.attn.attn_gate.weight"] = (heads, GATE)
        out[f"blocks.{i}.mlp.c_fc"] = (dim, mlp_dim)
        out[f"blocks.{i}.mlp.c_proj"] = (dim, mlp_dim)
    return out | {"lm_head.weight": (vocab, dim)}


def _scalars(record: Record, dense: bool, random: torch.Generator) -> torch.Tensor:
    s = torch.zeros(record.scalars)
    s[:LAYERS] = -1.5
    s[LAYERS : 3 * LAYERS : 2] = 1
    s[3 * LAYERS : 5 * LAYERS] = 0.5
    if record.backout_layer is not None:
        s[5 * LAYERS + 1] = 0.5
    if dense:
        s[: 5 * LAYERS + 1] += 0.2 * torch.randn(5 * LAYERS + 1, generator=random)
    return s


def initial_weights(record: Record, vocab: int, dim: int, heads: int, mlp_dim: int, seed: int,
                    dense: bool) -> Weights:
    """The record's initial weights; `dense`: nothing is zero, so that every gradient has content.

    With zero output matrices most gradients of the first step are zero or rounding noise, which
    says nothing about the backward pass.
    """
    random = torch.Generator().manual_seed(seed)
    bound = math.sqrt(3) * 0.5 * dim**-0.5
    uniform = lambda shape: bound * (2 * torch.rand(shape, generator=random) - 1)
    weights = {}
    for name, shape in shapes(record, vocab, dim, heads, mlp_dim).items():
        if name == "scalars":
            w = _scalars(record, dense, random)
        elif "embed" in name:
            w = torch.randn(shape, generator=random)
        elif name.endswith("qkvo_w"):
            w = uniform(shape)
            if not dense:
                w.view(4, -1)[3] = 0
        elif name.endswith("c_fc"):
            w = uniform(shape)
        elif not dense:
            w = torch.zeros(shape)
        elif name.endswith("c_proj"):
            w = uniform(shape)
        elif name == "lm_head.weight":
            w = 0.05 * torch.randn(shape, generator=random)
        else:  # gates
            w = 0.3 * torch.randn(shape, generator=random)
        weights[name] = w.bfloat16() if is_bf16(name) else w
    return weights


def load_weights(path: str, device: str) -> Weights:
    """f32 leaves, whatever the stored dtype."""
    stored = load_file(path)
    return {n: w.to(device).float().requires_grad_(True) for n, w in stored.items()}


def save_weights(path: str, weights: Weights, in_bf16: Callable[[str], bool]) -> None:
    """In the record's dtypes."""
    save_file({n: stored(w, in_bf16(n)) for n, w in weights.items()}, path)


def stored(weight: torch.Tensor, in_bf16: bool) -> torch.Tensor:
    weight = weight.detach().cpu().contiguous()
    return weight.bfloat16() if in_bf16 else weight.float()
