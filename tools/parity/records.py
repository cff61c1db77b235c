"""What distinguishes the records, as data."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Record:
    scalars: int
    backout_layer: int | None  # whose output the last scalar takes out of the stream again
    scheduled: int
    extension: int
    momentum_cooldown: int
    final_in_extension: bool  # the extension trains at the windows of the last rotary table
    beta1: float
    adam_every: int  # Adam steps where (s + 1) % adam_every == 0, on the sum of the gradients
    matrix_lr: float
    c_fc_factor: float
    normuon: bool  # and Polar Express in place of Newton-Schulz
    batch_tokens: int


@dataclasses.dataclass(frozen=True)
class UnifiedRecord:
    """The later family: see unified_model.py and its neighbours."""

    scheduled: int
    extension: int
    momentum_cooldown: int
    batch_tokens: tuple[int, int, int]  # in the thirds of the scheduled steps
    final_in_extension: bool = True


@dataclasses.dataclass(frozen=True)
class StreamRecord:
    """Track 2's: see record7_model.py and its neighbours. Batches are the stream of tokens."""

    scheduled: int
    batch_tokens: int
    heads: int
    slot_tokens: int  # of the losses' mean, which Adam's epsilon belongs to
    extension: int = 0
    momentum_cooldown: int = 0

    def head_dim(self, dim: int) -> int:
        return dim // self.heads


RECORDS = {
    "muon_custom_sizing": Record(
        scalars=72, backout_layer=None, scheduled=1640, extension=40, momentum_cooldown=0,
        final_in_extension=False, beta1=0.8, adam_every=1, matrix_lr=0.05, c_fc_factor=1,
        normuon=False, batch_tokens=393216),
    "fix_muon_lr": Record(
        scalars=62, backout_layer=8, scheduled=2245, extension=40, momentum_cooldown=50,
        final_in_extension=True, beta1=0.65, adam_every=2, matrix_lr=0.03, c_fc_factor=2,
        normuon=True, batch_tokens=262144),
    "unified_optimizers": UnifiedRecord(
        scheduled=1725, extension=40, momentum_cooldown=50,
        batch_tokens=(131072, 262144, 393216)),
    "anvil": UnifiedRecord(
        scheduled=1174, extension=20, momentum_cooldown=50,
        batch_tokens=(131072, 262144, 393216)),  # AnvilSchedule has all five
    "record7": StreamRecord(scheduled=6450, batch_tokens=524288, heads=8, slot_tokens=65536),
}
