"""Muon and AdamW of track 2's Record 7 on one device.

Gradients are means over slots of those of summed losses. The record's losses are means over a
slot's tokens: only Adam's epsilon, which is as many times larger here, and Newton-Schulz's, which
is negligible in both, see that factor.
"""

from __future__ import annotations

import math

import torch

from record7_weights import is_bf16
from record_model import Weights
from record_optimizer import bf16_values
from records import StreamRecord
from unified_optimizer import upper_half

BETA1, BETA2, ADAM_EPS = 0.8, 0.95, 1e-10
ADAM_LR = {"lm_head_w": 1 / 320, "scalars": 0.015, "embed.weight": 0.3}
ADAM_LR |= {f"value_embeds.{k}.weight": 0.3 for k in range(3)}
MATRIX_LR, MATRIX_DECAY = 0.025, 0.01
NEWTON_SCHULZ = [
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
]


# What rounds: each named stage, and each product and term within one.
PRECISIONS = {
    "bf16": (bf16_values, lambda x: x),
    "eager": (bf16_values, bf16_values),  # an operation of PyTorch at a time, as without compiling
    "f64": (torch.Tensor.double, lambda x: x),
}


def newton_schulz(u: torch.Tensor, precision: str = "bf16") -> torch.Tensor:
    """Of each of [B, r, c], on the transposes if they are tall."""
    if u.shape[-2] > u.shape[-1]:
        return newton_schulz(u.mT, precision).mT.contiguous()
    stage, term = PRECISIONS[precision]
    x = stage(u)
    x = stage(x / (x.square().sum((-1, -2), keepdim=True).sqrt() + 1e-7))
    for c1, c3, c5 in NEWTON_SCHULZ:
        a = stage(x @ x.mT)
        b = stage(term(c3 * a) + term(c5 * term(a @ a)))
        x = stage(term(c1 * x) + term(b @ x))
    return x


def adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, t: int, lr: float,
         eps: float) -> torch.Tensor:
    """The new p, not rounded; m and v change, neither rounded."""
    m.mul_(BETA1).add_((1 - BETA1) * g)
    v.mul_(BETA2).add_((1 - BETA2) * g.square())
    return p - lr / (1 - BETA1**t) * m / (v.sqrt() / math.sqrt(1 - BETA2**t) + eps)


def matrix_update(p: torch.Tensor, o: torch.Tensor, decay: float, lr: float) -> torch.Tensor:
    """p f32, whose upper half is the weight."""
    return p * (1 - decay) + o.float() * -lr


class Record7Optimizer:
    """Weights are f32 tensors; those that the record stores in bf16 hold bf16 values."""

    def __init__(self, weights: Weights, record: StreamRecord, precision: str = "bf16") -> None:
        """precision: of Newton-Schulz, one of PRECISIONS."""
        self.w = weights
        self.record = record
        self.precision = precision
        self.m = {n: torch.zeros_like(w) for n, w in weights.items()}
        self.v = {n: torch.zeros_like(weights[n]) for n in ADAM_LR}
        self.exact: Weights = {}  # the matrices with the 16 lower bits
        self.updates = 0

    @torch.no_grad()
    def step(self, gradients: Weights, step: int, lr_multiplier: float, momentum: float) -> None:
        """One update from the mean over slots of the gradients of summed losses."""
        del step  # all rules update in each
        self.updates += 1
        for name, gradient in gradients.items():
            g = bf16_values(gradient) if is_bf16(name) else gradient
            if name in ADAM_LR:
                self._adam(name, g, ADAM_LR[name] * lr_multiplier,
                           ADAM_EPS * self.record.slot_tokens)
            else:
                self._muon(name, g, MATRIX_LR * lr_multiplier, momentum)

    def _adam(self, name: str, g: torch.Tensor, lr: float, eps: float) -> None:
        p = adam(self.w[name], g, self.m[name], self.v[name], self.updates, lr, eps)
        self.w[name].copy_(bf16_values(p) if is_bf16(name) else p)
        if is_bf16(name):
            for state in (self.m, self.v):
                state[name].copy_(bf16_values(state[name]))

    def _muon(self, name: str, g: torch.Tensor, lr: float, momentum: float) -> None:
        w = self.w[name]
        m = self.m[name].mul_(momentum).add_((1 - momentum) * g)
        u = (momentum * m + (1 - momentum) * g).reshape(-1, *w.shape[-2:])
        o = newton_schulz(u, self.precision)
        decay = lr * MATRIX_DECAY * (1 if name.endswith("qkvo_w") else 2)
        lr *= math.sqrt(max(1, w.shape[-2] / w.shape[-1]))
        p = self.exact.setdefault(name, w.clone())
        p.copy_(matrix_update(p, o.view_as(p), decay, lr))
        w.copy_(upper_half(p))
