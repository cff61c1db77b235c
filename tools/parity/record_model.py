"""The model of the records of 2025-09-23 (Muon Custom Sizing) and 2025-10-27 (FixMuonLR), in eager
torch.

An instrument to measure the C++ model with: the same formulas and names, none of its code.
Tensors that the record holds in bf16 are rounded once, at the end of a chain of f32 arithmetic;
gradients are autograd's, so they are rounded where the chains begin. All weights are f32 leaves
(bf16 ones hold bf16 values), so that gradients of all passes add up in f32.

S slots of T tokens go through at once; nothing is mixed between slots.
"""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F

from records import Record

EPS = 1.1920929e-07  # of all rms norms
GATE = 12  # features that the gates read
LAYERS = 12
SKIP_FROM = {6: 5, 7: 4, 8: 3, 9: 2, 10: 1}
VALUE_TABLE = {1: 1, 2: 2, 9: 0, 10: 1, 11: 2}
LONG_LAYERS = (4, 11)
NO_ATTENTION = (0, 7)

Weights = dict[str, torch.Tensor]


@dataclasses.dataclass
class Batch:
    """tokens, targets: int64 [S, T]; boundaries: int64 [S, n], starts of documents, then T."""

    tokens: torch.Tensor
    targets: torch.Tensor
    boundaries: torch.Tensor


@dataclasses.dataclass
class Stage:
    """What the schedules say about a forward pass."""

    short_window: int  # tokens; a query sees that many keys before itself
    long_window: int
    attention_scale: float
    frequencies: torch.Tensor  # f32 [head_dim / 2]
    loss_weights: tuple[float, ...] = (1.0,)  # of the tokens 1, 2, ... ahead
    block_tokens: int = 0  # where windows are of whole blocks


def is_bf16(name: str) -> bool:
    """Whether the record stores the weight in bf16."""
    return name.endswith((".weight", "_bank"))


def rms(x: torch.Tensor) -> torch.Tensor:
    """f32, over the last axis."""
    x = x.float()
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt()


def rotary_tables(stage: Stage, tokens: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """cos and sin, [T, 1, head_dim / 2], with bf16 values. Positions count through the slot."""
    position = torch.arange(tokens, dtype=torch.float32)[:, None, None]
    theta = position * stage.frequencies.float().cpu()
    return tuple(t.bfloat16().float().to(device) for t in (theta.cos(), theta.sin()))


def rotate(x: torch.Tensor, tables: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """x [S, T, heads, head_dim], turned by -theta."""
    cos, sin = tables
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos + b * sin, b * cos - a * sin], -1)


def attention_mask(boundaries: torch.Tensor, tokens: int, window: int) -> torch.Tensor:
    """bool [S, 1, T, T]: same document and 0 <= query - key <= window."""
    p = torch.arange(tokens, device=boundaries.device)
    document = (boundaries[:, None, :] <= p[None, :, None]).sum(-1)
    distance = p[:, None] - p[None, :]
    near = (distance >= 0) & (distance <= window)
    return ((document[:, :, None] == document[:, None, :]) & near)[:, None]


def saturated(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x rounded to an fp8 type, as f32."""
    largest = torch.finfo(dtype).max
    return x.float().clamp(-largest, largest).to(dtype).float()


class Fp8Head(torch.autograd.Function):
    """logits = x_scale w_scale x8 w8^T, products of dequantised values in f32.

    The gradient of the logits is rounded to e5m2; x8 and w8 are those of the forward pass.
    """

    @staticmethod
    def forward(ctx, x: torch.Tensor, w: torch.Tensor, x_scale: float, w_scale: float,
                grad_scale: float) -> torch.Tensor:
        """x [..., D], w [V, D]."""
        ctx.x_scale, ctx.w_scale, ctx.grad_scale = x_scale, w_scale, grad_scale
        x8 = saturated(x.float() / ctx.x_scale, torch.float8_e4m3fn)
        w8 = saturated(w.float() / ctx.w_scale, torch.float8_e4m3fn)
        ctx.save_for_backward(x8, w8)
        ctx.x_dtype = x.dtype
        return (ctx.x_scale * ctx.w_scale * (x8 @ w8.T)).to(x.dtype)

    @staticmethod
    def backward(ctx, dlogits: torch.Tensor):
        x8, w8 = ctx.saved_tensors
        scale = ctx.grad_scale
        g8 = saturated(dlogits.float() / scale, torch.float8_e5m2)
        dx = (scale * ctx.w_scale * (g8 @ w8)).to(ctx.x_dtype)
        dw = ctx.x_scale * scale * (g8.flatten(0, -2).T @ x8.flatten(0, -2))
        return dx, dw, None, None, None


class RoundedModel:
    """What the models share. `dtype`: bf16 as the records, or f32 to see what rounding does."""

    def __init__(self, weights: Weights, record, dtype: torch.dtype) -> None:
        self.w = weights
        self.record = record
        self.dtype = dtype

    def round(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype)

    def matmul(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """x w, summed in f32, rounded once; w is a weight that is not yet rounded."""
        w = self.round(w)
        if x.is_cuda or self.dtype == torch.float32:
            return x @ w
        return self.round(x.float() @ w.float())  # not every CPU sums bf16 products in f32

    def lookup(self, name: str, tokens: torch.Tensor) -> torch.Tensor:
        return self.round(F.embedding(tokens, self.w[name]))


class RecordModel(RoundedModel):
    """The forward pass."""

    def __init__(self, weights: Weights, record: Record,
                 dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(weights, record, dtype)
        self.vocab, self.dim = weights["embed.weight"].shape
        self.heads = weights["blocks.1.attn.attn_gate.weight"].shape[0]
        self.head_dim = self.dim // self.heads

    def smear(self, e: torch.Tensor) -> torch.Tensor:
        before, here = e[:, :-1].float(), e[:, 1:].float()
        gate = (here[..., :GATE] @ self.w["smear_gate.weight"][0]).sigmoid()[..., None]
        smeared = here + self.w["scalars"][5 * LAYERS] * gate * before
        return self.round(torch.cat([e[:, :1].float(), smeared], 1))

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor,
               scale: float) -> torch.Tensor:
        """q, k, v [S, T, heads, head_dim]."""
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if q.is_cuda and self.dtype == torch.bfloat16:
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        else:
            scores = scale * (q.float() @ k.float().transpose(-1, -2))
            p = scores.masked_fill(~mask, float("-inf")).softmax(-1)
            o = self.round(p @ v.float())
        return o.transpose(1, 2)

    def attention(self, u: torch.Tensor, layer: int, tables: tuple[torch.Tensor, ...],
                  mask: torch.Tensor, scale: float, value: torch.Tensor | None) -> torch.Tensor:
        slots, tokens, dim = u.shape
        split = (slots, tokens, self.heads, self.head_dim)
        stack = self.w[f"blocks.{layer}.attn.qkvo_w"].view(4, dim, dim)
        qkv = self.matmul(u, stack[:3].reshape(3 * dim, dim).T)
        q, k, v = (t.reshape(split) for t in qkv.chunk(3, -1))
        q, k = (self.round(rotate(rms(t), tables)) for t in (q, k))
        a = 3 * LAYERS + 2 * layer
        mixed = self.w["scalars"][a] * v.float()
        if value is not None:
            mixed = mixed + self.w["scalars"][a + 1] * value.reshape(split).float()
        o = self.attend(q, k, self.round(mixed), mask, scale)
        gate = (u[..., :GATE].float() @ self.w[f"blocks.{layer}.attn.attn_gate.weight"].T).sigmoid()
        y = self.round(o.float() * gate[..., None])
        return self.matmul(y.reshape(slots, tokens, dim), stack[3].T)

    def mlp(self, u: torch.Tensor, layer: int) -> torch.Tensor:
        a = self.matmul(u, self.w[f"blocks.{layer}.mlp.c_fc"])
        b = self.round(a.float().relu().square())
        return self.matmul(b, self.w[f"blocks.{layer}.mlp.c_proj"].T)

    def mix(self, x: torch.Tensor, x0: torch.Tensor, saved: dict[int, torch.Tensor],
            layer: int) -> torch.Tensor:
        """Skip connection and block lambdas."""
        s, y = self.w["scalars"], x.float()
        if layer in SKIP_FROM:
            y = y + s[layer - LAYERS // 2].sigmoid() * saved[SKIP_FROM[layer]].float()
        at = LAYERS + 2 * layer
        return self.round(s[at] * y + s[at + 1] * x0.float())

    def losses(self, batch: Batch, stage: Stage) -> torch.Tensor:
        """Losses of training, f32 [S, T]."""
        tokens = batch.tokens.shape[1]
        tables = rotary_tables(stage, tokens, batch.tokens.device)
        masks = [attention_mask(batch.boundaries, tokens, w)
                 for w in (stage.short_window, stage.long_window)]
        values = [self.lookup(f"value_embeds.{k}.weight", batch.tokens) for k in range(3)]
        x = self.round(rms(self.smear(self.lookup("embed.weight", batch.tokens))))
        x0, saved = x, {}
        for i in range(1, LAYERS):
            x = self.mix(x, x0, saved, i)
            if i not in NO_ATTENTION:
                value = values[VALUE_TABLE[i]] if i in VALUE_TABLE else None
                x = x + self.attention(self.round(rms(x)), i, tables, masks[i in LONG_LAYERS],
                                       stage.attention_scale, value)
            x = x + self.mlp(self.round(rms(x)), i)
            saved[i] = x
        backout = self.record.backout_layer
        if backout is not None:
            lambda_b = self.w["scalars"][5 * LAYERS + 1]
            x = self.round(x.float() - lambda_b * saved[backout].float())
        logits = Fp8Head.apply(self.round(rms(x)), self.w["lm_head.weight"],
                               math.sqrt(self.dim) / 448, 2.0**-9, 1 / 448).float()
        z = 30 * (logits / 7.5).sigmoid()
        return z.logsumexp(-1) - z.gather(-1, batch.targets[..., None])[..., 0]


def add_gradients(model: RecordModel, batch: Batch, stage: Stage,
                  slots_per_pass: int) -> torch.Tensor:
    """Adds the gradients of the slots' summed losses to the weights' .grad; f32 [S] losses."""
    sums = []
    for first in range(0, len(batch.tokens), slots_per_pass):
        run = slice(first, first + slots_per_pass)
        part = Batch(batch.tokens[run], batch.targets[run], batch.boundaries[run])
        losses = model.losses(part, stage).sum(-1)
        losses.sum().backward()
        sums.append(losses.detach())
    return torch.cat(sums)
