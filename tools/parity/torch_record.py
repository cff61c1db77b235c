"""The records in torch, to compare //tools:track1 and //tools:track2 with. See README.md.

    torch_record.py init   --out F [--dense] [--seed S] [sizes]
    torch_record.py grads  --init F --tokens DUMP --out OUT [--device cuda] [--precision f32]
    torch_record.py update --init F --grads DUMP --out OUT [--device cuda] [--newton_schulz f64]
    torch_record.py train  --init F | --seed S  --train_files GLOBS --steps N --metrics OUT

Each takes --record muon_custom_sizing (the default), fix_muon_lr, unified_optimizers, anvil or
record7 (track 2). DUMP is a file of //tools/parity:dump_step: global batches and our gradients of them.
Gradients in files are sums over slots of the gradients of summed losses; the optimizers divide by
the slots.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import shard_batches
from families import family_of
from record7_optimizer import PRECISIONS
from record_model import Batch, Weights, add_gradients
from record_schedule import Schedule
from record_weights import load_weights, save_weights, stored
from records import RECORDS, Record, StreamRecord, UnifiedRecord

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def gradients_of(weights: Weights) -> Weights:
    return {n: torch.zeros_like(w) if w.grad is None else w.grad for n, w in weights.items()}


def record_of(args: argparse.Namespace,
              slot_tokens: int = 0) -> Record | UnifiedRecord | StreamRecord:
    """With what of a run its weights do not tell."""
    record = RECORDS[args.record]
    if not isinstance(record, StreamRecord):
        return record
    slot_tokens = args.eps_tokens or slot_tokens or record.slot_tokens
    return dataclasses.replace(record, heads=args.heads, slot_tokens=slot_tokens)


def schedule_of(args: argparse.Namespace, metadata: dict[str, str], head_dim: int) -> Schedule:
    return family_of(args.record).schedule(record_of(args), int(metadata["total_steps"]), head_dim,
                                           int(metadata["block_tokens"]))


def check_stage(schedule: Schedule, step: int, metadata: dict[str, str]) -> None:
    """The dump was made with the windows, scale and loss weights that this program computes on its
    own. Weights that are 0 at the end do not count."""
    stage = schedule.stage(step)
    windows = (int(metadata["short_window"]), int(metadata["long_window"]))
    scale = float(metadata["attention_scale"])
    weights = [float(w) for w in metadata.get("loss_weights", "1").split(",")]
    while weights[-1] == 0:
        weights.pop()
    if (windows != (stage.short_window, stage.long_window)
            or abs(scale / stage.attention_scale - 1) > 1e-6
            or len(weights) != len(stage.loss_weights)
            or any(abs(a / b - 1) > 1e-5 for a, b in zip(weights, stage.loss_weights))):
        raise ValueError(f"windows {windows}, scale {scale}, loss weights {weights} in the file, "
                         f"{stage} by the formulas")


def check_tying(rates: dict[str, float], metadata: dict[str, str]) -> None:
    """Of the first update. Records without tying need not say so."""
    tied = metadata.get("tied", "0")
    if tied not in ("0", "1") or (tied == "1") != rates.get("tied", False):
        raise ValueError(f"tied is {tied} in the file, {rates} by the formulas")


def drawn_weights(args: argparse.Namespace, dense: bool) -> Weights:
    return family_of(args.record).initial_weights(record_of(args), args.vocab, args.dim,
                                                  args.heads, args.mlp_dim, args.seed, dense)


def run_init(args: argparse.Namespace) -> None:
    save_weights(args.out, drawn_weights(args, args.dense), family_of(args.record).is_bf16)


def run_grads(args: argparse.Namespace) -> None:
    out = {}
    with safe_open(args.tokens, "pt") as dump:
        metadata = dump.metadata()
        weights = load_weights(args.init, args.device)
        model = family_of(args.record).model(weights, record_of(args), DTYPES[args.precision])
        schedule = schedule_of(args, metadata, model.head_dim)
        step = int(metadata["schedule_step"])
        check_stage(schedule, step, metadata)
        for k in range(int(metadata["batches"])):
            batch = Batch(*(dump.get_tensor(f"{part}.{k}").long().to(args.device)
                            for part in ("tokens", "targets", "boundaries")))
            losses = add_gradients(model, batch, schedule.stage(step), args.slots_per_pass)
            out[f"loss.{k}"] = losses.cpu()
            for name, g in gradients_of(weights).items():
                out[f"grad.{k}.{name}"] = g.cpu().contiguous()
                weights[name].grad = None
    save_file(out, args.out, metadata | {"written_by": f"torch {torch.__version__}"})


def run_update(args: argparse.Namespace) -> None:
    """As many updates as the dump has batches, from its gradients, not from torch's."""
    with safe_open(args.grads, "pt") as dump:
        metadata = dump.metadata()
        weights = load_weights(args.init, args.device)
        family = family_of(args.record)
        record = record_of(args, dump.get_slice("tokens.0").get_shape()[1])
        head_dim = family.model(weights, record).head_dim
        schedule = schedule_of(args, metadata, head_dim)
        step = int(metadata["schedule_step"])
        check_tying(schedule.rates(step), metadata)
        options = {"precision": args.newton_schulz} if args.newton_schulz else {}
        optimizer = family.optimizer({n: w.detach() for n, w in weights.items()}, record, **options)
        for k in range(int(metadata["batches"])):
            slots = len(dump.get_tensor(f"tokens.{k}"))
            mean = {n: dump.get_tensor(f"grad.{k}.{n}").to(args.device).reshape(w.shape) / slots
                    for n, w in weights.items()}
            optimizer.step(mean, step + k, **schedule.rates(step + k))
    after = {f"after.{n}": stored(w, family.is_bf16(n)) for n, w in optimizer.w.items()}
    # Weights with 16 more bits than bf16, as dump_step writes them: f32.
    for n, w in getattr(optimizer, "exact", {}).items():
        after[f"after.{n}"] = w.cpu().contiguous()
    if hasattr(optimizer, "state"):
        after |= {f"state.{n}": t.cpu().contiguous() for n, t in optimizer.state().items()}
    save_file(after, args.out, metadata)


def run_train(args: argparse.Namespace) -> None:
    if args.init:
        weights = load_weights(args.init, args.device)
    else:
        weights = {n: w.to(args.device).float().requires_grad_(True)
                   for n, w in drawn_weights(args, dense=False).items()}
    family, record = family_of(args.record), record_of(args, args.batch_tokens // args.slots)
    model = family.model(weights, record, DTYPES[args.precision])
    optimizer = family.optimizer({n: w.detach() for n, w in weights.items()}, record)
    schedule = family.schedule(record, args.steps, model.head_dim, args.block_tokens)
    batch_tokens = lambda step: args.batch_tokens or schedule.batch_tokens(step)
    batches = family.batches(
        shard_batches.find_shards(args.train_files), args.slots,
        lambda step: batch_tokens(step) // args.slots, args.max_seq_len, args.epochs)
    with open(args.metrics, "w", encoding="utf-8") as metrics:
        for step in range(args.steps):
            batch = next(batches, None)
            if batch is None:
                raise ValueError(f"the shards end before step {step + 1}; raise --epochs")
            start = time.monotonic()
            batch = Batch(*(t.to(args.device)
                            for t in (batch.tokens, batch.targets, batch.boundaries)))
            losses = add_gradients(model, batch, schedule.stage(step), args.slots_per_pass)
            mean = {n: g / args.slots for n, g in gradients_of(weights).items()}
            optimizer.step(mean, step, **schedule.rates(step))
            for w in weights.values():
                w.grad = None
            row = {"step": step + 1, "loss": losses.double().sum().item() / batch_tokens(step),
                   "step_ms": 1000 * (time.monotonic() - start)}
            metrics.write(json.dumps(row) + "\n")
            metrics.flush()


def add_size_flags(parser: argparse.ArgumentParser) -> None:
    for flag in ("vocab", "dim", "mlp_dim"):
        parser.add_argument(f"--{flag}", type=int, help="the record's if not given")
    parser.add_argument("--seed", type=int, default=0)


def add_record_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--record", choices=RECORDS, default="muon_custom_sizing")
    parser.add_argument("--heads", type=int, help="the record's if not given; of records other "
                        "than record7 init alone needs it")
    parser.add_argument("--eps_tokens", type=int, default=0, help="record7: Adam's epsilon is "
                        "1e-10 times this; 0: the tokens of a slot")


def add_pass_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=DTYPES, default="bf16")
    parser.add_argument("--slots_per_pass", type=int, default=1)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    init = commands.add_parser("init")
    init.set_defaults(run=run_init)
    init.add_argument("--out", required=True)
    init.add_argument("--dense", action="store_true", help="no weight is zero")
    add_size_flags(init)
    grads = commands.add_parser("grads")
    grads.set_defaults(run=run_grads)
    update = commands.add_parser("update")
    update.set_defaults(run=run_update)
    update.add_argument("--newton_schulz", choices=PRECISIONS, default="", help="record7 and "
                        "anvil: how the orthogonaliser rounds; bf16 if not given")
    for command, source in ((grads, "--tokens"), (update, "--grads")):
        command.add_argument("--init", required=True)
        command.add_argument(source, required=True)
        command.add_argument("--out", required=True)
        add_pass_flags(command)
    train = commands.add_parser("train")
    train.set_defaults(run=run_train)
    train.add_argument("--init", default="", help="initial weights; else drawn from --seed")
    train.add_argument("--train_files", required=True)
    train.add_argument("--metrics", required=True)
    train.add_argument("--batch_tokens", type=int, default=16384,
                       help="of every step; 0: the record's")
    for flag, value in (("steps", 100), ("slots", 8), ("epochs", 1), ("max_seq_len", 2048),
                        ("block_tokens", 128)):
        train.add_argument(f"--{flag}", type=int, default=value)
    add_size_flags(train)
    add_pass_flags(train)
    for command in (init, grads, update, train):
        add_record_flags(command)
        command.add_argument("--overwrite", action="store_true",
                             help="replace the file that is written, if it is there")
    args = parser.parse_args(argv)
    written = getattr(args, "out", None) or args.metrics
    if not args.overwrite and os.path.exists(written) and os.path.getsize(written) > 0:
        parser.error(f"{written}: exists; give another name, or --overwrite to replace it")
    for flag, value in zip(("vocab", "dim", "heads", "mlp_dim"), family_of(args.record).sizes):
        if getattr(args, flag, None) is None:
            setattr(args, flag, value)
    return args


if __name__ == "__main__":
    arguments = parse(sys.argv[1:])
    arguments.run(arguments)
