"""DistAdam, Muon and NorMuon of the records on one device.

m, v, u and weights are computed in f32 and rounded once to the record's dtypes, where the
original rounds after every elementary operation.
"""

from __future__ import annotations

import math

import torch

from record_model import Weights, is_bf16
from records import Record

ADAM_LR = {"scalars": 0.04, "lm_head.weight": 0.008}  # others, the embeddings: 0.6
BETA2, ADAM_EPS = 0.95, 1e-8
NEWTON_SCHULZ = [(3.4445, -4.7750, 2.0315)] * 5
POLAR_EXPRESS = [
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
]
NORMUON_BETA2 = 0.95


def bf16_values(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def uses_adam(name: str) -> bool:
    return name == "scalars" or name == "lm_head.weight" or "embed" in name


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """bf16 matrices, summed in f32, not rounded."""
    return a.float() @ b.float()


def norm(x: torch.Tensor) -> torch.Tensor:
    """Frobenius norm of each matrix, f32."""
    return x.float().square().sum((-1, -2), keepdim=True).sqrt()


def orthogonalize(u: torch.Tensor, polar_express: bool) -> torch.Tensor:
    """Five iterations on each of [B, r, c] with r <= c; bf16 at each named stage."""
    x = u.bfloat16()
    size = norm(x) * 1.02 + 1e-6 if polar_express else norm(x) + 1e-7
    x = (x.float() / size).bfloat16()
    for c1, c3, c5 in POLAR_EXPRESS if polar_express else NEWTON_SCHULZ:
        a = _product(x, x.mT).bfloat16()
        b = (c3 * a.float() + c5 * _product(a, a)).bfloat16()
        x = (c1 * x.float() + _product(b, x)).bfloat16()
    return x


class RecordOptimizer:
    """Weights are f32 tensors; those that the record stores in bf16 hold bf16 values."""

    def __init__(self, weights: Weights, record: Record) -> None:
        self.w = weights
        self.record = record
        zeros = lambda: {n: torch.zeros_like(w) for n, w in weights.items()}
        self.m, self.v = zeros(), {n: z for n, z in zeros().items() if uses_adam(n)}
        self.second: Weights = {}  # NorMuon's, [B, 1, c] per weight
        self.pending: Weights = {}  # Adam's gradients of steps in which it does not update
        self.updates = 0

    @torch.no_grad()
    def step(self, gradients: Weights, step: int, lr_multiplier: float, momentum: float) -> None:
        """One update from the mean over slots of the gradients of summed losses."""
        adam_is_due = (step + 1) % self.record.adam_every == 0
        self.updates += adam_is_due
        rounded = {n: bf16_values(g) if is_bf16(n) else g for n, g in gradients.items()}
        directions: dict[tuple[int, ...], list[tuple[str, torch.Tensor]]] = {}
        for name, g in rounded.items():
            if uses_adam(name):
                self.pending[name] = self.pending.get(name, 0) + g
                if adam_is_due:
                    self._adam(name, self.pending.pop(name), lr_multiplier)
            else:
                u = self._nesterov(name, g, momentum)
                for matrix in self._matrices(name, u):
                    directions.setdefault(tuple(matrix.shape), []).append((name, matrix))
        outputs: dict[str, list[torch.Tensor]] = {}
        for shape, members in directions.items():
            outs = orthogonalize(torch.stack([m for _, m in members]), self.record.normuon)
            for (name, _), out in zip(members, outs):
                outputs.setdefault(name, []).append(out)
        for name, parts in outputs.items():
            out = torch.stack(parts).float()
            if self.record.normuon:
                out = self._normalize(name, out)
            lr = self.record.matrix_lr * lr_multiplier
            if name.endswith("c_fc"):
                lr *= self.record.c_fc_factor
            self._store(name, self.w[name] - lr * out.reshape(self.w[name].shape))

    def _normalize(self, name: str, o: torch.Tensor) -> torch.Tensor:
        """o [B, r, c] over the root of its columns' second moments, its norms kept. The mean is
        over the rows, since no stored matrix has as many rows as columns."""
        mean = o.square().mean(-2, keepdim=True)
        w = (1 - NORMUON_BETA2) * mean + NORMUON_BETA2 * self.second.get(name, 0)
        self.second[name] = bf16_values(w) if is_bf16(name) else w
        p = o * w.clamp(min=1e-10).rsqrt()
        return p * (norm(o) / norm(p).clamp(min=1e-10))

    def _store(self, name: str, value: torch.Tensor) -> None:
        self.w[name].copy_(bf16_values(value) if is_bf16(name) else value)

    def _adam(self, name: str, g: torch.Tensor, lr_multiplier: float) -> None:
        t = self.updates
        lr = ADAM_LR.get(name, 0.6) * lr_multiplier
        step_size = lr * math.sqrt(1 - BETA2**t) / (1 - self.record.beta1**t)
        beta1 = self.record.beta1
        m = beta1 * self.m[name] + (1 - beta1) * g
        v = BETA2 * self.v[name] + (1 - BETA2) * g.square()
        self._store(name, self.w[name] - step_size * m / (v.sqrt() + ADAM_EPS))
        if name == "scalars" and self.record.adam_every > 1:  # the later record keeps f32 here
            self.m[name], self.v[name] = m, v
        else:
            self.m[name], self.v[name] = bf16_values(m), bf16_values(v)

    def _nesterov(self, name: str, g: torch.Tensor, momentum: float) -> torch.Tensor:
        m = self.m[name] + (1 - momentum) * (g - self.m[name])
        self.m[name] = bf16_values(m) if is_bf16(name) else m
        return g + momentum * (m - g)

    @staticmethod
    def _matrices(name: str, u: torch.Tensor) -> torch.Tensor:
        """[B, r, c]: the merged Q, K, V, O are four squares, all others one matrix."""
        return u.view(4, u.shape[0], u.shape[0]) if name.endswith("qkvo_w") else u[None]
