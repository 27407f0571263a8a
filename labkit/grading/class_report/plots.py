"""The figures of the class reports, in colours that everyone tells apart, with alt text."""

from __future__ import annotations

from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from labkit.core.syllabus import Exercise
from labkit.grading.class_report.class_results import LabResults
from labkit.learner.figures.drawing import BLUE, GREY, ORANGE, SKY, as_html

# all points, some, none, not started; told apart in grey, too
COLOURS, HATCHES = (BLUE, SKY, ORANGE, "#D9D9D9"), ("", "//", "", "")
OF_EXERCISE = ("all points", "some points", "no points", "not started")
OF_LAB = ("all points", "some", "none", "nothing handed in")


def of_lab(results: LabResults) -> str:
    """Points of the class, whole and by exercise."""
    figure = Figure(figsize=(11, max(3.0, 0.42 * len(results.lab.exercises) + 1.5)))
    left, right = figure.subplots(1, 2, width_ratios=(4, 5))
    histogram(left, results)
    listed = list(reversed(results.lab.exercises))
    counts = [results.states(exercise) for exercise in listed]
    stacked(right, [label(exercise) for exercise in listed], counts, OF_EXERCISE)
    right.set(xlabel="share of submissions, %")
    right.set_title("Exercises", loc="left", pad=24)
    hardest = min(results.lab.exercises, key=results.share)
    return as_html(
        figure,
        f"Left: of {len(results.handed)} submissions half have {results.median:g} points or "
        f"more of {results.possible}, {results.full} have all. Right: how many have all, some "
        f"and no points in each exercise; the hardest is {hardest.id} {hardest.title}, with "
        f"{100 * results.share(hardest):.0f} percent of its points on average.",
    )


def histogram(axis: Axes, results: LabResults) -> None:
    points = [entry.automatic for entry in results.handed]
    bins = [edge - 0.5 for edge in range(results.possible + 2)]
    axis.hist(points, bins=bins, color=BLUE, rwidth=0.85)
    middle = results.median
    axis.axvline(middle, color="black", linestyle="--", linewidth=1)
    place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    axis.annotate(f"median {middle:g}", (middle, 1), (0, 3), ha="center", fontsize=9, **place)
    axis.set(xlabel=f"points by automatic checks, of {results.possible}", ylabel="submissions",
             xlim=(-0.7, results.possible + 0.7))  # fmt: skip
    axis.set_title("Points", loc="left", pad=24)
    axis.grid(axis="x", visible=False)
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(MaxNLocator(integer=True))


def stacked(
    axis: Axes, labels: list[str], counts: list[list[int]], legend: tuple[str, ...]
) -> None:
    """A bar a label: what share is in each state of the legend."""
    left = [0.0] * len(counts)
    for place, name in enumerate(legend):
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


def of_course(results: list[LabResults]) -> str:
    """The labs side by side: who handed in, and how the points spread."""
    upwards = list(reversed(results))
    figure = Figure(figsize=(11, max(2.6, 0.42 * len(results) + 1.5)))
    left, right = figure.subplots(1, 2, sharey=True)
    stacked(left, [one.lab.name for one in upwards], [hand_ins(one) for one in upwards], OF_LAB)
    left.set(xlabel="share of the class, %")
    left.set_title("Learners", loc="left", pad=24)
    spread(right, upwards)
    each = "; ".join(
        f"{one.lab.name}: {len(one.handed)} of {len(one.entries)} handed in, median "
        f"{one.median:g} of {one.possible} points"
        for one in results
    )
    about = "Left: how many handed in and with what success. Right: the spread."
    return as_html(figure, f"{about} {each}.")


def hand_ins(results: LabResults) -> list[int]:
    none = sum(entry.automatic == 0 for entry in results.handed)
    some = len(results.handed) - results.full - none
    return [results.full, some, none, len(results.missing)]


def spread(axis: Axes, results: list[LabResults]) -> None:
    shares = [[100 * entry.automatic / one.possible for entry in one.handed] for one in results]
    axis.boxplot(shares, orientation="horizontal", positions=range(len(results)), widths=0.55,
                 patch_artist=True, boxprops={"facecolor": SKY, "edgecolor": GREY},
                 medianprops={"color": "black", "linewidth": 1.6}, whis=(5, 95),
                 flierprops={"marker": ".", "markersize": 3}, manage_ticks=False)  # fmt: skip
    axis.set(xlabel="share of the points of a submission, %", xlim=(-2, 102))
    axis.set_title("Points: median, middle half, middle 90%", loc="left", pad=24)
    axis.grid(axis="y", visible=False)


def hardest(pairs: list[tuple[LabResults, Exercise]]) -> str:
    """The exercises with the smallest share of their points."""
    labels = [label(exercise) for _, exercise in reversed(pairs)]
    shares = [100 * results.share(exercise) for results, exercise in reversed(pairs)]
    figure = Figure(figsize=(11, max(1.6, 0.34 * len(pairs) + 0.9)))
    axis = figure.subplots()
    bars = axis.barh(labels, shares, color=ORANGE)
    axis.bar_label(bars, [f"{share:.0f}%" for share in shares], padding=3, fontsize=9)
    axis.set(xlabel="mean share of its points, %", xlim=(0, 105))
    axis.grid(axis="y", visible=False)
    return as_html(
        figure,
        f"Exercises by their mean share of points: {labels[-1]} ({shares[-1]:.0f} percent) is "
        f"the hardest; the median of those shown is {median(shares):.0f} percent.",
    )
