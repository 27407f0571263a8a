"""The instructor's commands: collect submissions, grade them, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from labkit.course.lang import tr
from labkit.course.report import clean
from labkit.course.syllabus import Lab
from labkit.course.terminal import Jobs, LabName, Problem, console, ending_on, lab_called
from labkit.grading.course_folder import existing_course, grading_extra, writing
from labkit.grading.platforms import names_of, read_platforms, takes_grades

if TYPE_CHECKING:
    from labkit.grading.nbgrader.course import Course

app = typer.Typer()
TAKERS = takes_grades().values()
NAMES = 8  # people who are not on a roster

# ruff: noqa: UP045  typer on Python 3.10 needs Optional
CourseFolder = Annotated[
    Path, typer.Option("--course", envvar="TINYLLM_COURSE", help="nbgrader's course folder")
]
Database = Annotated[
    Optional[str],
    typer.Option(
        "--db", envvar="TINYLLM_DB", help="the gradebook, such as postgresql+psycopg2://..."
    ),
]
Sources = Annotated[
    Optional[list[Path]],
    typer.Argument(
        help=f"folders, notebooks, zips as {names_of(read_platforms())} export them"
    ),
]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="the folder for all that is written")] = Path(
        "demo"
    ),
) -> None:
    """Grade a small class, from notebooks to feedback and report."""
    with grading_extra():
        from labkit.grading.demo import demo as run
        from labkit.grading.nbgrader.course import CourseError
        from labkit.sandbox.bubblewrap import GradingError

    with ending_on(CourseError, GradingError):
        run(out, console)


@app.command()
def collect(
    sources: Sources = None,
    lab: Annotated[
        Optional[str],
        typer.Option(help="only this lab; it is also that of notebooks that do not say"),
    ] = None,
    roster: Annotated[
        Optional[Path],
        typer.Option(help="CSV: id, name (or first_name, last_name), email; an LMS's list"),
    ] = None,
    learner: Annotated[
        Optional[str],
        typer.Option(
            "--as", metavar="ID", help="it is all this learner's, whatever it is called"
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="even a later submission by an earlier one")
    ] = False,
    course: CourseFolder = Path("course"),
    db: Database = None,
) -> None:
    """Collect submissions into COURSE/submitted.

    Without a source, list what is still open. The exit status is 1 if something needs a look.
    """
    found = lab_called(lab) if lab else None
    folder = existing_course(course, db)
    with writing(folder):
        all_well = collected(folder, sources or [], found, roster, replace, learner)
    if not all_well:
        raise typer.Exit(1)


@app.command()
def report(course: CourseFolder = Path("course"), db: Database = None) -> None:
    """Bring feedback and class reports up to date.

    Points given by hand since and course.toml as it is now count. Nothing is judged again.
    """
    folder = existing_course(course, db)
    from labkit.grading.run.grade import print_changes, print_remarks, report_again

    with writing(folder):
        written, results = report_again(folder)
    if not written:
        raise Problem(tr("nothing is graded yet: `tinyllm grade LAB`"))
    count = len(written) - 1
    print(f"{written[-1]}, with the pages of {count} lab{'s' * (count != 1)}")
    print_changes(results, console)
    print_remarks(folder.remarks, console)
    if folder.remarks:
        raise typer.Exit(1)


@app.command()
def points(
    tables: Annotated[list[Path], typer.Argument(help="what `export written` wrote")],
    course: CourseFolder = Path("course"),
    db: Database = None,
) -> None:
    """Take points and comments for written answers from tables, then report.

    An empty cell changes nothing. If a row cannot be taken, nothing is changed.
    """
    folder = existing_course(course, db)
    from labkit.grading.export.written import take_points

    with writing(folder):
        count = len(take_points(folder, tables))
    print(f"{count} answer{'s' * (count != 1)} with new points or comments")
    report(course, db)


@app.command()
def export(
    kinds: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help=f"{', '.join(takes_grades())}: grades for it; feedback: pages for it; "
            "answers: all code; written: a table of the written answers",
        ),
    ],
    roster: Annotated[
        Optional[Path],
        typer.Option(help="; ".join(f"{one.name}'s {one.table}" for one in TAKERS)),
    ] = None,
    lab: Annotated[Optional[str], typer.Option(help="only this lab")] = None,
    course: CourseFolder = Path("course"),
    db: Database = None,
) -> None:
    """Write grades, feedback or answers to COURSE/export.

    The exit status is 1 if something needs a look.
    """
    only, folder = lab_called(lab) if lab else None, existing_course(course, db)
    from labkit.grading.export import export as exports

    remarks = []
    with writing(folder):
        for part in chain.from_iterable(
            exports.export(folder, kind, only, roster) for kind in kinds
        ):
            if isinstance(part, Path):
                print(part)
            else:
                remarks.append(part)
                console.print(clean(part), style="yellow", markup=False, highlight=False)
    if remarks:
        raise typer.Exit(1)


@app.command()
def grade(
    lab: LabName,
    sources: Sources = None,
    course: CourseFolder = Path("course"),
    db: Database = None,
    jobs: Jobs = None,
    dask: Annotated[
        Optional[str],
        typer.Option(help="a Dask scheduler whose workers do it, tcp://HOST:8786"),
    ] = None,
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="grade without bubblewrap: code you trust")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh/--resume", help="grade again what is graded already")
    ] = False,
    as_published: Annotated[
        bool,
        typer.Option(
            "--as-published", help="leave what was given out for the same notebook as it is"
        ),
    ] = False,
) -> None:
    """Grade what was handed in for a lab into the gradebook.

    It is in COURSE/submitted/*/LAB. Stopped or killed, the same command goes on where it was.
    SOURCES are collected first, as `tinyllm collect` does. Status 0: all is well; 1: all is
    graded, and remarks come last; 2: it could not be done, with the reason; 130:
    stopped.
    """
    found = lab_called(lab)
    if fresh and as_published:
        raise Problem("--fresh judges all again, --as-published does not: take one away")
    if not found.is_checkable:
        raise Problem(
            f"{found.name} needs {found.needs}, which is not installed: nothing is graded"
        )
    with grading_extra():
        from labkit.grading.run.pool import GradingPool

    all_well = True
    try:
        with GradingPool(jobs, dask, no_sandbox or None) as pool:
            new = new_files(course, found, fresh)
            if new or sources:
                pool.start(len(new) + len(sources or ()))  # while nbgrader is imported
            folder = existing_course(course, db)
            from labkit.grading.run.grade import grade_and_report

            with writing(folder):
                folder.ready(found)
                if sources:
                    all_well = collected(folder, sources, found)
                rows = grade_and_report(
                    folder, found, console, pool, fresh, as_published=as_published
                )
    except KeyboardInterrupt:
        console.print("stopped; what is graded is kept, and the same command goes on")
        raise typer.Exit(130) from None
    if not rows:
        handed = folder.root / "submitted" / "*" / found.name / f"{found.name}.ipynb"
        raise Problem(f"nothing to grade: no {handed}")
    if folder.remarks or not all_well:
        raise typer.Exit(1)


def new_files(course: Path, lab: Lab, fresh: bool) -> list[Path]:
    """Return the submissions that may not have been graded yet."""
    graded = course / ".results" / f"{lab.name}.json"
    since = graded.stat().st_mtime if graded.is_file() and not fresh else 0
    found = course.glob(f"submitted/*/{lab.name}/{lab.name}.ipynb")
    return [path for path in found if path.lstat().st_mtime >= since]


def collected(
    course: Course,
    sources: Sequence[Path],
    lab: Lab | None,
    roster: Path | None = None,
    replace: bool = False,
    learner: str | None = None,
) -> bool:
    """Collect, and print one screen about it; return whether all is well."""
    from labkit.grading.collect.deliver import collect
    from labkit.grading.collect.issues import OpenIssues, show

    lines = collect(course, sources, lab, roster, replace, learner)
    still_open = OpenIssues(course.root).open()
    show(course.root, lines, still_open, console, is_run=bool(sources))
    for text in roster_lines(course, roster) if roster else ():
        console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
    return not still_open and not any(line.trouble for line in lines)


def roster_lines(course: Course, roster: Path) -> Iterator[str]:
    """Yield lines on learners who are not on this roster, perhaps of one section."""
    from labkit.grading.collect.roster import read_roster

    people, left = course.people(), course.rules.left
    listed = {person.id for person in read_roster(roster, people).people}
    named = {person.id for person in people if person.name or person.email}
    if gone := sorted(named - listed - left):
        more = f" and {len(gone) - NAMES} more" * (len(gone) > NAMES)
        names = ", ".join(f'"{learner}"' for learner in gone[:NAMES])
        yield f"in the class and not on {roster.name}: {names}{more}"
        yield "who left the course goes into course.toml: [roster], left = [...]"
    if back := sorted(left & listed):
        yield f"on {roster.name}, though course.toml says that they left: {', '.join(back)}"
