"""Global batches of token shards: of pieces that start at a document's beginning, or, for track 2,
of the stream of tokens."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator

import numpy as np
import torch

from record_model import Batch

BOS = 50256
MAGIC, VERSION, HEADER_BYTES = 20240520, 1, 1024


def read_shard(path: str) -> np.ndarray:
    """The tokens, uint16. ValueError for a file that is no shard."""
    header = np.fromfile(path, dtype="<i4", count=HEADER_BYTES // 4)
    if len(header) == 256 and header.byteswap()[0] == MAGIC:
        raise ValueError(f"{path}: is in big-endian byte order; shards are little-endian")
    if len(header) < 256 or header[0] != MAGIC or header[1] != VERSION:
        raise ValueError(f"{path}: not a token shard of version {VERSION}")
    tokens = np.fromfile(path, dtype="<u2", offset=HEADER_BYTES, count=header[2])
    if len(tokens) != header[2]:
        raise ValueError(f"{path}: {len(tokens)} tokens, the header says {header[2]}")
    return tokens


def find_shards(globs: str) -> list[str]:
    """Files of comma-separated globs, sorted by name."""
    files = sorted({f for pattern in globs.split(",") for f in glob.glob(pattern)})
    if not files:
        raise ValueError(f"{globs}: no such file")
    return files


def _slot(tokens: np.ndarray, bos: np.ndarray, at: int, slot_tokens: int,
          max_doc_len: int) -> tuple[np.ndarray, list[int], int] | None:
    """T + 1 tokens, the documents' starts, and the next document; None at the shard's end."""
    parts, starts, length = [], [], 0
    while length <= slot_tokens:
        if at >= len(bos):
            return None
        begin = int(bos[at])
        end = int(bos[at + 1]) if at + 1 < len(bos) else len(tokens)
        end = min(end, begin + max_doc_len, begin + slot_tokens + 1 - length)
        parts.append(tokens[begin:end])
        starts.append(length)
        length += end - begin
        at += 1
    return np.concatenate(parts), starts, at


def global_batches(files: list[str], slots: int, slot_tokens: Callable[[int], int],
                   max_doc_len: int = 2048, epochs: int = 1) -> Iterator[Batch]:
    """All batches in order; one that a shard's end cuts off is dropped as a whole. slot_tokens:
    the size of the slots of each batch by its number."""
    number = 0
    for path in files * epochs:
        tokens = read_shard(path)
        bos = np.flatnonzero(tokens == BOS)
        at = 0
        while True:
            built, size = [], slot_tokens(number)
            for _ in range(slots):
                slot = _slot(tokens, bos, at, size, max_doc_len)
                if slot is None:
                    break
                built.append(slot)
                at = slot[2]
            if len(built) < slots:
                break
            number += 1
            yield _stacked(built, size)


def stream_batches(files: list[str], slots: int, slot_tokens: Callable[[int], int],
                   max_doc_len: int = 0, epochs: int = 1) -> Iterator[Batch]:
    """As global_batches: each slot goes on where the one before ended, whose last target is its
    first input; a shard's rest is dropped. Documents are used whole."""
    del max_doc_len
    number = 0
    for path in files * epochs:
        tokens, at = read_shard(path), 0
        while at + slots * (size := slot_tokens(number)) + 1 < len(tokens):
            built = []
            for begin in range(at, at + slots * size, size):
                piece = tokens[begin : begin + size + 1]
                starts = [0, *np.flatnonzero(piece[:-1] == BOS).tolist()]
                built.append((piece, starts, 0))
            at += slots * size
            number += 1
            yield _stacked(built, size)


def _stacked(built: list[tuple[np.ndarray, list[int], int]], slot_tokens: int) -> Batch:
    buffers = torch.from_numpy(np.stack([b[0] for b in built]).astype(np.int64))
    most = max(len(b[1]) for b in built) + 1
    boundaries = torch.full((len(built), most), slot_tokens, dtype=torch.int64)
    for row, (_, starts, _) in zip(boundaries, built):
        row[: len(starts)] = torch.tensor(starts)
    return Batch(buffers[:, :-1], buffers[:, 1:], boundaries)
