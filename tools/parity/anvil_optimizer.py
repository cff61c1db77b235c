"""The optimizer of the mainline after ANVIL (pull request 360) on one device: its matrix rule, and
the Adam of 2026-01-18 with its rates.

As in unified_optimizer.py gradients stay f32 until a rule reads them. Where one singular value is
nearly alone the cascade has the margin of //optim:anvil_cascade, not the original's.
"""

from __future__ import annotations

import torch

import unified_optimizer as uo
from record_model import Weights
from record_optimizer import bf16_values
from records import UnifiedRecord

CASCADE = [
    (3.923798038567, -6.095026865488, 3.905234618423),
    (3.278126713798, -3.328923386476, 0.989127286973),
    (3.505298394150, -5.137358782410, 1.968325560615),
    (2.815058591845, -3.685181239622, 1.417196497642),
    (2.245503932403, -2.443826979899, 0.963091710461),
    (2.256537145403, -2.166840097229, 0.929501253245),
]
MARGIN, LONE_MARGIN, LONE_SHARE, EPS = 1.05, 1.1, 0.97, 1e-6
MATRIX_LR, MATRIX_DECAY, LANE_BETA2 = 0.023, 2.25, 0.9
SLOW_RATE, FAST_BETA, FAST_WEIGHT = 0.02, 0.85, 0.4385
DEAD_SLOT = 11  # of the MLP bank
VALUE_LR = 70


def twin_rails(g: torch.Tensor, fast: torch.Tensor, slow: torch.Tensor, lookahead: float,
               engaged: bool) -> torch.Tensor:
    """The direction; both rails change."""
    beta, weight = (FAST_BETA, FAST_WEIGHT) if engaged else (lookahead, 1.0)
    fast.lerp_(g, 1 - beta)
    slow.lerp_(g, SLOW_RATE)
    return torch.lerp(g, torch.lerp(slow, fast, weight), lookahead)


def cascade(u: torch.Tensor, dtype: torch.dtype = torch.bfloat16, lone: bool = True) -> torch.Tensor:
    """Of each of [B, r, c]; `dtype` at each named stage, sums in f32 or, for f64, in f64."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    stored = lambda t: t.to(dtype).to(wide)
    x = stored(u)
    tall = x.shape[-2] > x.shape[-1]
    gram = lambda x: stored(x.mT @ x if tall else x @ x.mT)
    a = gram(x)
    trace = a.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
    share = (a / trace).square().sum((-1, -2), keepdim=True)
    margin = torch.where(share > LONE_SHARE, LONE_MARGIN if lone else MARGIN, MARGIN).to(wide)
    size = margin * trace.sqrt() + EPS
    x, a = stored(x / size), stored(a / size / size)
    for k, (c1, c3, c5) in enumerate(CASCADE):
        if k > 0:
            a = gram(x)
        y = stored(c3 * a + c5 * (a @ a))
        x = stored(c1 * x + (x @ y if tall else y @ x))
    return x.to(dtype)


def normalize_lanes(o: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """One lane a row of matrices that are not wide, [B, r, 1], else one a column, [B, 1, c]; each
    matrix's norm stays."""
    along = -1 if second.shape[-1] == 1 else -2
    count = o.shape[along]
    q = o.float().square().mean(along, keepdim=True)
    second.lerp_(q, 1 - LANE_BETA2)
    k = second.clamp(min=1e-10).rsqrt()
    before = (count * q.sum((-1, -2), keepdim=True)).sqrt()
    after = (count * (q * k.square()).sum((-1, -2), keepdim=True)).sqrt()
    return (o.float() * (k * (before / after.clamp(min=1e-10)))).to(o.dtype)


def gated_update(p: torch.Tensor, o: torch.Tensor, gate: torch.Tensor, decay: float,
                 lr: torch.Tensor) -> torch.Tensor:
    """p f32, whose upper half is the weight. Decay where the gate and p agree, or either is 0."""
    o = o.float()
    return p - ((p * (gate * p >= 0)) * decay) * lr - o * lr


class AnvilOptimizer(uo.UnifiedOptimizer):
    """Weights are f32 tensors; those that the record stores in bf16 hold bf16 values."""

    ADAM = uo.ADAM | {n: (VALUE_LR, *rates[1:]) for n, rates in uo.ADAM.items()
                      if n.startswith("value_embeds")}
    BANKS = ("qk_bank", "vo_bank", "mlp_bank")

    def __init__(self, weights: Weights, record: UnifiedRecord, precision: str = "bf16") -> None:
        """precision: of the cascade, bf16 or f64."""
        super().__init__(weights, record)
        dtypes = {"bf16": torch.bfloat16, "f64": torch.float64}
        if precision not in dtypes:
            raise ValueError(f"precision {precision}: the cascade has {', '.join(dtypes)}")
        self.dtype = dtypes[precision]
        self.slow = {n: torch.zeros_like(weights[n]) for n in self.BANKS}

    @torch.no_grad()
    def step(self, gradients: Weights, step: int, lr_multiplier: float, momentum: float,
             tied: bool, engaged: bool, slower: bool) -> None:
        self.engaged, self.slower = engaged, slower
        super().step(gradients, step, lr_multiplier, momentum, tied)

    def _every(self, name: str) -> int:
        return 4 if self.slower and name.startswith("value_embeds") else 2

    def _adam_rates(self, name: str) -> tuple[float, ...]:
        """An update of a slower cadence stands for two."""
        lr_factor, decay_factor, beta1, beta2 = self.ADAM[name]
        if self._every(name) == 2:
            return self.ADAM[name]
        return lr_factor, 2 * decay_factor, beta1**2, beta2**2

    def state(self) -> Weights:
        """By the names of checkpoints. A tied embedding has none."""
        adam = [n for n in self.v if n != uo.EMBED or not self.was_tied]
        named = {"muon.momentum": {n: self.m[n] for n in self.BANKS}, "anvil.slow_rail": self.slow,
                 "anvil.second_moment": self.second, "adam.m": {n: self.m[n] for n in adam},
                 "adam.v": {n: self.v[n] for n in adam}}
        return {f"{kind}/{n}": t for kind, tensors in named.items() for n, t in tensors.items()}

    def _matrices(self, name: str, gradient: torch.Tensor, lr_multiplier: float,
                  momentum: float) -> None:
        w = self.w[name]
        rows, columns = w.shape[-2:]
        view = lambda t: t.reshape(-1, rows, columns)
        u = twin_rails(bf16_values(gradient), self.m[name], self.slow[name], momentum, self.engaged)
        o = cascade(view(u), self.dtype)
        if name not in self.second:
            lanes = (rows, 1) if rows >= columns else (1, columns)
            self.second[name] = o.new_zeros((len(o), *lanes), dtype=torch.float32)
            self.exact[name] = w.clone()
        o = normalize_lanes(o, self.second[name])
        lr = torch.full((len(o), 1, 1), MATRIX_LR * lr_multiplier, device=w.device)
        lr *= max(1, rows / columns) ** 0.5
        if name == "mlp_bank":
            lr[1::2] *= 2  # c_proj
            lr[2 * DEAD_SLOT : 2 * DEAD_SLOT + 2] = 0
        p = self.exact[name]
        p.copy_(gated_update(p.view_as(o), o, view(self.slow[name]),
                             MATRIX_LR * MATRIX_DECAY * lr_multiplier, lr).view_as(p))
        w.copy_(uo.upper_half(p))
