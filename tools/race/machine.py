"""What a race ran on, and from which source."""

from __future__ import annotations

import os
import platform
import subprocess
import time


def utc() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())


def _said(*command: str, folder: str | None = None) -> str:
    """What a command prints; empty if it fails or there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False,
                              cwd=folder)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file
                     if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "unknown CPU"


def gpus() -> list[str]:
    """A line each: name, driver, memory, power limit, highest clock; none without nvidia-smi."""
    query = "--query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm"
    return [line.strip() for line in
            _said("nvidia-smi", query, "--format=csv,noheader").splitlines() if line.strip()]


def card_now(gpu: str) -> str:
    """Clock and temperature of the GPUs that --gpus names; empty if that is not known."""
    command = ["nvidia-smi", "--query-gpu=clocks.sm,temperature.gpu", "--format=csv,noheader"]
    if gpu:
        command.append(f"--id={gpu}")
    return "; ".join(f"{line.strip()} C" for line in _said(*command).splitlines())


def describe() -> str:
    """One line: GPUs, CPU, memory, system."""
    cards = gpus()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    parts = [f"{len(cards)} x {cards[0]}"] if len(set(cards)) == 1 else list(cards)
    parts.append(f"{_cpu()}, {len(os.sched_getaffinity(0))} CPUs, {pages} GiB")
    return "; ".join([*parts, f"{platform.system()} {platform.release()}"])


def commit(folder: str) -> str:
    """The commit of the checkout that has `folder`, "with changes" after it if it differs."""
    found = _said("git", "rev-parse", "--short=12", "HEAD", folder=folder)
    if not found:
        return "unknown: no git checkout"
    changed = _said("git", "status", "--porcelain", "--untracked-files=no", folder=folder)
    return found + (" with changes" if changed else "")
