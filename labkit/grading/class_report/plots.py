"""The figure of a lab's report, in colours that everyone tells apart, with alt text."""

from __future__ import annotations

from math import ceil

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from labkit.core.syllabus import Exercise
from labkit.grading.class_report.class_results import LabResults
from labkit.lang import said, tr
from labkit.learner.figures.drawing import BLUE, ORANGE, SKY, as_html

# all points, some, none, not started; told apart in grey, too
COLOURS, HATCHES = (BLUE, SKY, ORANGE, "#D9D9D9"), ("", "//", "", "")
MOST_BARS = 30
LEGEND = (said("all points"), said("some points"), said("no points"), said("not started"))


def of_lab(results: LabResults) -> str:
    """Points of the class, whole and by exercise."""
    figure = Figure(figsize=(11, max(3.0, 0.42 * len(results.lab.exercises) + 1.5)))
    left, right = figure.subplots(1, 2, width_ratios=(4, 5))
    histogram(left, results)
    exercises = list(reversed(results.lab.exercises))
    counts = [results.states(exercise) for exercise in exercises]
    stacked(right, [label(exercise) for exercise in exercises], counts)
    right.set(xlabel=said("share of submissions, %"))
    right.set_title(said("Exercises"), loc="left", pad=24)
    hardest = min(results.lab.exercises, key=results.share)
    return as_html(
        figure,
        tr(
            "Left: of {handed} submissions half have {median:g} points or more of "
            "{possible:g}, {full} have all, {none} none. Right: how many have all, some and no "
            "points in each exercise; the hardest is {hardest}, with {share:.0f} percent of "
            "its points on average.",
            handed=len(results.handed),
            median=results.median,
            possible=results.possible,
            full=results.full,
            none=earned(results).count(0),
            hardest=f"{hardest.id} {hardest.title}",
            share=100 * results.share(hardest),
        ),
    )


def histogram(axis: Axes, results: LabResults) -> None:
    width = ceil(results.possible / MOST_BARS)
    bins = [edge - 0.5 for edge in range(0, ceil(results.possible) + width + 1, width)]
    axis.hist(earned(results), bins=bins, color=BLUE, rwidth=0.85)
    axis.axvline(results.median, color="black", linestyle="--", linewidth=1)
    text = said("median {0}").format(f"{results.median:g}")
    axis.annotate(text, (results.median, 1), (0, 3), ha="center", fontsize=9,
                  xycoords=("data", "axes fraction"), textcoords="offset points")  # fmt: skip
    xlabel = said("points by checks, of {0}").format(f"{results.possible:g}")
    axis.set(xlabel=xlabel, ylabel=said("submissions"), xlim=(-0.7, results.possible + 0.7))
    axis.set_title(said("Points"), loc="left", pad=24)
    axis.grid(axis="x", visible=False)
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(MaxNLocator(integer=True))


def earned(results: LabResults) -> list[float]:
    """The points by checks of all who handed in."""
    return [entry.standing.automatic for entry in results.handed]


def stacked(axis: Axes, labels: list[str], counts: list[list[int]]) -> None:
    """A bar a label: what share is in each state of the legend."""
    left = [0.0] * len(counts)
    for place, name in enumerate(LEGEND):
        width = [100 * row[place] / max(sum(row), 1) for row in counts]
        bars = axis.barh(labels, width, left=left, color=COLOURS[place], label=name,
                         hatch=HATCHES[place], edgecolor="white", linewidth=0.5)  # fmt: skip
        shares = zip(counts, width, strict=True)
        texts = [f"{row[place]}" if share >= 7 else "" for row, share in shares]
        axis.bar_label(bars, texts, label_type="center", fontsize=8,
                       color="white" if COLOURS[place] == BLUE else "black")  # fmt: skip
        left = [start + share for start, share in zip(left, width, strict=True)]
    axis.set_xlim(0, 100)
    axis.grid(axis="y", visible=False)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2,
                handlelength=1.2, columnspacing=1.2)  # fmt: skip


def label(exercise: Exercise) -> str:
    title = exercise.title if len(exercise.title) <= 26 else exercise.title[:25] + "…"
    return f"{exercise.id} {title}"
