"""The model of track 2's Record 7 (2025-04-16) in eager torch.

As record_model.py: the record's formulas, chains of f32 arithmetic that are rounded once where the
record stores a bf16 tensor, f32 leaves as weights. As in unified_model.py attention runs over
blocks of queries and the head over chunks of rows; here the layers, too, are computed again by
backward, since slots have 65,536 tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from record_model import Batch, RoundedModel, Stage, Weights, rms, rotate
from records import StreamRecord
from unified_model import HEAD_ROWS, QUERY_BLOCK, attend_block, documents_of

LAYERS, NO_ATTENTION, LONG_LAYERS = 16, 7, (0, 4, 11, 15)
VALUE_TABLE = {0: 0, 1: 1, 2: 2, 13: 0, 14: 1, 15: 2}
SKIP_FROM = {9: 6, 10: 4, 11: 2}
# Places in `scalars`: skip weights by source layer, then pairs of each layer: of x and x0, of v and
# the value table.
RESIDUAL, VALUE = LAYERS, 3 * LAYERS


def rotary_tables(stage: Stage, tokens: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """cos and sin of f32 angles, f32 [T, 1, head_dim / 2]. Positions count through the slot."""
    theta = torch.arange(tokens, dtype=torch.float32)[:, None, None] * stage.frequencies.cpu()
    return theta.cos().to(device), theta.sin().to(device)


def block_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, documents: torch.Tensor,
                    window: int, block: int, scale: float) -> torch.Tensor:
    """q, k, v [S, T, heads, d]; a query sees its document's keys before it in its own block of
    `block` tokens and those before, `window` tokens of blocks in all and at least its own."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    tokens, blocks, out = q.shape[2], max(1, window // block), []
    for begin in range(0, tokens, QUERY_BLOCK):
        end = min(begin + QUERY_BLOCK, tokens)
        first = max(0, (begin // block - blocks + 1) * block)
        query = torch.arange(begin, end, device=q.device)[:, None]
        key = torch.arange(first, end, device=q.device)
        seen = (key <= query) & (query // block - key // block < blocks)
        mask = (seen & (documents[:, begin:end, None] == documents[:, None, first:end]))[:, None]
        out.append(checkpoint(attend_block, q[:, :, begin:end], k[:, :, first:end],
                              v[:, :, first:end], mask, scale, use_reentrant=False,
                              preserve_rng_state=False))
    return torch.cat(out, 2).transpose(1, 2)


def soft_cap(logits: torch.Tensor) -> torch.Tensor:
    return 15 * logits * (logits.square() + 225).rsqrt()


class Record7Model(RoundedModel):
    """The forward pass."""

    def __init__(self, weights: Weights, record: StreamRecord,
                 dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(weights, record, dtype)
        self.dim = weights["embed.weight"].shape[1]
        self.vocab = len(weights["lm_head_w"])
        self.head_dim = record.head_dim(self.dim)
        self.heads = self.dim // self.head_dim

    def attention(self, x: torch.Tensor, layer: int, tables: tuple[torch.Tensor, ...],
                  documents: torch.Tensor, stage: Stage, tokens: torch.Tensor) -> torch.Tensor:
        """Without a norm in front."""
        split = (*x.shape[:2], self.heads, self.head_dim)
        stack, s = self.w[f"blocks.{layer}.attn.qkvo_w"], self.w["scalars"]
        qkv = self.matmul(x, stack[:3].flatten(0, 1).T)
        q, k, v = (rms(t.reshape(split)) for t in qkv.chunk(3, -1))
        q, k = (self.round(rotate(t, tables)) for t in (q, k))
        v = s[VALUE + 2 * layer] * v
        if layer in VALUE_TABLE:
            rows = self.lookup(f"value_embeds.{VALUE_TABLE[layer]}.weight", tokens)
            v = v + s[VALUE + 2 * layer + 1] * rows.reshape(split).float()
        window = stage.long_window if layer in LONG_LAYERS else stage.short_window
        o = block_attention(q, k, self.round(v), documents, window, stage.block_tokens,
                            stage.attention_scale)
        return self.matmul(o.flatten(2), stack[3].T)

    def mlp(self, u: torch.Tensor, layer: int) -> torch.Tensor:
        pre = self.matmul(u, self.w[f"blocks.{layer}.mlp.fc_w"].T)
        return self.matmul(self.round(pre.float().relu().square()),
                           self.w[f"blocks.{layer}.mlp.proj_w"].T)

    def layer(self, x: torch.Tensor, x0: torch.Tensor, skipped: torch.Tensor | None, i: int,
              tables: tuple[torch.Tensor, ...], documents: torch.Tensor, stage: Stage,
              tokens: torch.Tensor) -> torch.Tensor:
        s, y = self.w["scalars"], x.float()
        if skipped is not None:
            y = y + s[SKIP_FROM[i]] * skipped.float()
        x = self.round(s[RESIDUAL + 2 * i] * y + s[RESIDUAL + 2 * i + 1] * x0.float())
        if i != NO_ATTENTION:
            x = x + self.attention(x, i, tables, documents, stage, tokens)
        return x + self.mlp(self.round(rms(x)), i)

    def last_stream(self, batch: Batch, stage: Stage) -> torch.Tensor:
        """[S, T, D], the head's input."""
        slot_tokens = batch.tokens.shape[1]
        tables = rotary_tables(stage, slot_tokens, batch.tokens.device)
        documents = documents_of(batch.boundaries, slot_tokens)
        x = x0 = self.round(rms(self.lookup("embed.weight", batch.tokens)))
        saved: dict[int, torch.Tensor] = {}
        for i in range(LAYERS):
            x = checkpoint(self.layer, x, x0, saved.get(SKIP_FROM.get(i)), i, tables, documents,
                           stage, batch.tokens, use_reentrant=False, preserve_rng_state=False)
            if i in SKIP_FROM.values():
                saved[i] = x
        return self.round(rms(x))

    def head_losses(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """f32 [n]; lm_head_w is rounded for the product, in f32 too, and its gradient passes."""
        head = self.w["lm_head_w"].bfloat16().float()
        z = soft_cap(self.matmul(x, head.T).float())
        return z.logsumexp(-1) - z.gather(-1, targets[:, None])[:, 0]

    def losses(self, batch: Batch, stage: Stage) -> torch.Tensor:
        """Losses of training, f32 [S, T]."""
        x, targets = self.last_stream(batch, stage).flatten(0, 1), batch.targets.flatten()
        runs = [slice(first, first + HEAD_ROWS) for first in range(0, len(x), HEAD_ROWS)]
        parts = [checkpoint(self.head_losses, x[run], targets[run], use_reentrant=False,
                            preserve_rng_state=False) for run in runs]
        return torch.cat(parts).reshape(batch.tokens.shape)
