"""Writes small_record7.bin: make_fixture.py's for the model of track 2's Record 7.

Run it in a Python with torch and numpy:  python tools/recipes/testdata/make_record7_fixture.py

Sizes, batch, documents and attention scale are those of make_fixture.py, and so is the file's
format, with one block of results as there is no fp8 head: f32 losses [SLOTS, T], then per
parameter, in the order of Parameters, the gradient of the summed loss in bf16. Windows count blocks
of BLOCK tokens, the query's own included.

The model is its definition in float64: nothing is rounded but the stored weights (bf16 or, for
scalars and lm_head_w, f32) and what the model itself defines so: the rotary tables are f32 cosines
and sines of f32 angles, and the head multiplies lm_head_w rounded to bf16, whose gradient passes
unchanged. The parameter number n holds scale * Hashed(., n) with the scale of Parameters, scalars
with OFFSETS added.
"""

import numpy as np
import torch

from make_fixture import (
    DIM, HEAD_DIM, HEADS, MLP, SCALE, T, VALUES, VOCAB,
    Bf16, Hashed, Mask, Rms, Write,
)  # fmt: skip

LAYERS, BLOCK = 16, 16
LONG, SHORT = 3 * BLOCK, BLOCK
NO_ATTENTION, LONG_LAYERS = 7, (0, 4, 11, 15)
VALUE_TABLE = {0: 0, 1: 1, 2: 2, 13: 0, 14: 1, 15: 2}
SKIP_SOURCE = {9: 6, 10: 4, 11: 2}
# scalars: skip weights by source layer, then per layer the factors of x and x0 and those of v and
# of the value table
RESIDUAL_SCALARS, VALUE_SCALARS = LAYERS, 3 * LAYERS
OFFSETS = [1.0] * LAYERS + [1.0, 0.0] * LAYERS + [0.5, 0.5] * LAYERS
F32 = ("scalars", "lm_head_w")


def Parameters():
    """(name, shape, scale), in the order of the file."""
    parameters = [("scalars", (5 * LAYERS,), 0.3), ("embed.weight", (VOCAB, DIM), 1.5)]
    parameters += [(f"value_embeds.{k}.weight", (VOCAB, DIM), 1.5) for k in range(VALUES)]
    for i in range(LAYERS):
        if i != NO_ATTENTION:
            parameters.append((f"blocks.{i}.attn.qkvo_w", (4, DIM, DIM), 0.3))
        parameters.append((f"blocks.{i}.mlp.fc_w", (MLP, DIM), 0.25))
        parameters.append((f"blocks.{i}.mlp.proj_w", (DIM, MLP), 0.15))
    return parameters + [("lm_head_w", (VOCAB, DIM), 0.3)]


def Weights():
    """Name -> leaf tensor, in the order of Parameters."""
    weights = {}
    for stream, (name, shape, scale) in enumerate(Parameters()):
        values = torch.from_numpy(scale * Hashed(int(np.prod(shape)), stream))
        if name == "scalars":
            values = values + torch.tensor(OFFSETS, dtype=torch.float64)
        values = values.to(torch.float32).to(torch.float64) if name in F32 else Bf16(values)
        weights[name] = values.reshape(shape).requires_grad_(True)
    return weights


def Rotate(x):
    """x [T, heads, d], turned by -theta, with f32 angles and tables."""
    half = x.shape[-1] // 2
    f = torch.tensor([2.0**-j if j < half // 2 else 0.0 for j in range(half)])
    theta = torch.arange(x.shape[0], dtype=torch.float32)[:, None] * f
    cos, sin = (table.to(torch.float64)[:, None] for table in (theta.cos(), theta.sin()))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos + b * sin, b * cos - a * sin], -1)


def BlockMask(boundaries, blocks):
    block = torch.arange(T) // BLOCK
    return Mask(boundaries, T) & (block[:, None] - block[None, :] < blocks)


def Attention(x, i, tokens, boundaries, w):
    wq, wk, wv, wo = w[f"blocks.{i}.attn.qkvo_w"]
    q, k, v = [Rms((x @ m.T).reshape(-1, HEADS, HEAD_DIM)) for m in (wq, wk, wv)]
    mu0, mu1 = w["scalars"][VALUE_SCALARS + 2 * i : VALUE_SCALARS + 2 * i + 2]
    v = mu0 * v
    if i in VALUE_TABLE:
        v = v + mu1 * w[f"value_embeds.{VALUE_TABLE[i]}.weight"][tokens].reshape(v.shape)
    scores = SCALE * torch.einsum("phd,jhd->hpj", Rotate(q), Rotate(k))
    mask = BlockMask(boundaries, (LONG if i in LONG_LAYERS else SHORT) // BLOCK)
    p = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return torch.einsum("hpj,jhd->phd", p, v).reshape(-1, DIM) @ wo.T


def SoftCap(logits):
    return 15 * logits * (logits.square() + 225).rsqrt()


def Losses(tokens, targets, boundaries, w, fp8):
    assert not fp8
    s = w["scalars"]
    x = x0 = Rms(w["embed.weight"][tokens])
    saved = []
    for i in range(LAYERS):
        if i in SKIP_SOURCE:
            x = x + s[SKIP_SOURCE[i]] * saved[SKIP_SOURCE[i]]
        x = s[RESIDUAL_SCALARS + 2 * i] * x + s[RESIDUAL_SCALARS + 2 * i + 1] * x0
        if i != NO_ATTENTION:
            x = x + Attention(x, i, tokens, boundaries, w)
        hidden = (Rms(x) @ w[f"blocks.{i}.mlp.fc_w"].T).relu().square()
        x = x + hidden @ w[f"blocks.{i}.mlp.proj_w"].T
        saved.append(x)
    head = w["lm_head_w"]
    head = head + (Bf16(head) - head).detach()
    z = SoftCap(Rms(x) @ head.T)
    return z.logsumexp(-1) - z.gather(-1, targets[:, None])[:, 0]


if __name__ == "__main__":
    Write("small_record7.bin", (False,), Weights, Losses)
