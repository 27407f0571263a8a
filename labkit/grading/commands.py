"""An instructor's commands: collect what was handed in, grade it, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from labkit.course.files import of_the_disk
from labkit.course.lang import tr
from labkit.course.report import clean
from labkit.course.syllabus import Lab
from labkit.course.terminal import Jobs, LabName, Problem, console, ending_on, lab_called
from labkit.grading.platforms import names_of, read_platforms, takes_grades

if TYPE_CHECKING:
    from labkit.grading.nbgrader.course import Course

app = typer.Typer()
TAKERS = takes_grades().values()

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
    from labkit.grading.run.grade import print_remarks, report_again

    with writing(folder):
        written = report_again(folder)
    if not written:
        raise Problem(tr("nothing is graded yet: `tinyllm grade LAB`"))
    print(f"{written[-1]}, with the pages of {len(written) - 1} labs")
    print_remarks(folder.remarks, console)
    if folder.remarks:
        raise typer.Exit(1)


@app.command()
def export(
    kinds: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help=f"{', '.join(takes_grades())}: grades for it; feedback: pages for it; "
            "answers: all code",
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
        for each in (
            part for kind in kinds for part in exports.export(folder, kind, only, roster)
        ):
            if isinstance(each, Path):
                print(each)
            else:
                remarks.append(each)
                console.print(clean(each), style="yellow", markup=False, highlight=False)
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
) -> None:
    """Grade what was handed in for a lab into the gradebook.

    It is in COURSE/submitted/*/LAB. Stopped or killed, the same command goes on where it was.
    SOURCES are collected first, as `tinyllm collect` does.
    Status 0: all is well; 1: all is graded, and what needs a look is said last;
    2: it could not be done, with the reason; 130: stopped.
    """
    found = lab_called(lab)
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
                rows = grade_and_report(folder, found, console, pool, fresh)
    except KeyboardInterrupt:
        console.print("stopped; what is graded is kept, and the same command goes on")
        raise typer.Exit(130) from None
    if not rows:
        handed = folder.root / "submitted" / "*" / found.name / f"{found.name}.ipynb"
        raise Problem(f"nothing to grade: no {handed}")
    if folder.remarks or not all_well:
        raise typer.Exit(1)


def new_files(course: Path, lab: Lab, fresh: bool) -> list[Path]:
    """The submissions that were perhaps not graded yet."""
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
    """Collect, and show a screen of what became of it; whether all is well."""
    from labkit.grading.collect.deliver import collect
    from labkit.grading.collect.issues import OpenIssues, show

    lines = collect(course, sources, lab, roster, replace, learner)
    still_open = OpenIssues(course.root).open()
    show(course.root, lines, still_open, console)
    return not still_open and not any(line.trouble for line in lines)


@contextmanager
def writing(course: Course) -> Iterator[None]:
    """Work alone in the course folder; what stops everything ends the command with one line."""
    from filelock import FileLock, Timeout

    from labkit.grading.nbgrader.course import CourseError
    from labkit.sandbox.bubblewrap import GradingError

    try:
        with ending_on(CourseError, GradingError), FileLock(course.root / ".lock", timeout=0):
            yield
    except Timeout as error:
        raise Problem(
            f"{course.root} is in use by another command; wait for it or stop it, then give "
            "the same command again"
        ) from error
    except OSError as error:
        ending = "; what is written is whole, and the same command goes on from here"
        where, what = error.filename or course.root, error.strerror or error
        raise Problem(f"{where}: {what}{ending if of_the_disk(error) else ''}") from error


def existing_course(folder: Path, database: str | None) -> Course:
    with grading_extra():
        from labkit.grading.nbgrader.course import Course, CourseError

    course = Course(folder, database)
    if not course.root.exists():
        raise Problem(f"there is no folder {course.root}; `tinyllm build --course` makes one")
    with ending_on(CourseError):
        _ = course.rules  # an error in course.toml ends the command before anything is done
    return course


@contextmanager
def grading_extra() -> Iterator[None]:
    """Imports that need nbgrader; where it is missing, the command says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        install = "pip install -c constraints.txt -e '.[grading]'"
        raise Problem(
            f"{error.name} is not installed; `{install}` installs what grading needs"
        ) from error
