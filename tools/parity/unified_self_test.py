"""Checks unified_*.py against hand-computed cases and a float64 fixture of tools/recipes/testdata.

    python unified_self_test.py [--fixture ../recipes/testdata/small_unified.bin]

Numbers are of the record's formulas in float64. The fixture, written by make_unified_fixture.py, is
an independent implementation: this one in f32 must agree with it, and in bf16 within rounding (its
figures are printed: they say what tolerance a bf16 implementation needs).
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import numpy as np
import torch

import unified_model as um
import unified_optimizer as uo
from record_model import Batch, Stage, add_gradients
from record_optimizer import POLAR_EXPRESS
from records import RECORDS
from unified_schedule import UnifiedSchedule
from unified_weights import initial_weights, shapes

FIXTURE = pathlib.Path(__file__).parent / "../recipes/testdata/small_unified.bin"
RECORD = RECORDS["unified_optimizers"]


def close(got, want, relative: float = 2e-6) -> None:
    got = torch.as_tensor(got, dtype=torch.float64)
    torch.testing.assert_close(got, torch.as_tensor(want, dtype=torch.float64), rtol=relative,
                               atol=0)


def equal(got, want) -> None:
    assert got == want, (got, want)


def check_init_uo_05_06_07() -> None:
    w = initial_weights(RECORD, 96, 768, 6, 3072, 0, dense=False)
    q, o = w["attn_bank"][:, :2304], w["attn_bank"][:, 2304:]
    fc, proj = w["mlp_bank"].unbind(1)
    for part, bound in ((q, 0.0625), (fc, 0.03125)):
        assert 0.999 * bound < part.float().abs().max() <= bound
    assert not o.any() and not proj.any() and fc[11].any()
    assert torch.equal(w["embed.weight"], w["lm_head.weight"].T)
    equal((len(w["scalars"]), w["scalars"][34].item(), w["scalars"][35].item()), (36, 0.5, -1.5))
    close(w["lm_head.weight"].float().std(), 0.005, 0.02)


def check_pairs_uo_14() -> None:
    tokens, heads = 8, 6
    labels = 10 * torch.arange(tokens)[:, None] + torch.arange(heads)
    rows = um.pairs(labels[None, :, :, None])[0, :, :, 0]
    equal(rows[11, 1].item(), 54)  # token 5, head 4
    position = torch.arange(2 * tokens)[:, None, None].expand(-1, 1, 4)
    of_heads = um.paired_tables((position,), heads)[0]
    equal(of_heads[5, 4, 0].item(), 10)
    of_rows = um.pairs(of_heads[None])[0, :, :, 0].tolist()
    for t in range(tokens):
        equal(of_rows[2 * t], [2 * t, 2 * t + 1, 2 * t])
        equal(of_rows[2 * t + 1], [2 * t + 1, 2 * t, 2 * t + 1])


def check_key_offset_uo_15() -> None:
    k = torch.arange(3 * 2 * 128).reshape(1, 3, 2, 128)
    got = um.offset_keys(k)
    moved = [*range(32, 64), *range(96, 128)]
    stays = [*range(32), *range(64, 96)]
    assert torch.equal(got[:, 0], k[:, 0]) and torch.equal(got[..., stays], k[..., stays])
    assert torch.equal(got[:, 1:, :, moved], k[:, :-1, :, moved])


def check_window_uo_13() -> None:
    """A zero query weighs all it sees alike, so the mean of one-hot values tells what it saw."""
    tokens, window = 2200, 128
    q = torch.zeros(1, tokens, 1, 8)
    v = torch.eye(tokens)[None, :, None]
    seen = um.windowed_attention(q, q, v, um.documents_of(torch.tensor([[0, 1500, tokens]]),
                                                          tokens), window, 1.0)[0, :, 0] > 0
    equal([s.sum().item() for s in seen[[127, 128, 1499, 1500, 1501, 1700]]],
          [128, 129, 129, 1, 2, 129])
    assert seen[1700, 1700 - window] and not seen[1700, 1701]


def check_loss_uo_19_20() -> None:
    logits = torch.tensor([[1, -2, 0.5, 3], [0, 0, 0, 0], [2, 1, -1, -3]], dtype=torch.float64,
                          requires_grad=True)
    targets, weights = um.targets_ahead(torch.tensor([[3, 0, 1]]), (1, 0.5, 0.25))
    losses = um.capped_losses(logits, targets.flatten(1), weights.flatten(1).double())
    losses.sum().backward()
    close(losses.detach(), [2.2021619, 2.0794415, 1.1649268], 1e-7)
    close(logits.grad[0], [-0.11145635, -0.15440485, 0.15918421, 0.08332665], 1e-6)
    close(logits.grad[2], [0.36711774, -0.45135669, 0.05645328, 0.01365762], 1e-6)


def check_schedule_uo_16_17_24_25_26_28() -> None:
    s = UnifiedSchedule(RECORD, 1765)
    for step, scale in ((0, 0.1), (575, 0.116945957), (1150, 0.127517524), (1725, 0.131777988)):
        close(s.stage(step).attention_scale, scale, 1e-8)
    f = s.stage(575).frequencies
    close(f[[31, 8]].double(), [4.18526786e-4, 0.100042233], 1e-6)
    for step, rate in ((0, 1), (575, 1), (576, 1.52), (862, 1.52), (863, 1.519177),
                       (1000, 1.293623), (1150, 1.046667), (1151, 1.184777), (1724, 0.101890),
                       (1725, 0.1), (1764, 0.1)):
        close(s.lr_multiplier(step), rate, 5e-6)
    for step, momentum in ((0, 0.85), (150, 0.9), (300, 0.95), (1715, 0.95), (1716, 0.948),
                           (1725, 0.93), (1764, 0.852)):
        close(s.momentum(step), momentum, 1e-9)
    for step, weights in ((0, [1, 0.5, 0.25]), (150, [1, 0.5, 0.184783]), (574, [1, 0.5, 0.000435]),
                          (576, [1, 0.499130]), (1149, [1, 0.000870]), (1150, [1])):
        close(s.loss_weights(step), weights, 1e-3)
    windows = {b: (s.stage(b).short_window // 128, s.stage(b).long_window // 128)
               for b in (0, 574, 575, 1149, 1150, 1724, 1725)}
    equal(list(windows.values()), [(1, 3), (1, 3), (3, 7), (3, 7), (5, 11), (5, 11), (6, 13)])
    equal(sum(s.batch_tokens(step) for step in range(1765)), 467_927_040)  # UO-43
    equal([s.rates(step)["tied"] for step in (0, 1151, 1152)], [True, True, False])


def check_adam_uo_30_31_37() -> None:
    one = lambda x: torch.tensor([x], dtype=torch.float64)
    head, values = uo.ADAM["lm_head.weight"], uo.ADAM["value_embeds.1.weight"]
    for p, (lr_factor, decay_factor, *betas), want in (
            (0.5, head, 0.4921875), (-0.5, head, -0.5078125), (0.5, values, -0.10449219)):
        m, v, lr = one(0.0), one(0.0), uo.ADAM_LR * lr_factor
        new = uo.cautious_adam(one(p), one(0.1), m, v, 1, lr, uo.adam_decay(lr, decay_factor),
                               *betas)
        close(new.bfloat16(), one(want), 1e-7)
    close((m.item(), v.item()), (0.025, 5e-4))
    still = uo.cautious_adam(one(0.5), one(0.0), one(0.0), one(0.0), 1, 0.6, 9e-3, 0.75, 0.95)
    equal(still.item(), 0.5)


def check_polar_uo_33_34_44() -> None:
    """The coefficients exactly; the products in bf16, to which the steep polynomials answer with
    several percent."""
    def polynomials(x: float) -> float:
        for a, b, c in POLAR_EXPRESS:
            x = a * x + b * x**3 + c * x**5
        return x

    for size, want in ((0.001, 0.85887264), (0.05, 0.90855828), (1 / 1.02, 0.90353742),
                       (3 / (5 * 1.02 + 1e-6), 0.94678256), (4 / (5 * 1.02 + 1e-6), 0.8782846)):
        close(polynomials(size), want, 1e-7)
    diagonal = torch.tensor([[3.0, 0, 0], [0, 4, 0]])
    full = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    want = torch.tensor([[-0.55776344, 0.09305344, 0.74387032],
                         [0.6393245, 0.49701054, 0.35469659]])
    for g, out in ((diagonal, torch.diag(torch.tensor([0.94678256, 0.8782846])) @ torch.eye(2, 3)),
                   (full, want), (full.T.contiguous(), want.T)):
        torch.testing.assert_close(uo.polar(g[None])[0].float(), out, rtol=0, atol=0.08)


def check_lanes_uo_35() -> None:
    second = torch.zeros(1, 2, 1)
    out = uo.normalize_lanes(torch.tensor([[[1.0, 1.0], [0.1, 0.3]]]), second)[0]
    close(second.flatten(), [0.05, 0.0025])
    close(out.float(), [[0.72456884, 0.72456884], [0.32403703, 0.9721111]], 2**-8)


def check_matrix_update_uo_36() -> None:
    lr = torch.tensor(0.023)
    for p, o, want in ((0x3F800000, 0.5, 0x3F7CE4BC), (0x3F800000, -0.5, 0x3F8178D5),
                       (0x3F801234, 0.0, 0x3F7FFAC8)):
        bits = torch.tensor([p], dtype=torch.int32)
        new = uo.cautious_matrix_update(bits.view(torch.float32), torch.tensor([o]), 0.0276, lr)
        equal(hex(new.view(torch.int32).item()), hex(want))
        equal(hex(uo.upper_half(new).view(torch.int32).item()), hex(want & 0xFFFF0000))


def check_optimizer_uo_06_28_29_32() -> None:
    """Tying, untying and what an even step leaves alone, on a small model."""
    stored = initial_weights(RECORD, 32, 16, 2, 64, 0, dense=True)
    w = {n: v.float() for n, v in stored.items()}
    before = {n: v.clone() for n, v in w.items()}
    optimizer = uo.UnifiedOptimizer(w, RECORD)
    random = torch.Generator().manual_seed(1)
    step = 0

    def one(tied: bool) -> dict[str, torch.Tensor]:
        nonlocal step
        gradients = {n: torch.randn(v.shape, generator=random) for n, v in w.items()}
        optimizer.step(gradients, step, 1.0, 0.85, tied)
        step += 1
        return gradients

    first = one(True)
    equal({n for n in w if not torch.equal(w[n], before[n])}, {"attn_bank", "mlp_bank"})
    # Nesterov's average starts from zero, and the decay of a bank is its own.
    torch.testing.assert_close(optimizer.m["attn_bank"],
                               0.15 * first["attn_bank"].bfloat16().float())
    second = one(True)
    assert torch.equal(w["embed.weight"], w["lm_head.weight"].T)
    both = sum(g["lm_head.weight"] + g["embed.weight"].T for g in (first, second))
    assert torch.equal(optimizer.m["lm_head.weight"], 0.5 * both.bfloat16().float())
    head_m, tied_embed = optimizer.m["lm_head.weight"].clone(), w["embed.weight"].clone()
    one(False)
    assert torch.equal(optimizer.m["embed.weight"], head_m.T)
    equal((optimizer.updates["embed.weight"], optimizer.updates["lm_head.weight"]), (1, 1))
    assert torch.equal(w["embed.weight"], tied_embed)
    one(False)
    equal((optimizer.updates["embed.weight"], optimizer.updates["lm_head.weight"]), (2, 2))
    assert not torch.equal(w["embed.weight"], w["lm_head.weight"].T)
    for n in w:
        if n.endswith(("_bank", ".weight")):
            assert torch.equal(w[n], w[n].bfloat16().float()), n


def check_padding_uo_38() -> None:
    """A matrix without gradient, c_fc of the padding: its direction is zero, and it decays."""
    zero = uo.normalize_lanes(uo.polar(torch.zeros(1, 64, 16)), torch.zeros(1, 64, 1))
    assert not zero.any()
    schedule, p = UnifiedSchedule(RECORD, 1765), torch.tensor([0.03125])
    for step in range(1765):
        rate = schedule.lr_multiplier(step)
        p = uo.cautious_matrix_update(p, zero[0, 0, :1], uo.MATRIX_LR * uo.MATRIX_DECAY * rate,
                                      torch.tensor(2 * uo.MATRIX_LR * rate))
    close(p / 0.03125, [0.0774625], 1e-5)


def fixture_parts(path: pathlib.Path, slots: int, tokens: int, sizes: dict[str, tuple[int, ...]]):
    """(losses, gradients) for the bf16 head and the fp8 head."""
    data = np.fromfile(path, dtype=np.uint8)
    at = 0
    for _ in range(2):
        losses = torch.from_numpy(data[at : at + 4 * slots * tokens].view("<f4").copy())
        at += 4 * slots * tokens
        gradients = {}
        for name, shape in sizes.items():
            count = int(np.prod(shape))
            bits = data[at : at + 2 * count].view("<i2").copy()
            gradients[name] = torch.from_numpy(bits).view(torch.bfloat16).float().reshape(shape)
            at += 2 * count
        yield losses.reshape(slots, tokens), gradients
    equal(at, len(data))


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    difference = (got - want).norm().item()
    return 0.0 if difference == 0 else difference / want.norm().item()


def check_model_with_fixture(path: pathlib.Path) -> None:
    sys.path.insert(0, str(path.resolve().parent))
    import make_fixture  # the fixture's inputs
    import make_unified_fixture

    weights = {n: w.detach().float().requires_grad_(True)
               for n, w in make_unified_fixture.Weights().items()}
    tokens, targets = make_fixture.Tokens()
    batch = Batch(tokens, targets, torch.tensor(make_fixture.BOUNDARIES))
    half = make_fixture.HEAD_DIM // 4
    frequencies = torch.tensor([2.0**-j for j in range(half)] + [0.0] * half)
    stage = Stage(make_fixture.SHORT, make_fixture.LONG, make_fixture.SCALE, frequencies,
                  make_unified_fixture.LOSS_WEIGHTS)
    sizes = {n: tuple(w.shape) for n, w in weights.items()}
    equal(sizes, shapes(make_fixture.VOCAB, make_fixture.DIM, make_fixture.HEADS,
                        make_fixture.MLP))
    parts = fixture_parts(path, *tokens.shape, sizes)
    for fp8, (want_losses, want) in enumerate(parts):
        # The stored gradients are rounded to bf16, by 2^-9 in the mean. In f32 some
        # values fall on the other side of an fp8 boundary than in float64.
        for dtype, bound in ((torch.float32, 0.02 if fp8 else 0.003), (torch.bfloat16, 0.06)):
            model = um.UnifiedModel(weights, RECORD, dtype)
            model.fp8_head = bool(fp8)
            losses = add_gradients(model, batch, stage, slots_per_pass=1)
            loss_error = relative_error(losses, want_losses.sum(-1))
            figures = []
            for name, w in weights.items():
                for part, (g, e) in matrices(name, w.grad, want[name]).items():
                    figures.append((relative_error(g, e), part))
                w.grad = None
            figures.sort(reverse=True)
            print(f"{'fp8' if fp8 else 'bf16'} head in {dtype}: losses {loss_error:.1e}, gradients "
                  f"median {figures[len(figures) // 2][0]:.1e}, worst "
                  + ", ".join(f"{name} {e:.1e}" for e, name in figures[:5]))
            assert loss_error < 1e-4 if dtype == torch.float32 else loss_error < 0.01, loss_error
            assert figures[0][0] < bound, figures[0]


def matrices(name: str, a: torch.Tensor, b: torch.Tensor) -> dict[str, tuple[torch.Tensor, ...]]:
    """The weight and, of banks, each part by itself."""
    out = {name: (a, b)}
    per_slot = {"attn_bank": 4, "mlp_bank": 2, "attn_gate_bank": 1, "ve_gate_bank": 1}.get(name, 0)
    for slot in range(len(a) if per_slot else 0):
        rows = zip(a[slot].reshape(per_slot, -1), b[slot].reshape(per_slot, -1))
        out |= {f"{name}[{slot}.{j}]": pair for j, pair in enumerate(rows)}
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixture", type=pathlib.Path, default=FIXTURE)
    arguments = parser.parse_args()
    for check in (check_init_uo_05_06_07, check_pairs_uo_14, check_key_offset_uo_15,
                  check_window_uo_13, check_loss_uo_19_20, check_schedule_uo_16_17_24_25_26_28,
                  check_adam_uo_30_31_37, check_polar_uo_33_34_44, check_lanes_uo_35,
                  check_matrix_update_uo_36, check_optimizer_uo_06_28_29_32, check_padding_uo_38):
        check()
        print(check.__name__, "passed")
    check_model_with_fixture(arguments.fixture)
