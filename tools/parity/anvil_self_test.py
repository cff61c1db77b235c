"""Checks anvil_*.py against hand-computed cases, in float64 where the facts are.

    python anvil_self_test.py
"""

from __future__ import annotations

import torch

import anvil_optimizer as ao
import unified_optimizer as uo
from anvil_model import AnvilModel, initial_weights
from anvil_schedule import AnvilSchedule
from record_model import Weights
from records import RECORDS

RECORD = RECORDS["anvil"]


def close(got, want, absolute: float) -> None:
    got = torch.as_tensor(got, dtype=torch.float64)
    torch.testing.assert_close(got, torch.as_tensor(want, dtype=torch.float64), rtol=0,
                               atol=absolute)


def check_schedule_an_01_02_03_04() -> None:
    s = AnvilSchedule(RECORD, 1194)
    assert (s.scheduled, s.last_tied_step()) == (1174, 1175)
    assert [s.start(k) for k in range(4)] == [0, 320, 681, 1107]
    for step, rate, momentum in (
            (0, 1, 0.85), (100, 1, 0.883333), (235, 0.999255, 0.928333), (319, 0.936702, 0.93),
            (320, 1.408383, 0.93), (600, 1.044979, 0.93), (681, 1.049989, 0.93),
            (1107, 0.391182, 0.93), (1145, 0.339467, 0.9284), (1174, 0.3, 0.882),
            (1193, 0.3, 0.8516)):
        close((s.lr_multiplier(step), s.momentum(step)), (rate, momentum), 5.1e-7)
    assert sum(s.batch_tokens(step) for step in range(1194)) == 328_663_040
    assert [s.engaged(step) for step in (513, 514)] == [False, True]


def check_rails_an_05() -> None:
    fast, slow = (torch.zeros(1, dtype=torch.float64) for _ in range(2))
    for g, want in ((1, 0.14161465), (2, 0.34545946), (-1, 0.03707186)):
        u = ao.twin_rails(torch.tensor([g], dtype=torch.float64), fast, slow, 0.93, True)
        close(u, [want], 5.1e-9)
    close((fast.item(), slow.item()), (0.213375, 0.038408), 1e-12)


def check_cascade_an_06_07_08_09() -> None:
    exact = lambda u: ao.cascade(torch.tensor([u], dtype=torch.float64), torch.float64, False)[0]
    want = [[-0.57743874, 0.11524022, 0.80791919], [0.70677459, 0.56593881, 0.42510303]]
    close(exact([[3, 0, 0], [0, 4, 0]]), [[1.00006661, 0, 0], [0, 1.00012249, 0]], 1e-8)
    close(exact([[1, 2, 3], [4, 5, 6]]), want, 1e-8)
    close(exact([[1, 4], [2, 5], [3, 6]]).T, want, 1e-8)
    x = torch.linspace(3e-3, 1 / 1.05, 100_001, dtype=torch.float64)
    for a, b, c in ao.CASCADE:
        x = a * x + b * x**3 + c * x**5
    close((x.min(), x.max()), (0.995067, 1.000401), 1e-6)
    random = torch.Generator().manual_seed(1)
    for shape in ((1, 1), (6, 12), (12, 6), (24, 24)):  # rank one but for roundings to bf16
        u = torch.randn(20, shape[0], 1, generator=random) @ torch.randn(20, 1, shape[1],
                                                                        generator=random)
        close(torch.linalg.svdvals(ao.cascade(u).double())[:, 0], torch.ones(20), 0.02)


def check_gate_an_12() -> None:
    lr = torch.tensor(0.5)
    for gate, want in ((-0.5, 1 - 0.125), (0.5, 0.875 - 0.125), (0.0, 0.875 - 0.125)):
        new = ao.gated_update(torch.ones(1), torch.tensor([0.25]), torch.tensor([gate]), 0.25, lr)
        close(new, [want], 0)


def check_lanes_an_11() -> None:
    for shape, lanes in (((4, 8), (1, 8)), ((8, 8), (8, 1)), ((16, 8), (16, 1))):
        o = torch.randn(2, *shape, generator=torch.Generator().manual_seed(2))
        second = torch.zeros(2, *lanes)
        out = ao.normalize_lanes(o, second)
        close(torch.linalg.matrix_norm(out), torch.linalg.matrix_norm(o), 1e-5)
        along = -1 if lanes[1] == 1 else -2
        sizes = out.square().sum(along)
        close(sizes / sizes.mean(-1, keepdim=True), torch.ones(sizes.shape), 1e-5)


def check_optimizer_an_13() -> None:
    w = small_weights()
    start = w["mlp_bank"].clone()
    optimizer = ao.AnvilOptimizer(w, RECORD)
    random = torch.Generator().manual_seed(1)
    for step in range(4):
        gradients = {n: torch.randn(v.shape, generator=random) for n, v in w.items()}
        optimizer.step(gradients, step, 1.0, 0.85, True, step >= 2, False)
    moved = (w["mlp_bank"] != start).flatten(1).any(1).tolist()
    assert moved == [slot != ao.DEAD_SLOT for slot in range(12)], moved
    assert all(torch.isfinite(v).all() for v in w.values())
    lanes = {n: tuple(t.shape) for n, t in optimizer.second.items()}
    assert lanes == {"qk_bank": (40, 1, 16), "vo_bank": (20, 16, 1), "mlp_bank": (24, 64, 1)}, lanes


def check_cadence_an_20_21() -> None:
    """Of the value embeddings; all others of Adam's weights change in every odd step."""
    s, w = AnvilSchedule(RECORD, 1194), small_weights()
    optimizer = ao.AnvilOptimizer(w, RECORD)
    events = [step for step in range(1194)
              if (step + 1) % (4 if s.slower(step) else 2) == 0]
    assert len(events) == 382 and events[167:170] == [335, 339, 343] and events[-1] == 1191
    table, rows = "value_embeds.1.weight", []
    for step in range(334, 344):
        before, head = w[table].clone(), w[uo.HEAD].clone()
        gradients = {n: torch.ones_like(v) for n, v in w.items()}
        optimizer.step(gradients, step, **s.rates(step))
        if not torch.equal(w[table], before):
            rows.append((step, *optimizer._adam_rates(table)))
        assert torch.equal(w[uo.HEAD], head) == (step % 2 == 0), step
    assert rows == [(335, 70, 5, 0.75, 0.95), (339, 70, 10, 0.5625, 0.95**2),
                    (343, 70, 10, 0.5625, 0.95**2)], rows
    assert optimizer.updates[table] == 3  # the bias correction's


def check_precisions() -> None:
    """The cascade in float64 ends near that of bf16; all states that dumps have are there."""
    after = {}
    for precision in ("bf16", "f64"):
        w, random = small_weights(), torch.Generator().manual_seed(3)
        optimizer = ao.AnvilOptimizer(w, RECORD, precision)
        for step in range(2):
            gradients = {n: torch.randn(v.shape, generator=random) for n, v in w.items()}
            optimizer.step(gradients, step, 1.0, 0.85, True, step > 0, False)
        after[precision] = optimizer.state() | optimizer.exact
    adam = 2 * (len(ao.AnvilOptimizer.ADAM) - 1)  # without the tied embedding
    assert len(after["bf16"]) == 4 * 3 + adam, after["bf16"].keys()
    for name, value in after["bf16"].items():
        torch.testing.assert_close(after["f64"][name], value, rtol=0.1, atol=0.002)


def check_banks_an_36() -> None:
    """60 and 20 live matrices of six heads, and what they are of a layer."""
    shapes = {n: tuple(v.shape) for n, v in initial_weights(RECORD, 32, 24, 6, 48, 0, False).items()}
    assert (shapes["qk_bank"], shapes["vo_bank"]) == ((60, 8, 24), (20, 24, 24)), shapes
    w = small_weights()
    q, k, v, o = AnvilModel(w, RECORD).attention_weights(3).split(16)
    for whole, part in ((q, w["qk_bank"][12:14]), (k, w["qk_bank"][14:16])):
        assert torch.equal(whole, part.flatten(0, 1))
    assert torch.equal(v, w["vo_bank"][6]) and torch.equal(o, w["vo_bank"][7])


def small_weights() -> Weights:
    """Four heads, so that pairs of them have fewer rows than columns."""
    stored = initial_weights(RECORD, 32, 16, 4, 64, 0, dense=True)
    return {n: v.float() for n, v in stored.items()}


def main() -> None:
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            print("ok", name)


if __name__ == "__main__":
    main()
