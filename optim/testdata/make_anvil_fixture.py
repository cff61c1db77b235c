"""Writes small_anvil.bin: four steps of ANVIL's matrix rule in torch, over the engagement of the rails.

Run it in a Python with torch and numpy:  python optim/testdata/make_anvil_fixture.py

The rule is tools/parity/anvil_optimizer.py, from its formulas; it rounds to bf16 where the rule
stores bf16, and computes in f32 between. The file is f32, little-endian. For each bank of BANKS:
weights [matrices, rows, cols] at the start, all bf16 values; then for each step
  gradient        mean over slots, f32
  weights         after the step, with the 16 bits below bf16
  fast, slow      rails, like the weights
  second moment   [matrices, 1, cols] of a wide matrix, [matrices, rows, 1] of others
"""

import pathlib
import sys

import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools" / "parity"))

import anvil_optimizer as ao  # noqa: E402
from record_optimizer import bf16_values  # noqa: E402

# Matrices, rows, columns, factors of the rate by matrix; 0 is frozen.
BANKS = {"wide": (3, 8, 20, [1, 1, 1]), "square": (2, 12, 12, [1, 1]),
         "tall": (4, 20, 8, [1, 2, 0, 0])}
LR, DECAY = 0.023, 40  # a decay that shows beside the update
RATES = [(1.0, 0.85), (1.52, 0.9), (0.75, 0.93), (0.5, 0.88)]  # lr multiplier, momentum
ENGAGED_FROM = 2


def main() -> None:
    torch.manual_seed(11)
    torch.set_num_threads(1)
    out = []
    for matrices, rows, cols, factors in BANKS.values():
        shape = (matrices, rows, cols)
        exact = bf16_values(0.5 * torch.randn(shape))
        fast, slow = torch.zeros(shape), torch.zeros(shape)
        second = torch.zeros((matrices, rows, 1) if rows >= cols else (matrices, 1, cols))
        out.append(exact.clone())
        for step, (lr_multiplier, momentum) in enumerate(RATES):
            # Rows of unequal size, so that the lanes have something to do.
            g = torch.randn(shape) * torch.rand(matrices, rows, 1) * 0.1
            u = ao.twin_rails(bf16_values(g), fast, slow, momentum, step >= ENGAGED_FROM)
            o = ao.normalize_lanes(ao.cascade(u), second)
            lr = LR * lr_multiplier * max(1, rows / cols) ** 0.5 * torch.tensor(factors)
            exact = ao.gated_update(exact, o, slow, LR * DECAY * lr_multiplier,
                                    lr.float()[:, None, None])
            out += [t.clone() for t in (g, exact, fast, slow, second)]
    np.concatenate([t.float().numpy().ravel() for t in out]).astype("<f4").tofile(
        HERE / "small_anvil.bin")


if __name__ == "__main__":
    main()
