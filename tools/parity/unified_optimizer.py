"""NorMuon and Adam of the record of 2026-01-18 (Unified Optimizers) on one device.

Gradients stay f32 until a rule reads them; those of bf16 weights are rounded to bf16 there, once,
where the original rounds them after every pass and sums them in bf16.
"""

from __future__ import annotations

import math

import torch

from record_model import Weights, is_bf16
from record_optimizer import bf16_values, orthogonalize
from records import UnifiedRecord

ADAM_LR, ADAM_DECAY, ADAM_EPS = 0.008, 0.005, 1e-10
# lr multiplier, decay multiplier, beta1, beta2
ADAM = {
    "scalars": (5, 0, 0.9, 0.99),
    "smear_gate.weight": (0.01, 0, 0.9, 0.99),
    "skip_gate.weight": (0.05, 0, 0.9, 0.99),
    "attn_gate_bank": (1, 1, 0.9, 0.99),
    "ve_gate_bank": (1, 1, 0.9, 0.99),
    "x0_lambdas": (5, 0, 0.65, 0.95),
    "lm_head.weight": (1, 150, 0.5, 0.95),
    "embed.weight": (1, 150, 0.5, 0.95),
} | {f"value_embeds.{k}.weight": (75, 5, 0.75, 0.95) for k in range(3)}
MATRIX_LR, MATRIX_DECAY, LANE_BETA2 = 0.023, 1.2, 0.95
HEAD, EMBED = "lm_head.weight", "embed.weight"


def adam_decay(lr: float, decay_factor: float) -> float:
    return lr * lr * ADAM_DECAY * decay_factor


def cautious_adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, t: int,
                  lr: float, decay: float, beta1: float, beta2: float) -> torch.Tensor:
    """The new p, not rounded; m and v change. Only where the update makes p smaller it decays."""
    m.mul_(beta1).add_((1 - beta1) * g)
    v.mul_(beta2).add_((1 - beta2) * g.square())
    u = m / (v.sqrt() + ADAM_EPS) * (lr * math.sqrt(1 - beta2**t) / (1 - beta1**t))
    u = torch.where(u * p > 0, u + p * decay, u)
    return p - u


def polar(n: torch.Tensor) -> torch.Tensor:
    """Polar Express of each of [B, r, c], on the transposes if they are tall. bf16."""
    if n.shape[-2] > n.shape[-1]:
        return orthogonalize(n.mT, polar_express=True).mT.contiguous()
    return orthogonalize(n, polar_express=True)


def normalize_lanes(o: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """o [B, r, c] over the root of its rows' second moments [B, r, 1], which change; each matrix's
    norm stays. The record has no matrix with fewer rows than columns."""
    columns = o.shape[-1]
    q = o.float().square().mean(-1, keepdim=True)
    second.lerp_(q, 1 - LANE_BETA2)
    k = second.clamp(min=1e-10).rsqrt()
    before = (columns * q.sum(-2, keepdim=True)).sqrt()
    after = (columns * (q * k.square()).sum(-2, keepdim=True)).sqrt()
    return (o.float() * (k * (before / after.clamp(min=1e-10)))).bfloat16()


def cautious_matrix_update(p: torch.Tensor, o: torch.Tensor, decay: float,
                           lr: torch.Tensor) -> torch.Tensor:
    """p f32, whose upper half is the weight. A zero update decays too."""
    o = o.float()
    return p - ((p * (o * p >= 0)) * decay) * lr - o * lr


def upper_half(p: torch.Tensor) -> torch.Tensor:
    """f32 truncated to bf16 values."""
    return (p.view(torch.int32) & -65536).view(torch.float32)


class UnifiedOptimizer:
    """Weights are f32 tensors; those that the record stores in bf16 hold bf16 values."""

    ADAM = ADAM
    BANKS = ("attn_bank", "mlp_bank")

    def __init__(self, weights: Weights, record: UnifiedRecord) -> None:
        self.w = weights
        self.record = record
        self.m = {n: torch.zeros_like(w) for n, w in weights.items()}
        self.v = {n: torch.zeros_like(weights[n]) for n in ADAM}
        self.updates = dict.fromkeys(ADAM, 0)
        self.pending: Weights = {}  # Adam's gradients of even steps
        self.second: Weights = {}
        self.exact: Weights = {}  # the banks with the 16 lower bits
        self.was_tied = False

    @torch.no_grad()
    def step(self, gradients: Weights, step: int, lr_multiplier: float, momentum: float,
             tied: bool) -> None:
        """One update from the mean over slots of the gradients of summed losses."""
        if self.was_tied and not tied:
            self._untie()
        self.was_tied = tied
        for name in ADAM:
            self.pending[name] = self.pending.get(name, 0) + gradients[name]
        due = [n for n in ADAM if (step + 1) % self._every(n) == 0]
        if due:
            self._adam_step({n: self.pending.pop(n) for n in due}, lr_multiplier, tied)
        for name in self.BANKS:
            self._matrices(name, gradients[name], lr_multiplier, momentum)

    def _every(self, name: str) -> int:
        """Steps from one update to the next."""
        del name
        return 2

    def _adam_rates(self, name: str) -> tuple[float, ...]:
        return self.ADAM[name]

    def _adam_step(self, sums: Weights, lr_multiplier: float, tied: bool) -> None:
        if tied:
            sums[HEAD] = sums[HEAD] + sums.pop(EMBED).T
        for name, g in sums.items():
            lr_factor, decay_factor, beta1, beta2 = self._adam_rates(name)
            self.updates[name] += 1
            lr = ADAM_LR * lr_factor * lr_multiplier
            p = cautious_adam(self.w[name], bf16_values(g) if is_bf16(name) else g, self.m[name],
                              self.v[name], self.updates[name], lr, adam_decay(lr, decay_factor),
                              beta1, beta2)
            self.w[name].copy_(bf16_values(p) if is_bf16(name) else p)
        if tied:
            self.w[EMBED].copy_(self.w[HEAD].T)

    def _untie(self) -> None:
        """The embedding goes on with the head's moments."""
        for state in (self.m, self.v):
            state[EMBED].copy_(state[HEAD].T)
        self.updates[EMBED] = self.updates[HEAD]

    def _matrices(self, name: str, gradient: torch.Tensor, lr_multiplier: float,
                  momentum: float) -> None:
        """NorMuon."""
        w, columns = self.w[name], self.w[name].shape[-1]
        g = bf16_values(gradient)
        m = self.m[name].lerp_(g, 1 - momentum)
        rows = columns if name == "attn_bank" else w.shape[-2]
        o = polar(torch.lerp(g, m, momentum).reshape(-1, rows, columns))
        if name not in self.second:
            self.second[name] = o.new_zeros((len(o), rows, 1), dtype=torch.float32)
            self.exact[name] = w.clone()
        o = normalize_lanes(o, self.second[name])
        lr = torch.full((len(o), 1, 1), MATRIX_LR * lr_multiplier, device=w.device)
        lr *= max(1, rows / columns) ** 0.5
        if name == "mlp_bank":
            lr[1::2] *= 2  # c_proj
        p = self.exact[name]
        p.copy_(cautious_matrix_update(p.view_as(o), o, MATRIX_LR * MATRIX_DECAY * lr_multiplier,
                                       lr).view_as(p))
        w.copy_(upper_half(p))
