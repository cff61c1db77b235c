"""Writes small_gpt*.bin: losses and gradients of a small model, computed by torch's autograd.

Run it in a Python with torch and numpy:  python tools/recipes/testdata/make_fixture.py

The models are those of the recipes muon_custom_sizing (small_gpt.bin) and fix_muon_lr, which has a
backout (small_gpt_backout.bin), at dim 32, in float64 throughout; only the weights and rotary
tables are rounded to bf16 as the trained model reads them. Weights and tokens come from an integer
hash (Hashed, repeated in model/testing.cc), so the file holds results only, little-endian: for the
bf16 head, then (small_gpt.bin) for the fp8 head: f32 losses [SLOTS, T], then per weight in
enumeration order the gradient of the summed loss in bf16 (upper halves of binary32, to nearest
even).
"""

import pathlib

import numpy as np
import torch

VOCAB, DIM, MLP, HEADS, HEAD_DIM, GATE, LAYERS, VALUES = 96, 32, 128, 2, 16, 12, 12, 3
SLOTS, T = 2, 96
BOUNDARIES = [[0, 30, 30, 71, 96, 96], [0, 0, 50, 58, 96, 96]]
SHORT, LONG, SCALE = 8, 24, 0.3
EPS = 1.1920929e-07
BACKOUT_LAYER, BACKOUT_SCALAR = 8, 5 * LAYERS + 1
FP8_SCALES = (DIM**0.5 / 448, 2.0**-9, 1 / 448)


def Hashed(count, stream):
    """Uniform in [-1, 1), a multiple of 2^-23, from position and stream number."""
    h = (np.arange(count, dtype=np.uint64) * 2654435761 + stream * 40503 + 12345) & 0xFFFFFFFF
    for _ in range(2):
        h ^= h >> np.uint64(16)
        h = (h * np.uint64(0x45D9F3B)) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(16)
    return (h >> np.uint64(8)).astype(np.float64) / 2.0**23 - 1.0


def Bf16(x):
    return x.to(torch.float32).to(torch.bfloat16).to(torch.float64)


def ScalarValues(backout):
    count = BACKOUT_SCALAR + 1 if backout else 6 * LAYERS
    s = 0.3 * torch.from_numpy(Hashed(count, 0))
    s[:LAYERS] -= 0.5
    s[LAYERS : 3 * LAYERS : 2] += 1.0
    s[3 * LAYERS : 5 * LAYERS] += 0.5
    s[5 * LAYERS] += 0.5
    if backout:
        s[BACKOUT_SCALAR] += 0.5
    return s.to(torch.float32).to(torch.float64)


def Weights(backout):
    """Name -> leaf tensor, in enumeration order."""
    shapes = [("embed.weight", (VOCAB, DIM), 1.5), ("smear_gate.weight", (1, GATE), 0.5)]
    shapes += [(f"value_embeds.{k}.weight", (VOCAB, DIM), 1.5) for k in range(VALUES)]
    for i in range(1, LAYERS):
        if i != 7:
            shapes.append((f"blocks.{i}.attn.qkvo_w", (DIM, 4 * DIM), 0.3))
            shapes.append((f"blocks.{i}.attn.attn_gate.weight", (HEADS, GATE), 0.5))
        shapes.append((f"blocks.{i}.mlp.c_fc", (DIM, MLP), 0.25))
        shapes.append((f"blocks.{i}.mlp.c_proj", (DIM, MLP), 0.15))
    shapes.append(("lm_head.weight", (VOCAB, DIM), 0.3))
    weights = {"scalars": ScalarValues(backout)}
    for stream, (name, shape, scale) in enumerate(shapes, start=1):
        values = torch.from_numpy(scale * Hashed(int(np.prod(shape)), stream))
        weights[name] = Bf16(values).reshape(shape)
    for w in weights.values():
        w.requires_grad_(True)
    return weights


def Tokens():
    stream = np.floor((Hashed(SLOTS * (T + 1), 1000) + 1.0) / 2.0 * VOCAB).astype(np.int64)
    stream = torch.from_numpy(stream).reshape(SLOTS, T + 1)
    return stream[:, :-1], stream[:, 1:]


def Rms(x):
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt()


def Rotate(x):
    """x [T, heads, d], turned by -theta."""
    half = HEAD_DIM // 2
    f = torch.tensor([2.0**-j if j < half // 2 else 0.0 for j in range(half)])
    theta = torch.arange(T, dtype=torch.float32)[:, None] * f
    cos, sin = Bf16(theta.cos())[:, None], Bf16(theta.sin())[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos + b * sin, b * cos - a * sin], -1)


def Mask(boundaries, window, rows=T):
    p = torch.arange(rows)
    document = torch.bucketize(p, torch.tensor(boundaries), right=True)
    distance = p[:, None] - p[None, :]
    return (document[:, None] == document[None, :]) & (distance >= 0) & (distance <= window)


def Attention(u, i, tokens, boundaries, w, value_table):
    stack = w[f"blocks.{i}.attn.qkvo_w"].reshape(4, DIM, DIM)
    q, k, v = [(u @ stack[j].T).reshape(T, HEADS, HEAD_DIM) for j in range(3)]
    q, k = Rotate(Rms(q)), Rotate(Rms(k))
    a = 3 * LAYERS + 2 * i
    v = w["scalars"][a] * v
    if value_table is not None:
        v = v + w["scalars"][a + 1] * value_table[tokens].reshape(T, HEADS, HEAD_DIM)
    scores = SCALE * torch.einsum("phd,jhd->hpj", q, k)
    mask = Mask(boundaries, LONG if i in (4, 11) else SHORT)
    p = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    o = torch.einsum("hpj,jhd->phd", p, v)
    gate = (u[:, :GATE] @ w[f"blocks.{i}.attn.attn_gate.weight"].T).sigmoid()
    return (o * gate[..., None]).reshape(T, DIM) @ stack[3].T


def Fp8(x, dtype, largest):
    return x.clamp(-largest, largest).to(torch.float32).to(dtype).to(torch.float64)


class Fp8Head(torch.autograd.Function):
    """logits = xs ws x8 w8^T; the backward products use e5m2 gradients and the same x8, w8."""

    @staticmethod
    def forward(ctx, x, w, scales):
        """scales: of x, of w [V, D], of the logits' gradient."""
        x8 = Fp8(x / scales[0], torch.float8_e4m3fn, 448.0)
        w8 = Fp8(w / scales[1], torch.float8_e4m3fn, 448.0)
        ctx.scales = scales
        ctx.save_for_backward(x8, w8)
        return scales[0] * scales[1] * (x8 @ w8.T)

    @staticmethod
    def backward(ctx, g):
        x8, w8 = ctx.saved_tensors
        x_scale, w_scale, g_scale = ctx.scales
        g8 = Fp8(g / g_scale, torch.float8_e5m2, 57344.0)
        return g_scale * w_scale * (g8 @ w8), x_scale * g_scale * (g8.T @ x8), None


def Losses(tokens, targets, boundaries, w, backout, fp8):
    s = w["scalars"]
    e = w["embed.weight"][tokens]
    gate = (e[1:, :GATE] @ w["smear_gate.weight"][0]).sigmoid()
    x = torch.cat([e[:1], e[1:] + s[5 * LAYERS] * gate[:, None] * e[:-1]])
    x = x0 = Rms(x)
    tables = {1: 1, 2: 2, 9: 0, 10: 1, 11: 2}
    saved = {}
    for i in range(1, LAYERS):
        if 6 <= i <= 10:
            x = x + s[i - 6].sigmoid() * saved[11 - i]
        x = s[LAYERS + 2 * i] * x + s[LAYERS + 2 * i + 1] * x0
        if i != 7:
            table = w[f"value_embeds.{tables[i]}.weight"] if i in tables else None
            x = x + Attention(Rms(x), i, tokens, boundaries, w, table)
        hidden = (Rms(x) @ w[f"blocks.{i}.mlp.c_fc"]).relu().square()
        x = x + hidden @ w[f"blocks.{i}.mlp.c_proj"].T
        saved[i] = x
    if backout:
        x = x - s[BACKOUT_SCALAR] * saved[BACKOUT_LAYER]
    x, head = Rms(x), w["lm_head.weight"]
    logits = Fp8Head.apply(x, head, FP8_SCALES) if fp8 else x @ head.T
    z = 30 * (logits / 7.5).sigmoid()
    return z.logsumexp(-1) - z.gather(-1, targets[:, None])[:, 0]


def Write(file, heads, make_weights, losses_of_slot):
    """losses_of_slot(tokens, targets, boundaries, weights, fp8) -> [T], for each head."""
    tokens, targets = Tokens()
    out = []
    for fp8 in heads:
        w = make_weights()
        losses = torch.stack(
            [losses_of_slot(tokens[k], targets[k], BOUNDARIES[k], w, fp8) for k in range(SLOTS)]
        )
        losses.sum().backward()
        out.append(losses.detach().to(torch.float32).numpy().tobytes())
        for name, weight in w.items():
            grad = weight.grad.to(torch.float32).to(torch.bfloat16)
            out.append(grad.view(torch.int16).numpy().tobytes())
            print(fp8, name, tuple(weight.shape), f"{weight.grad.norm():.4g}")
        print("mean loss", losses.mean().item(), w["scalars"].grad)
    (pathlib.Path(__file__).parent / file).write_bytes(b"".join(out))


def WriteRecord(file, backout, heads):
    def LossesOfSlot(tokens, targets, boundaries, w, fp8):
        return Losses(tokens, targets, boundaries, w, backout, fp8)

    Write(file, heads, lambda: Weights(backout), LossesOfSlot)


if __name__ == "__main__":
    WriteRecord("small_gpt.bin", backout=False, heads=(False, True))
    WriteRecord("small_gpt_backout.bin", backout=True, heads=(False,))
