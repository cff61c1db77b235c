"""Initial weights of track 2's Record 7."""

from __future__ import annotations

import math

import torch

from record7_model import LAYERS, NO_ATTENTION, RESIDUAL, VALUE
from record_model import Weights
from records import StreamRecord

GPT2_VOCAB, PADDED_VOCAB = 50257, 50304  # the tables have no rows for the padding


def is_bf16(name: str) -> bool:
    return name not in ("scalars", "lm_head_w")


def shapes(vocab: int, dim: int, mlp_dim: int) -> dict[str, tuple[int, ...]]:
    """Name to stored shape."""
    rows = GPT2_VOCAB if vocab == PADDED_VOCAB else vocab
    out = {"scalars": (5 * LAYERS,), "embed.weight": (rows, dim)}
    out |= {f"value_embeds.{k}.weight": (rows, dim) for k in range(3)}
    for i in range(LAYERS):
        if i != NO_ATTENTION:
            out[f"blocks.{i}.attn.qkvo_w"] = (4, dim, dim)
        out[f"blocks.{i}.mlp.fc_w"] = (mlp_dim, dim)
        out[f"blocks.{i}.mlp.proj_w"] = (dim, mlp_dim)
    return out | {"lm_head_w": (vocab, dim)}


def initial_weights(record: StreamRecord, vocab: int, dim: int, heads: int, mlp_dim: int,
                    seed: int, dense: bool) -> Weights:
    """The record's initial weights; `dense`: nothing is zero, so that every gradient has content.
    """
    del record, heads  # no shape tells them
    random = torch.Generator().manual_seed(seed)
    bound = math.sqrt(3) * 0.5 * dim**-0.5
    uniform = lambda shape: bound * (2 * torch.rand(shape, generator=random) - 1)
    weights = {}
    for name, shape in shapes(vocab, dim, mlp_dim).items():
        if name == "scalars":
            w = torch.ones(shape)
            w[RESIDUAL + 1 : VALUE : 2] = 0
            w[VALUE:] = 0.5
            if dense:
                w += 0.2 * torch.randn(shape, generator=random)
        elif "embed" in name:
            w = torch.randn(shape, generator=random)
        elif name.endswith(("qkvo_w", "fc_w")):
            w = uniform(shape)
            if name.endswith("qkvo_w") and not dense:
                w[3] = 0
        elif not dense:
            w = torch.zeros(shape)
        elif name == "lm_head_w":
            w = 0.05 * torch.randn(shape, generator=random)
        else:  # proj_w
            w = uniform(shape)
        weights[name] = w.bfloat16() if is_bf16(name) else w
    return weights
