"""DistAdam and Muon of the record of 2025-09-23 on one device.

m, v, u and weights are computed in f32 and rounded once to the record's dtypes, where the
original rounds after every elementary operation.
"""

from __future__ import annotations

import math

import torch

from record_model import Weights, is_bf16

ADAM_LR = {"scalars": 0.04, "lm_head.weight": 0.008}  # others, the embeddings: 0.6
BETA1, BETA2, ADAM_EPS = 0.8, 0.95, 1e-8
MUON_LR = 0.05
NS_A, NS_B, NS_C = 3.4445, -4.7750, 2.0315


def bf16_values(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def uses_adam(name: str) -> bool:
    return name == "scalars" or name == "lm_head.weight" or "embed" in name


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """bf16 matrices, summed in f32, not rounded."""
    return a.float() @ b.float()


def newton_schulz(u: torch.Tensor) -> torch.Tensor:
    """Five iterations on each of [B, r, c] with r <= c; bf16 at each named stage."""
    x = u.bfloat16()
    x = (x.float() / (x.float().square().sum((-1, -2), keepdim=True).sqrt() + 1e-7)).bfloat16()
    for _ in range(5):
        a = _product(x, x.mT).bfloat16()
        b = (NS_B * a.float() + NS_C * _product(a, a)).bfloat16()
        x = (NS_A * x.float() + _product(b, x)).bfloat16()
    return x


class RecordOptimizer:
    """Weights are f32 tensors; those that the record stores in bf16 hold bf16 values."""

    def __init__(self, weights: Weights) -> None:
        self.w = weights
        zeros = lambda: {n: torch.zeros_like(w) for n, w in weights.items()}
        self.m, self.v = zeros(), {n: z for n, z in zeros().items() if uses_adam(n)}
        self.updates = 0

    @torch.no_grad()
    def step(self, gradients: Weights, lr_multiplier: float, momentum: float) -> None:
        """One update from the mean over slots of the gradients of summed losses."""
        self.updates += 1
        rounded = {n: bf16_values(g) if is_bf16(n) else g for n, g in gradients.items()}
        directions: dict[tuple[int, ...], list[tuple[str, torch.Tensor]]] = {}
        for name, g in rounded.items():
            if uses_adam(name):
                self._adam(name, g, lr_multiplier)
            else:
                u = self._nesterov(name, g, momentum)
                for matrix in self._matrices(name, u):
                    directions.setdefault(tuple(matrix.shape), []).append((name, matrix))
        outputs: dict[str, list[torch.Tensor]] = {}
        for shape, members in directions.items():
            outs = newton_schulz(torch.stack([m for _, m in members]))
            for (name, _), out in zip(members, outs):
                outputs.setdefault(name, []).append(out)
        for name, parts in outputs.items():
            out = torch.stack(parts).reshape(self.w[name].shape).float()
            self._store(name, self.w[name] - MUON_LR * lr_multiplier * out)

    def _store(self, name: str, value: torch.Tensor) -> None:
        self.w[name].copy_(bf16_values(value) if is_bf16(name) else value)

    def _adam(self, name: str, g: torch.Tensor, lr_multiplier: float) -> None:
        t = self.updates
        lr = ADAM_LR.get(name, 0.6) * lr_multiplier
        step_size = lr * math.sqrt(1 - BETA2**t) / (1 - BETA1**t)
        m = BETA1 * self.m[name] + (1 - BETA1) * g
        v = BETA2 * self.v[name] + (1 - BETA2) * g.square()
        self._store(name, self.w[name] - step_size * m / (v.sqrt() + ADAM_EPS))
        self.m[name], self.v[name] = bf16_values(m), bf16_values(v)

    def _nesterov(self, name: str, g: torch.Tensor, momentum: float) -> torch.Tensor:
        m = self.m[name] + (1 - momentum) * (g - self.m[name])
        self.m[name] = bf16_values(m) if is_bf16(name) else m
        return g + momentum * (m - g)

    @staticmethod
    def _matrices(name: str, u: torch.Tensor) -> torch.Tensor:
        """[B, r, c]: the merged Q, K, V, O are four squares, all others one matrix."""
        return u.view(4, u.shape[0], u.shape[0]) if name.endswith("qkvo_w") else u[None]
