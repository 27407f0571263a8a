"""The benchmarks' commands: `tinyllm bench check`, `grade`, `model`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from labkit.core.syllabus import LABS
from labkit.core.terminal import Jobs, console, lab_called
from labkit.grading.commands import grading_extra
from labkit.learner.talk import commands as talk

app = typer.Typer(
    name="bench",
    help="Measure; prints times and ratios of one run on this machine.",
    no_args_is_help=True,
)

# ruff: noqa: UP045  typer on Python 3.10 needs Optional


@app.command()
def check() -> None:
    """How long a visible check takes."""
    with grading_extra():
        from labkit.bench.grading import bench_check
    bench_check(console)


@app.command()
def grade(
    lab: Annotated[str, typer.Option(help="which; all for every lab")] = "rmsnorm",
    submissions: Annotated[int, typer.Option(min=4, help="how many")] = 240,
    jobs: Jobs = None,
) -> None:
    """The seconds that grading takes, beside stock nbgrader autograde."""
    with grading_extra():
        from labkit.bench.grading import bench_grade
    bench_grade(console, LABS if lab == "all" else [lab_called(lab)], submissions, jobs)


@app.command()
def model(
    size: Annotated[str, typer.Option(help="tiny, small, 0.6B")] = "small",
    threads: Annotated[
        Optional[int], typer.Option(min=1, help="else as many as torch chooses")
    ] = None,
    device: talk.Device = "cpu",
    package: talk.PackageName = talk.PACKAGE,
    seconds: Annotated[
        float, typer.Option(min=0, help="at most about so long for each row")
    ] = 8.0,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="train fast with compiled layers, as `train --compile`; a minute more",
        ),
    ] = False,
    file: Annotated[
        Optional[Path], typer.Option("--json", help="write all numbers into this file, too")
    ] = None,
) -> None:
    """How fast a model reads (prefill), writes (decode) and learns, beside transformers.

    A mixture of experts also beside one that computes all of its experts for every token.

    Exit status 1 where the sides' results disagree.
    """
    with talk.problems_told():
        code, place = talk.load_package(package), talk.usable_device(device)
        from labkit.bench.model import Setting, bench_model

        setting = Setting(code, size, place, seconds, compiled)
        if not bench_model(console, setting, threads, file):
            raise typer.Exit(1)
