"""Writes small_unified.bin: make_fixture.py's for the model of the record of 2026-01-18 (Unified).

Run it in a Python with torch and numpy:  python tools/recipes/testdata/make_unified_fixture.py

Sizes, batch, documents, windows and attention scale are those of make_fixture.py, and so is the
file's format: for the bf16 head, then for the fp8 head: f32 losses [SLOTS, T] with the weights
LOSS_WEIGHTS of the next three tokens, then per parameter, in the order of PARAMETERS, the gradient
of the summed loss in bf16. embed.weight and lm_head.weight are two independent parameters here.

The model is its definition in float64: nothing is rounded but the stored weights (bf16 or, for
scalars and x0_lambdas, f32) and the rotary tables (2 T positions: paired layers read them all). In
particular the weights that a scalar scales are not rounded after that. The parameter number n
holds scale * Hashed(., n) with the scale of PARAMETERS, scalars with OFFSETS added.
"""

import numpy as np
import torch

from make_fixture import (
    DIM, GATE, HEAD_DIM, HEADS, LONG, MLP, SCALE, SHORT, T, VALUES, VOCAB,
    Bf16, Fp8Head, Hashed, Mask, Rms, Write,
)  # fmt: skip

LAYERS = 11
ATTENTION_LAYERS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10]  # slot in the attention banks -> layer
VALUE_LAYERS = [0, 1, 8, 9, 10]  # row of the value gates' bank -> layer
VALUE_TABLE = {0: 1, 1: 2, 8: 0, 9: 1, 10: 2}
PAIRED, LONG_LAYERS = (0, 2, 5, 9), (3, 10)
SKIP_FROM, SKIP_TO, BACKOUT = 3, 6, 7
# scalars: residual lambdas, then per layer the factors of QKV and of O, then these
SMEAR_SCALAR, BACKOUT_SCALAR, SKIP_SCALAR = 33, 34, 35
LOSS_WEIGHTS = (1.0, 0.5, 0.1875)
FP8_SCALES = (100 / 448, 1.6 / 448, 0.75 / 448)

PARAMETERS = [
    ("attn_bank", (len(ATTENTION_LAYERS), 4 * DIM, DIM), 0.3),
    ("mlp_bank", (LAYERS + 1, 2, MLP, DIM), 0.2),
    ("scalars", (36,), 0.3),
    *[(f"value_embeds.{k}.weight", (VOCAB, DIM), 1.5) for k in range(VALUES)],
    ("smear_gate.weight", (1, GATE), 0.5),
    ("skip_gate.weight", (1, GATE), 0.5),
    ("attn_gate_bank", (len(ATTENTION_LAYERS), HEADS, GATE), 0.5),
    ("ve_gate_bank", (len(VALUE_LAYERS), HEADS, GATE), 0.5),
    ("x0_lambdas", (LAYERS,), 0.3),
    ("lm_head.weight", (DIM, VOCAB), 0.3),
    ("embed.weight", (VOCAB, DIM), 1.5),
]
OFFSETS = [1.0] * LAYERS + [0.5, 1.0] * LAYERS + [0.5, 0.5, -0.5]


def Weights():
    """Name -> leaf tensor, in the order of PARAMETERS."""
    weights = {}
    for stream, (name, shape, scale) in enumerate(PARAMETERS):
        values = torch.from_numpy(scale * Hashed(int(np.prod(shape)), stream))
        if name == "scalars":
            values = values + torch.tensor(OFFSETS, dtype=torch.float64)
        f32 = name in ("scalars", "x0_lambdas")
        values = values.to(torch.float32).to(torch.float64) if f32 else Bf16(values)
        weights[name] = values.reshape(shape).requires_grad_(True)
    return weights


def Rotate(x, positions):
    """Turns neighbouring features of x [rows, heads, d] by -theta; positions [rows, heads]."""
    half = x.shape[-1] // 2
    f = torch.tensor([2.0**-j if j < half // 2 else 0.0 for j in range(half)])
    theta = positions[..., None].to(torch.float32) * f
    cos, sin = Bf16(theta.cos()), Bf16(theta.sin())
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos + b * sin, b * cos - a * sin], -1).flatten(-2)


def Positions(tokens, heads, paired):
    """Rotary positions [tokens, heads]: of pairs, the even head's and then the odd one's."""
    t = torch.arange(tokens)[:, None].expand(tokens, heads)
    return 2 * t + torch.arange(heads) % 2 if paired else t


def OffsetKeys(k):
    """A quarter of the rotating features and one of the others come from the position before."""
    d = k.shape[-1]
    shifted = k.clone()
    for begin, end in ((d // 4, d // 2), (3 * d // 4, d)):
        shifted[1:, :, begin:end] = k[:-1, :, begin:end]
    return shifted


def Pairs(x):
    """[T, heads, d] -> [2 T, heads / 2, d], the same memory."""
    return x.reshape(2 * x.shape[0], x.shape[1] // 2, x.shape[2])


def Attend(q, k, v, boundaries, window):
    scores = SCALE * torch.einsum("phd,jhd->hpj", q, k)
    mask = Mask(boundaries, window, q.shape[0])
    p = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return torch.einsum("hpj,jhd->phd", p, v)


def Attention(h, i, tokens, boundaries, w):
    slot, s, heads = ATTENTION_LAYERS.index(i), w["scalars"], (-1, HEADS, HEAD_DIM)
    wq, wk, wv, wo = w["attn_bank"][slot].reshape(4, DIM, DIM)
    q, k, v = [(h @ (s[LAYERS + 2 * i] * m).T).reshape(heads) for m in (wq, wk, wv)]
    paired = i in PAIRED
    positions = Positions(len(tokens), HEADS, paired)
    q, k = Rotate(Rms(q), positions), Rotate(Rms(k), positions)
    if i in LONG_LAYERS:
        k = OffsetKeys(k)
    if i in VALUE_TABLE:
        gate = 2 * (h[:, :GATE] @ w["ve_gate_bank"][VALUE_LAYERS.index(i)].T).sigmoid()
        rows = w[f"value_embeds.{VALUE_TABLE[i]}.weight"][tokens].reshape(heads)
        v = v + gate[..., None] * rows
    if paired:
        doubled = [2 * b for b in boundaries]
        o = Attend(Pairs(q), Pairs(k), Pairs(v), doubled, SHORT).reshape(heads)
    else:
        o = Attend(q, k, v, boundaries, LONG if i in LONG_LAYERS else SHORT)
    gate = (h[:, :GATE] @ w["attn_gate_bank"][slot].T).sigmoid()
    return (o * gate[..., None]).reshape(-1, DIM) @ (s[LAYERS + 2 * i + 1] * wo).T


def TokenLosses(logits, targets, loss_weights):
    """Of logits [T, V]: sum over k of w_k times the cross entropy of target t + k, in the slot."""
    z = 23 * ((logits + 5) / 7.5).sigmoid()
    log_p = z.log_softmax(-1)
    losses = torch.zeros(len(targets), dtype=logits.dtype)
    for k, weight in enumerate(loss_weights):
        ahead = targets[k:]
        losses[: len(ahead)] -= weight * log_p[: len(ahead)].gather(-1, ahead[:, None])[:, 0]
    return losses


def Losses(tokens, targets, boundaries, w, fp8):
    s = w["scalars"]
    e = w["embed.weight"][tokens]
    gate = (e[1:, :GATE] @ w["smear_gate.weight"][0]).sigmoid()
    x = torch.cat([e[:1], e[1:] + s[SMEAR_SCALAR] * gate[:, None] * e[:-1]])
    x = x0 = Rms(x)
    saved = {}
    for i in range(LAYERS):
        if i == SKIP_TO:
            gate = 2 * (x0[:, :GATE] @ w["skip_gate.weight"][0]).sigmoid()
            x = x + s[SKIP_SCALAR].sigmoid() * gate[:, None] * saved[SKIP_FROM]
        x = s[i] * x + w["x0_lambdas"][i] * x0
        if i in ATTENTION_LAYERS:
            x = x + Attention(Rms(x), i, tokens, boundaries, w)
        c_fc, c_proj = w["mlp_bank"][i]
        x = x + (Rms(x) @ c_fc.T).relu().square() @ c_proj
        saved[i] = x
    x = Rms(x - s[BACKOUT_SCALAR] * saved[BACKOUT])
    head = w["lm_head.weight"].T
    logits = Fp8Head.apply(x, head, FP8_SCALES) if fp8 else x @ head.T
    return TokenLosses(logits, targets, LOSS_WEIGHTS)


if __name__ == "__main__":
    Write("small_unified.bin", (False, True), Weights, Losses)
