"""The figures of the class reports, in colours that everyone tells apart, with alt text."""

from __future__ import annotations

from math import ceil
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from labkit.core.syllabus import Exercise
from labkit.grading.class_report.class_results import ABSENT, Entry, LabResults, state
from labkit.lang import said, tr
from labkit.learner.figures.drawing import BLUE, GREY, ORANGE, SKY, as_html

# all points, some, none, not started; told apart in grey, too
COLOURS, HATCHES = (BLUE, SKY, ORANGE, "#D9D9D9"), ("", "//", "", "")
MOST_BARS = 30
OF_EXERCISE = (said("all points"), said("some points"), said("no points"), said("not started"))
OF_LAB = (said("all points"), said("some"), said("no points"), said("nothing handed in"))


def of_lab(results: LabResults) -> str:
    """Points of the class, whole and by exercise."""
    figure = Figure(figsize=(11, max(3.0, 0.42 * len(results.lab.exercises) + 1.5)))
    left, right = figure.subplots(1, 2, width_ratios=(4, 5))
    histogram(left, results)
    listed = list(reversed(results.lab.exercises))
    counts = [results.states(exercise) for exercise in listed]
    stacked(right, [label(exercise) for exercise in listed], counts, OF_EXERCISE)
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
            none=earned(results)[1],
            hardest=f"{hardest.id} {hardest.title}",
            share=100 * results.share(hardest),
        ),
    )


def histogram(axis: Axes, results: LabResults) -> None:
    points, zeros = earned(results)
    width = ceil(results.possible / MOST_BARS)
    bins = [edge - 0.5 for edge in range(0, ceil(results.possible) + width + 1, width)]
    axis.hist(
        [points, [0.0] * zeros], bins=bins, color=[BLUE, ORANGE], rwidth=0.85, stacked=True
    )
    middle = results.median
    axis.axvline(middle, color="black", linestyle="--", linewidth=1)
    place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    text = said("median {0}").format(f"{middle:g}")
    axis.annotate(text, (middle, 1), (0, 3), ha="center", fontsize=9, **place)
    if zeros:
        nothing = [entry for entry in results.handed if not started(entry)]
        text = said("{0} with 0").format(zeros)
        if nothing:
            text += "\n" + said("{0} not started").format(len(nothing))
        axis.annotate(
            text, (0, zeros), (0, 3), ha="left", fontsize=9, textcoords="offset points"
        )
        axis.margins(y=0.2)
    xlabel = said("points by checks, of {0}").format(f"{results.possible:g}")
    axis.set(xlabel=xlabel, ylabel=said("submissions"), xlim=(-0.7, results.possible + 0.7))
    axis.set_title(said("Points"), loc="left", pad=24)
    axis.grid(axis="x", visible=False)
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(MaxNLocator(integer=True))


def earned(results: LabResults) -> tuple[list[float], int]:
    """The points by checks of those who have any, and how many have none."""
    points = [entry.standing.automatic for entry in results.handed]
    return [each for each in points if each], points.count(0)


def started(entry: Entry) -> bool:
    return any(state(graded) != ABSENT for graded in entry.exercises.values())


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
    left.set(xlabel=said("share of the class, %"))
    left.set_title(said("Learners"), loc="left", pad=24)
    spread(right, upwards)
    each = tr("; ").join(
        tr(
            "{lab}: {handed} of {all} handed in, median {median:g} of {possible:g} points",
            lab=one.lab.name,
            handed=len(one.handed),
            all=len(one.entries),
            median=one.median,
            possible=one.possible,
        )
        for one in results
    )
    about = tr("Left: how many handed in and with what success. Right: the spread.")
    return as_html(figure, f"{about} {each}.")


def hand_ins(results: LabResults) -> list[int]:
    points, zeros = earned(results)
    return [results.full, len(points) - results.full, zeros, len(results.missing)]


def spread(axis: Axes, results: list[LabResults]) -> None:
    shares = [[100 * entry.standing.automatic_share for entry in one.handed] for one in results]
    axis.boxplot(shares, orientation="horizontal", positions=range(len(results)), widths=0.55,
                 patch_artist=True, boxprops={"facecolor": SKY, "edgecolor": GREY},
                 medianprops={"color": "black", "linewidth": 1.6}, whis=(5, 95),
                 flierprops={"marker": ".", "markersize": 3}, manage_ticks=False)  # fmt: skip
    axis.set(xlabel=said("share of the points of a submission, %"), xlim=(-2, 102))
    axis.set_title(said("Points: median, middle half, middle 90%"), loc="left", pad=24)
    axis.grid(axis="y", visible=False)


def hardest(pairs: list[tuple[LabResults, Exercise]]) -> str:
    """The exercises with the smallest share of their points, and how it went in each."""
    upwards = list(reversed(pairs))
    labels = [label(exercise) for _, exercise in upwards]
    shares = [100 * results.share(exercise) for results, exercise in upwards]
    figure = Figure(figsize=(11, max(1.9, 0.34 * len(pairs) + 1.2)))
    axis = figure.subplots()
    stacked(
        axis, labels, [results.states(exercise) for results, exercise in upwards], OF_EXERCISE
    )
    for place, share in enumerate(shares):
        axis.annotate(f"{share:.0f}%", (1.01, place), xycoords=("axes fraction", "data"),
                      va="center", fontsize=9, annotation_clip=False)  # fmt: skip
    average = said("of its points\non average")
    axis.annotate(average, (1.01, 1), (0, 4), va="bottom", fontsize=8,
                  xycoords="axes fraction", textcoords="offset points")  # fmt: skip
    axis.set(xlabel=said("share of submissions, %"))
    return as_html(
        figure,
        tr(
            "Exercises by their mean share of points: {hardest} ({least:.0f} percent) is the "
            "hardest; the median of those shown is {middle:.0f} percent. The bars say how many "
            "have all, some and no points in each.",
            hardest=labels[-1],
            least=shares[-1],
            middle=median(shares),
        ),
    )
