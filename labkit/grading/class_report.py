"""The class report: one HTML file, plots inside, no network and no script."""

from __future__ import annotations

import base64
import csv
import io
from collections import Counter
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape

from labkit.grading.run import Row, layers_of, reason
from labkit.report import clean
from labkit.syllabus import Lab

BLUE, ORANGE = "#0072b2", "#d55e00"


def write_report(path: Path, lab: Lab, rows: list[Row], feedback: dict[str, str]) -> Path:
    """Write the report; `feedback` maps learners to the address of their feedback page."""
    environment = Environment(
        loader=PackageLoader("labkit.grading", "templates"), autoescape=select_autoescape()
    )
    possible = sum(exercise.points for exercise in lab.exercises)
    page = environment.get_template("class.html").render(
        lab=lab,
        rows=rows,
        possible=possible,
        by_hand=sum(question.points for question in lab.questions),
        mean=sum(row.submission.score for row in rows) / max(len(rows), 1),
        full=sum(row.submission.score == possible for row in rows),
        reasons=commonest(rows),
        feedback=feedback,
        plot=plot(lab, rows),
        layers=layers_of(rows),
    )
    path.write_text(clean_page(page), "utf-8")
    return path


def clean_page(page: str) -> str:
    return "\n".join(clean(line) for line in page.split("\n"))


def commonest(rows: list[Row], most: int = 12) -> list[tuple[str, int]]:
    """The reasons for lost points, the most frequent first."""
    lost = [
        f"{graded.exercise.id}: {reason(graded)}"
        for row in rows
        for graded in row.submission.exercises
        if graded.score < graded.exercise.points
    ]
    return Counter(lost).most_common(most)


def plot(lab: Lab, rows: list[Row]) -> str:
    """Points of the class, whole and by exercise, as a PNG in base64."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    possible = sum(exercise.points for exercise in lab.exercises)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    left.hist([row.submission.score for row in rows], bins=range(possible + 2), color=BLUE,
              align="left", rwidth=0.8)  # fmt: skip
    left.set(xlabel=f"points of {possible}", ylabel="submissions", title="Whole lab")
    left.set_xlim(-0.6, possible + 0.6)
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    graded = [one for row in rows for one in row.submission.exercises]
    shares = [
        [one.score / exercise.points for one in graded if one.exercise.id == exercise.id]
        for exercise in lab.exercises
    ]
    labels = [f"{exercise.id} {exercise.title}" for exercise in lab.exercises]
    means = [100 * sum(share) / max(len(share), 1) for share in shares]
    right.barh(labels[::-1], means[::-1], color=ORANGE)
    right.set(xlabel="mean share of points, %", xlim=(0, 100), title="By exercise")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    plt.close(figure)
    return base64.b64encode(buffer.getvalue()).decode()


def write_csv(path: Path, lab: Lab, rows: list[Row]) -> Path:
    """One line a learner: points by exercise, the sum, the first reason."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["learner", *(e.id for e in lab.exercises), "points", "why"])
        for row in rows:
            points = [f"{graded.score:g}" for graded in row.submission.exercises]
            texts = [row.learner, *points, f"{row.submission.score:g}", row.why]
            table.writerow([harmless(text) for text in texts])
    return path


def harmless(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return clean("'" + text if text[:1] in "=+-@\t\r" else text)
