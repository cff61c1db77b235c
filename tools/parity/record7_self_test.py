"""Checks record7_*.py against numbers of the record's formulas and the float64 fixture of
tools/recipes/testdata, as unified_self_test.py.

    python record7_self_test.py [--fixture ../recipes/testdata/small_record7.bin]
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys

import numpy as np
import torch

import record7_model as rm
import record7_optimizer as ro
import shard_batches
from record7_schedule import Record7Schedule
from record7_weights import initial_weights, is_bf16, shapes
from record_model import Batch, Stage, add_gradients
from records import RECORDS
from unified_model import documents_of
from unified_optimizer import upper_half
from unified_self_test import close, equal, relative_error

FIXTURE = pathlib.Path(__file__).parent / "../recipes/testdata/small_record7.bin"
RECORD = RECORDS["record7"]


def check_sizes_and_init() -> None:
    full = shapes(50304, 1024, 4096)
    equal(sum(int(np.prod(s)) for s in full.values()), 454_496_336)
    w = initial_weights(RECORD, 96, 64, 8, 256, 0, dense=False)
    zero = {n for n, v in w.items() if not v.any()}
    equal(zero, {f"blocks.{i}.mlp.proj_w" for i in range(16)} | {"lm_head_w"})
    assert not w["blocks.0.attn.qkvo_w"][3].any() and w["blocks.0.attn.qkvo_w"][:3].any()
    s = w["scalars"].tolist()
    equal((s[:16], s[16:48], s[48:]), ([1.0] * 16, [1.0, 0.0] * 16, [0.5] * 32))
    dense = initial_weights(RECORD, 96, 64, 8, 256, 0, dense=True)
    assert all((v != 0).float().mean() > 0.98 for v in dense.values())


def check_schedule() -> None:
    s = Record7Schedule(RECORD, 6450)
    for step, rate in ((0, 1), (2580, 1), (2581, 0.99974160), (3000, 0.89147287), (4515, 0.5),
                       (6400, 0.012919897), (6449, 0.00025839793)):
        close(s.lr_multiplier(step), rate, 5e-8)
    for step, momentum in ((0, 0.85), (100, 0.8833333), (150, 0.9), (300, 0.95), (6449, 0.95)):
        close(s.momentum(step), momentum, 1e-7)
    close(sum(s.lr_multiplier(step) for step in range(6450)), 4515.5, 1e-9)
    blocks = [s.long_blocks(step) for step in range(6451)]
    equal([i for i in range(1, 6451) if blocks[i] != blocks[i - 1]],
          [478, 956, 1434, 1912, 2389, 2867, 3345, 3823, 4301, 4778, 5256, 5734, 6212])
    stage = s.stage(0)
    equal((stage.short_window, stage.long_window, blocks[6450]), (0, 128, 14))
    want = {1: 0.799638212, 3: 0.511305749, 12: 0.0683474988, 17: 0.0223455112, 30: 0.00122125517,
            31: 0.0009765625, 32: 0.0}
    for p, f in want.items():
        close(stage.frequencies[p].double(), f, 5e-9)


def check_window() -> None:
    """A zero query weighs all it sees alike, so the mean of one-hot values tells what it saw."""
    tokens = 1500
    q, v = torch.zeros(1, tokens, 1, 8), torch.eye(tokens)[None, :, None]
    documents = documents_of(torch.tensor([[0, 0, 400, 1290, tokens, tokens]]), tokens)
    t = torch.arange(tokens)
    starts = torch.tensor([0, 400, 1290])[torch.bucketize(t, torch.tensor([400, 1290]), right=True)]
    for window in (0, 128, 384):
        seen = rm.block_attention(q, q, v, documents, window, 128, 1.0)[0, :, 0] > 0
        first = torch.maximum(starts, 128 * (t // 128 - max(1, window // 128) + 1))
        assert torch.equal(seen, (t <= t[:, None]) & (t >= first[:, None])), window


def check_head() -> None:
    close(rm.soft_cap(torch.tensor([15.0, 45.0, 0.0]).double()), [10.606601718, 14.230249471, 0],
          1e-8)


def check_stream() -> None:
    tokens = np.arange(50, dtype=np.uint16)
    tokens[[0, 13, 20, 21]] = shard_batches.BOS
    read, shard_batches.read_shard = shard_batches.read_shard, lambda path: tokens
    batches = list(shard_batches.stream_batches(["", ""], 2, lambda _: 10))
    equal(len(batches), 4)  # 10 of the 50 tokens are dropped
    equal(batches[0].boundaries.tolist(), [[0, 0, 10], [0, 3, 10]])
    equal(batches[1].boundaries.tolist(), [[0, 0, 1, 10], [0, 10, 10, 10]])
    equal(batches[0].targets[0, -1], batches[0].tokens[1, 0])
    equal(batches[1].tokens[1].tolist(), list(range(30, 40)))
    assert torch.equal(batches[2].tokens, batches[0].tokens)
    shard_batches.read_shard = lambda path: tokens[:41]
    equal(len(list(shard_batches.stream_batches([""], 2, lambda _: 10))), 1)
    shard_batches.read_shard = read


def check_adam() -> None:
    for lr, start, gradients, want in (
            (1 / 320, 0.0, (1e-6, 1e-6, -2e-6), (-0.0031246875, -0.0062493751, -0.0057486953)),
            (0.015, 1.0, (0.5, 0.25), (0.985, 0.9711901555))):
        p, m, v = (torch.tensor([x], dtype=torch.float64) for x in (start, 0.0, 0.0))
        for t, (g, after) in enumerate(zip(gradients, want), start=1):
            p = ro.adam(p, torch.tensor([g], dtype=torch.float64), m, v, t, lr, 1e-10)
            close(p, [after], 1e-7)


def check_matrix_update() -> None:
    for p, decay, lr, o, want in (
            (0x3C800000, 5e-4, 0.05, 0.0, 0x3C7FDF3B), (0x3C800000, 2.5e-4, 0.025, 0, 0x3C7FEF9E),
            (0x3C800000, 2.5e-4, 0.025, 0.03125, 0x3C7322D1),
            (0x3CDE1234, 5e-4, 0.05, -0.0078125, 0x3CE128FA)):
        bits = torch.tensor([p], dtype=torch.int32)
        new = ro.matrix_update(bits.view(torch.float32), torch.tensor([o]), decay, lr)
        equal(hex(new.view(torch.int32).item()), hex(want))
        equal(hex(upper_half(new).view(torch.int32).item()), hex(want & 0xFFFF0000))


def check_newton_schulz() -> None:
    """The coefficients exactly; the products in bf16."""
    for size, want in ((0.001, 0.47498), (0.01, 1.01803), (0.1, 1.01905), (0.5, 0.98587),
                       (1, 0.97835)):
        for a, b, c in ro.NEWTON_SCHULZ:
            size = a * size + b * size**3 + c * size**5
        close(size, want, 1e-5)
    random = torch.Generator().manual_seed(1)
    g = torch.randn((2, 256, 64), generator=random)
    sizes = torch.linalg.svdvals(ro.newton_schulz(g).float())
    assert 0.96 < sizes.min() and sizes.max() < 1.05, sizes
    assert torch.equal(ro.newton_schulz(g.mT), ro.newton_schulz(g).mT)


def check_optimizer() -> None:
    """The first update of a small model: the moments, and what decays without a gradient."""
    record = dataclasses.replace(RECORD, slot_tokens=1)
    stored = initial_weights(record, 96, 64, 8, 256, 0, dense=False)
    w = {n: v.float() for n, v in stored.items()}
    before = {n: v.clone() for n, v in w.items()}
    optimizer = ro.Record7Optimizer(w, record)
    gradients = {n: torch.zeros_like(v) for n, v in w.items()}
    gradients["lm_head_w"] += 0.5
    optimizer.step(gradients, 0, 1.0, 0.85)
    close(w["lm_head_w"], torch.full((96, 64), -1 / 320), 1e-6)
    equal({n for n in w if not torch.equal(w[n], before[n])},
          {"lm_head_w"} | {n for n in w if n.endswith(("qkvo_w", "fc_w"))})
    exact, name = optimizer.exact["blocks.0.mlp.fc_w"], "blocks.0.mlp.fc_w"
    close(exact / before[name], torch.full((256, 64), 0.9995))
    assert torch.equal(upper_half(exact), w[name]) and (w[name].abs() < before[name].abs()).all()
    assert all(torch.equal(v, v.bfloat16().float()) for n, v in w.items() if is_bf16(n))


def check_model_with_fixture(path: pathlib.Path) -> None:
    sys.path.insert(0, str(path.resolve().parent))
    import make_fixture  # the fixture's inputs
    import make_record7_fixture as made

    weights = {n: w.detach().float().requires_grad_(True) for n, w in made.Weights().items()}
    equal({n: tuple(w.shape) for n, w in weights.items()},
          shapes(made.VOCAB, made.DIM, made.MLP))
    tokens, targets = make_fixture.Tokens()
    batch = Batch(tokens, targets, torch.tensor(make_fixture.BOUNDARIES))
    half = made.HEAD_DIM // 4
    frequencies = torch.tensor([2.0**-j for j in range(half)] + [0.0] * half)
    stage = Stage(made.SHORT, made.LONG, made.SCALE, frequencies, block_tokens=made.BLOCK)
    data, at = np.fromfile(path, dtype=np.uint8), 4 * tokens.numel()
    want_losses = torch.from_numpy(data[:at].view("<f4").copy()).reshape(tokens.shape)
    want = {}
    for name, w in weights.items():
        bits = data[at : at + 2 * w.numel()].view("<i2").copy()
        want[name] = torch.from_numpy(bits).view(torch.bfloat16).float().reshape(w.shape)
        at += 2 * w.numel()
    equal(at, len(data))
    record = dataclasses.replace(RECORD, heads=made.HEADS)
    for dtype, bound in ((torch.float32, 0.003), (torch.bfloat16, 0.06)):
        model = rm.Record7Model(weights, record, dtype)
        losses = add_gradients(model, batch, stage, slots_per_pass=1)
        loss_error = relative_error(losses, want_losses.sum(-1))
        figures = []
        for name, w in weights.items():
            parts = [(name, w.grad, want[name])]
            if name.endswith("qkvo_w"):
                parts += [(f"{name}[{m}]", w.grad[k], want[name][k]) for k, m in enumerate("QKVO")]
            figures += [(relative_error(g, e), part) for part, g, e in parts]
            w.grad = None
        figures.sort(reverse=True)
        print(f"{dtype}: losses {loss_error:.1e}, gradients median "
              f"{figures[len(figures) // 2][0]:.1e}, worst "
              + ", ".join(f"{name} {e:.1e}" for e, name in figures[:5]))
        assert loss_error < (1e-5 if dtype == torch.float32 else 0.01), loss_error
        assert figures[0][0] < bound, figures[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixture", type=pathlib.Path, default=FIXTURE)
    arguments = parser.parse_args()
    for check in (check_sizes_and_init, check_schedule, check_window, check_head, check_stream,
                  check_adam, check_matrix_update, check_newton_schulz, check_optimizer):
        check()
        print(check.__name__, "passed")
    check_model_with_fixture(arguments.fixture)
