"""The model of the record of 2026-01-18 (Unified Optimizers) in eager torch.

As record_model.py: the record's formulas, chains of f32 arithmetic that are rounded once where the
record stores a bf16 tensor, f32 leaves as weights. Nothing is mixed between slots.

Attention runs over blocks of queries, each with the keys that its window reaches, so no T x T mask
exists; the head runs over chunks of rows, whose logits backward computes again.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from record_model import GATE, Batch, Fp8Head, RoundedModel, Stage, Weights, rms, rotary_tables
from records import UnifiedRecord

LAYERS = 11
ATTENTION_LAYERS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 10)  # slot of the attention banks -> layer
VALUE_LAYERS = (0, 1, 8, 9, 10)  # row of ve_gate_bank -> layer
VALUE_TABLE = {0: 1, 1: 2, 8: 0, 9: 1, 10: 2}
PAIRED_LAYERS, LONG_LAYERS = (0, 2, 5, 9), (3, 10)
SKIP_FROM, SKIP_TO, BACKOUT_LAYER = 3, 6, 7
# Places in `scalars`: residual lambdas, pairs of factors of QKV and of O, then these.
FACTORS, SMEAR, BACKOUT, SKIP = LAYERS, 33, 34, 35
FP8_SCALES = (100 / 448, 1.6 / 448, 0.75 / 448)
QUERY_BLOCK, HEAD_ROWS = 1024, 8192


def rotate_neighbours(x: torch.Tensor, tables: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Features 2k and 2k + 1 of x [S, T, heads, head_dim], turned by -theta. f32."""
    cos, sin = tables
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos + b * sin, b * cos - a * sin], -1).flatten(-2)


def paired_tables(tables: tuple[torch.Tensor, ...], heads: int) -> tuple[torch.Tensor, ...]:
    """[2 T, 1, half] -> [T, heads, half]: token t's even heads stand at 2t, its odd ones at 2t + 1.
    """
    half = tables[0].shape[-1]
    return tuple(t.reshape(-1, 2, half).repeat(1, heads // 2, 1) for t in tables)


def offset_keys(k: torch.Tensor) -> torch.Tensor:
    """[S, T, heads, d]: features [d/4, d/2) and [3d/4, d) come from the position before."""
    quarter = k.shape[-1] // 4
    before = torch.cat([k[:, :1], k[:, :-1]], 1)
    parts = [(k, before)[j % 2][..., j * quarter : (j + 1) * quarter] for j in range(4)]
    return torch.cat(parts, -1)


def pairs(x: torch.Tensor) -> torch.Tensor:
    """[S, T, heads, d] -> [S, 2 T, heads / 2, d], the same memory: the second half of a token's
    heads follows the first half as a token of its own."""
    slots, tokens, heads, d = x.shape
    return x.reshape(slots, 2 * tokens, heads // 2, d)


def documents_of(boundaries: torch.Tensor, tokens: int) -> torch.Tensor:
    """[S, T]: which document each token belongs to."""
    p = torch.arange(tokens, device=boundaries.device)
    return torch.searchsorted(boundaries.contiguous(), p.expand(len(boundaries), -1).contiguous(),
                              right=True)


def attend_block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor,
                 scale: float) -> torch.Tensor:
    """[S, heads, queries, d] of q and [S, heads, keys, d]; f32, or bf16 on a GPU."""
    if q.is_cuda and q.dtype == torch.bfloat16:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    scores = scale * (q.float() @ k.float().transpose(-1, -2))
    p = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return (p @ v.float()).to(q.dtype)


def windowed_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, documents: torch.Tensor,
                       window: int, scale: float) -> torch.Tensor:
    """q, k, v [S, T, heads, d]; a query sees its document's keys up to `window` before it."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    tokens, out = q.shape[2], []
    for begin in range(0, tokens, QUERY_BLOCK):
        end, first = min(begin + QUERY_BLOCK, tokens), max(0, begin - window)
        at = torch.arange(begin, end, device=q.device)[:, None]
        distance = at - torch.arange(first, end, device=q.device)
        same = documents[:, begin:end, None] == documents[:, None, first:end]
        mask = (same & (distance >= 0) & (distance <= window))[:, None]
        out.append(checkpoint(attend_block, q[:, :, begin:end], k[:, :, first:end],
                              v[:, :, first:end], mask, scale, use_reentrant=False,
                              preserve_rng_state=False))
    return torch.cat(out, 2).transpose(1, 2)


def capped_losses(logits: torch.Tensor, targets: torch.Tensor,
                  target_weights: torch.Tensor) -> torch.Tensor:
    """Sum over k of target_weights[k] times the cross entropy of targets[k]; logits f32 [n, V],
    targets and weights [K, n]."""
    z = 23 * ((logits + 5) / 7.5).sigmoid()
    picked = z.gather(-1, targets.T)
    return (target_weights.T * (z.logsumexp(-1)[:, None] - picked)).sum(-1)


def targets_ahead(targets: torch.Tensor, loss_weights: tuple[float, ...]):
    """Targets and weights [K, S, T] of the tokens 1, 2, ... ahead; those beyond the slot's end have
    weight 0."""
    ahead = [F.pad(targets[:, k:], (0, k)) for k in range(len(loss_weights))]
    weights = []
    for k, value in enumerate(loss_weights):
        row = torch.full(targets.shape, value, device=targets.device)
        row[:, targets.shape[1] - k :] = 0
        weights.append(row)
    return torch.stack(ahead), torch.stack(weights)


class UnifiedModel(RoundedModel):
    """The forward pass."""

    def __init__(self, weights: Weights, record: UnifiedRecord,
                 dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(weights, record, dtype)
        self.fp8_head = True
        self.vocab, self.dim = weights["embed.weight"].shape
        self.heads = weights["attn_gate_bank"].shape[1]
        self.head_dim = self.dim // self.heads

    def gate(self, u: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """f32 in (0, 1): [..., rows of weight]."""
        return (u[..., :GATE].float() @ weight.T).sigmoid()

    def smear(self, e: torch.Tensor) -> torch.Tensor:
        """f32; the first token has none before it."""
        before, here = e[:, :-1].float(), e[:, 1:].float()
        smeared = here + self.w["scalars"][SMEAR] * self.gate(
            here, self.w["smear_gate.weight"]) * before
        return torch.cat([e[:, :1].float(), smeared], 1)

    def mix(self, x: torch.Tensor, x0: torch.Tensor, skipped: torch.Tensor | None,
            layer: int) -> torch.Tensor:
        """The skip connection into its layer, and the weights of stream and x0."""
        s, y = self.w["scalars"], x.float()
        if layer == SKIP_TO:
            gate = 2 * self.gate(x0, self.w["skip_gate.weight"])
            y = y + s[SKIP].sigmoid() * gate * skipped.float()
        return self.round(s[layer] * y + self.w["x0_lambdas"][layer] * x0.float())

    def attention_weights(self, slot: int) -> torch.Tensor:
        """Q, K, V and O [4 D, D]."""
        return self.w["attn_bank"][slot]

    def attention(self, u: torch.Tensor, layer: int, tables: dict[bool, tuple[torch.Tensor, ...]],
                  documents: torch.Tensor, stage: Stage, tokens: torch.Tensor) -> torch.Tensor:
        split = (*u.shape[:2], self.heads, self.head_dim)
        slot, s, dim = ATTENTION_LAYERS.index(layer), self.w["scalars"], self.dim
        paired, long = layer in PAIRED_LAYERS, layer in LONG_LAYERS
        bank = self.attention_weights(slot)
        qkv = self.matmul(u, (s[FACTORS + 2 * layer] * bank[: 3 * dim]).T)
        q, k, v = (t.reshape(split) for t in qkv.chunk(3, -1))
        q, k = (rotate_neighbours(rms(t), tables[paired]) for t in (q, k))
        q, k = self.round(q), self.round(offset_keys(k) if long else k)
        if layer in VALUE_TABLE:
            gate = 2 * self.gate(u, self.w["ve_gate_bank"][VALUE_LAYERS.index(layer)])
            rows = self.lookup(f"value_embeds.{VALUE_TABLE[layer]}.weight", tokens)
            v = self.round(v.float() + gate[..., None] * rows.reshape(split).float())
        window = stage.long_window if long else stage.short_window
        if paired:
            q, k, v = pairs(q), pairs(k), pairs(v)
            documents = documents.repeat_interleave(2, dim=1)
        o = windowed_attention(q, k, v, documents, window, stage.attention_scale)
        y = self.round(o.reshape(split).float()
                       * self.gate(u, self.w["attn_gate_bank"][slot])[..., None])
        return self.matmul(y.flatten(2), (s[FACTORS + 2 * layer + 1] * bank[3 * dim :]).T)

    def mlp(self, u: torch.Tensor, layer: int) -> torch.Tensor:
        c_fc, c_proj = self.w["mlp_bank"][layer]
        pre = self.matmul(u, c_fc.T)
        return self.matmul(self.round(pre.float().relu().square()), c_proj)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """f32 of the rounded products [n, V] of training's head."""
        if self.fp8_head:
            return Fp8Head.apply(x, self.w["lm_head.weight"].T, *FP8_SCALES).float()
        return self.matmul(x, self.w["lm_head.weight"]).float()

    def last_stream(self, batch: Batch, stage: Stage) -> torch.Tensor:
        """[S, T, D], the head's input."""
        slot_tokens = batch.tokens.shape[1]
        twice = rotary_tables(stage, 2 * slot_tokens, batch.tokens.device)
        tables = {False: tuple(t[:slot_tokens] for t in twice),
                  True: paired_tables(twice, self.heads)}
        documents = documents_of(batch.boundaries, slot_tokens)
        x = x0 = self.round(rms(self.smear(self.lookup("embed.weight", batch.tokens))))
        saved: dict[int, torch.Tensor] = {}
        for i in range(LAYERS):
            x = self.mix(x, x0, saved.get(SKIP_FROM), i)
            if i in ATTENTION_LAYERS:
                x = x + self.attention(self.round(rms(x)), i, tables, documents, stage,
                                       batch.tokens)
            x = x + self.mlp(self.round(rms(x)), i)
            if i in (SKIP_FROM, BACKOUT_LAYER):
                saved[i] = x
        backed_out = x.float() - self.w["scalars"][BACKOUT] * saved[BACKOUT_LAYER].float()
        return self.round(rms(backed_out))

    def losses(self, batch: Batch, stage: Stage) -> torch.Tensor:
        """Losses of training, f32 [S, T]: of each token, the weighed sum of those ahead."""
        x = self.last_stream(batch, stage).flatten(0, 1)
        targets, weights = (t.flatten(1) for t in targets_ahead(batch.targets, stage.loss_weights))
        chunk = lambda x, targets, weights: capped_losses(self.logits(x), targets, weights)
        runs = [slice(first, first + HEAD_ROWS) for first in range(0, len(x), HEAD_ROWS)]
        parts = [checkpoint(chunk, x[run], targets[:, run], weights[:, run], use_reentrant=False,
                            preserve_rng_state=False) for run in runs]
        return torch.cat(parts).reshape(batch.tokens.shape)
