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
from typing import Any

import psutil
import torch
from rich import box
from rich.console import Console
from rich.table import Table

THERE = "transformers"
GIB = 2**30
WIDTH = 79
NO_TRANSFORMERS = (
    "transformers is not installed, so the columns that compare with it are left out; "
    "`pip install -c constraints.txt -e '.[dev]'` brings it."
)


@dataclass
class BenchRow:
    """One kind of work by all sides; seconds are those of the fastest round."""

    model: str
    dtype: str
    work: str
    difference: dict[str, float]  # by side, relative to the first side's result
    seconds: dict[str, float] = field(default_factory=dict)  # empty: results disagree
    medians: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    bytes_read: int | None = None  # weights and cache, for one step of decoding

    def ratio(self, side: str, other: str) -> str:
        """How many times as fast as `other` a side is; "" where one of them is not there."""
        if side not in self.seconds or other not in self.seconds:
            return ""
        return f"{self.seconds[other] / self.seconds[side]:.2f}"


def about(size: str, device: torch.device, bandwidth: float) -> dict[str, Any]:
    """What a measurement must state to mean anything."""
    here = importlib.util.find_spec(THERE) is not None
    return {
        "size": size,
        "device": str(device),
        "processor": _processor() if device.type == "cpu" else str(device),
        "threads": torch.get_num_threads(),
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
        if row.seconds:
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
    timed = [row for row in rows if row.seconds]
    best = "fast" if any("fast" in row.seconds for row in timed) else "plain"
    there = any(THERE in row.seconds for row in timed)

    def share(row: BenchRow) -> str:
        if row.bytes_read is None:
            return ""
        return f"{row.bytes_read / row.seconds[best] / bandwidth:.0%}"

    columns = {
        f"{best}, ms": lambda row: f"{1000 * row.seconds[best]:.2f}",
        "plain/HF": lambda row: row.ratio("plain", THERE),
        "fast/HF": lambda row: row.ratio("fast", THERE),
        "fast/plain": lambda row: "" if there else row.ratio("fast", "plain"),
        f"{best}/all": lambda row: row.ratio(best, "all experts"),
        "memory": share,
        "differs": lambda row: f"{max(row.difference.values()):.0e}",
    }
    return {
        heading: cell for heading, cell in columns.items() if any(cell(row) for row in timed)
    }


def _legend(rows: Sequence[BenchRow], about: dict[str, Any]) -> list[str]:
    bandwidth = about["read_bytes_per_second"] / GIB
    cores = os.cpu_count() or 1
    text = [
        "a/b: how many times as fast as b a is. HF: transformers as it comes; plain: the "
        "package's code; fast: the same with labkit/model/fast.py; all: plain, but every "
        "expert runs on every token. memory: what a step reads, weights and cache, as a "
        f"share of the {bandwidth:.1f} GiB/s read here (above 100%: from the processor's "
        "cache). differs: the largest relative difference between the sides' results.",
        f"{about['processor']}, {about['threads']} threads, torch {about['torch']}, "
        f"transformers {about['transformers']}.",
    ]
    if about["transformers"] is None:
        text.append(NO_TRANSFORMERS)
    if about["load"] > cores + 1:
        text.append(
            f"The machine was busy (load {about['load']:.0f} on {cores} cores): "
            "repeat it on a quiet one."
        )
    if not all(row.seconds for row in rows):
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
