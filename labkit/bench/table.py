"""The table that `tinyllm bench model` prints, and what there is to say about the machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
import torch
from rich import box
from rich.console import Console
from rich.table import Table

THERE = "transformers"
GIB = 2**30
WIDTH = 79
SURE = 0.05  # so far apart two runs of a row may be
SIDES = {
    THERE: "plain/HF 2.0: plain is twice as fast as HF, which is transformers as it comes.",
    "plain": "plain: the package's code.",
    "fast": "fast: the same with labkit/model/fast.py.",
    "all experts": "all: plain, but every expert runs on every token.",
}
FEW = 5  # rounds, which tell nothing about how far
NO_TRANSFORMERS = (
    "transformers is not installed, so the columns that compare with it are left out; "
    "`pip install -c constraints.txt -e '.[dev]'` brings it."
)


@dataclass
class BenchRow:
    """One kind of work by all sides."""

    model: str
    dtype: str
    work: str
    difference: dict[str, float]  # by side, relative to the first side's result
    times: dict[str, list[float]] = field(default_factory=dict)  # empty: results disagree
    bytes_read: int | None = None  # weights and cache, for one step of decoding

    @property
    def rounds(self) -> int:
        return len(next(iter(self.times.values()), ()))

    def seconds(self, side: str) -> float:
        return median(self.times[side])

    def ratios(self, side: str, other: str) -> list[float]:
        """How many times as fast as `other` a side was, round by round; [] where one of them
        is not there."""
        pairs = zip(self.times.get(side, ()), self.times.get(other, ()), strict=False)
        return [theirs / own for own, theirs in pairs]

    def ratio(self, side: str, other: str) -> str:
        found = self.ratios(side, other)
        return f"{median(found):.2f}" if found else ""

    @property
    def spread(self) -> float:
        """How far apart two runs of this row may be: a share of its ratios with the first
        side, from how far their quartiles are apart."""
        if self.rounds < FEW:
            return float("inf")
        first, *others = self.times
        return max((_error(self.ratios(side, first)) for side in others), default=0.0)


def _error(ratios: Sequence[float]) -> float:
    """Twice the standard error of the difference of two such medians."""
    low, middle, high = quantiles(ratios, n=4)
    return 2 * 2**0.5 * 0.93 * (high - low) / middle / len(ratios) ** 0.5


def alone(device: torch.device) -> bool:
    """One thread: then the processor's own seconds can be taken, whatever else it does."""
    return device.type == "cpu" and torch.get_num_threads() == 1


def about(size: str, device: torch.device, bandwidth: float) -> dict[str, Any]:
    """What a measurement must state to mean anything."""
    here = importlib.util.find_spec(THERE) is not None
    return {
        "size": size,
        "device": str(device),
        "processor": _processor() if device.type == "cpu" else str(device),
        "threads": torch.get_num_threads(),
        "clock": "CPU seconds" if alone(device) else "seconds on the wall",
        "torch": torch.__version__,
        "transformers": version(THERE) if here else None,
        "read_bytes_per_second": bandwidth,
        "load": psutil.getloadavg()[0],
    }


def show(console: Console, rows: Sequence[BenchRow], about: dict[str, Any]) -> None:
    columns = _columns(rows, about["read_bytes_per_second"])
    lines = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table(box=lines, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(f"size {about['size']}", no_wrap=True)
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    group = None
    for row in rows:
        if (row.model, row.dtype) != group:
            group = (row.model, row.dtype)
            table.add_row(", ".join(group), style="bold")
        if row.times:
            table.add_row(f"  {row.work}", *(cell(row) for cell in columns.values()))
        else:
            worst = max(row.difference, key=row.difference.get)
            table.add_row(f"  {row.work}")
            table.add_row(f"    {worst} differs by {row.difference[worst]:.2g}: not timed")
    console.print(table)
    console.print()
    for paragraph in _legend(rows, about):
        text = textwrap.fill(paragraph, WIDTH)
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _columns(rows: Sequence[BenchRow], bandwidth: float) -> dict[str, Any]:
    """{heading: what to show of a row}; a column nobody can fill is left out."""
    timed = [row for row in rows if row.times]
    best = "fast" if any("fast" in row.times for row in timed) else "plain"
    there = any(THERE in row.times for row in timed)

    def share(row: BenchRow) -> str:
        if row.bytes_read is None:
            return ""
        return f"{row.bytes_read / row.seconds(best) / bandwidth:.0%}"

    columns = {
        f"{best}, ms": lambda row: f"{1000 * row.seconds(best):.2f}",
        "plain/HF": lambda row: row.ratio("plain", THERE),
        "fast/HF": lambda row: row.ratio("fast", THERE),
        "fast/plain": lambda row: "" if there else row.ratio("fast", "plain"),
        f"{best}/all": lambda row: row.ratio(best, "all experts"),
        "unsure": _unsure,
        "memory": share,
        "differs": lambda row: f"{max(row.difference.values()):.0e}",
    }
    return {
        heading: cell for heading, cell in columns.items() if any(cell(row) for row in timed)
    }


def _unsure(row: BenchRow) -> str:
    if row.rounds < FEW:
        return f"{row.rounds} run{'s' if row.rounds > 1 else ''}"
    return f"+-{row.spread:.0%}" if row.spread > SURE else ""


def _legend(rows: Sequence[BenchRow], about: dict[str, Any]) -> list[str]:
    bandwidth = about["read_bytes_per_second"] / GIB
    cores = os.cpu_count() or 1
    seen = {side for row in rows for side in row.times}
    sides = " ".join(words for side, words in SIDES.items() if side in seen)
    text = [
        f"{sides} Medians of rounds in which all take turns; unsure: how "
        f"far two runs of a row may differ, if by more than {SURE:.0%}, or how few rounds "
        "there was time for. memory: what a step reads, weights and cache, as a "
        f"share of the {bandwidth:.1f} GiB/s read here (above 100%: from the processor's "
        "cache). differs: the largest relative difference between the sides' results.",
        f"{about['processor']}, {about['threads']} threads ({about['clock']}), "
        f"torch {about['torch']}, transformers {about['transformers']}.",
    ]
    if about.get("compiled") and "fast" in seen:
        text.append("Training: fast has layers compiled by torch; the other sides have not.")
    if "int8_nats_a_token" in about:
        text.append(
            "int8: fast with its matrices in int8, the other sides in float32. On stories that "
            f"costs stories-dense {about['int8_nats_a_token']:.3f} nats a token."
        )
    if about["transformers"] is None:
        text.append(NO_TRANSFORMERS)
    if about["load"] > cores + 1:
        text.append(
            f"The machine was busy (load {about['load']:.0f} on {cores} cores): "
            "repeat it on a quiet one."
        )
    if not all(row.times for row in rows):
        text.append("Results disagree: rows that are not timed show a fault, not a speed.")
    return text


def _processor() -> str:
    """The processor's name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
