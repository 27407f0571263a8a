"""The command line: `tinyllm`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console
from rich.table import Table

from labkit.core.syllabus import LABS, NOTEBOOKS, UnknownName, find_exercise, find_lab
from labkit.model.chat import commands as talk
from labkit.pretrain import commands as command

app = typer.Typer(
    help="TinyLLM: write Qwen3 from scratch, lab by lab.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
ExerciseId = Annotated[str, typer.Argument(help="an exercise, such as 1.2 or RMSNorm")]
LabName = Annotated[str, typer.Argument(help="a lab, such as rmsnorm or 01_rmsnorm")]
CourseFolder = Annotated[
    Path, typer.Option("--course", envvar="TINYLLM_COURSE", help="nbgrader's course folder")
]


Database = Annotated[
    Optional[str],  # noqa: UP045  typer on Python 3.10 needs the long form
    typer.Option(
        "--db", envvar="TINYLLM_DB", help="the gradebook, such as postgresql+psycopg2://..."
    ),
]
Sources = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Argument(help="folders, notebooks, zips as Canvas and Moodle export them"),
]
RosterFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--roster", help="CSV: id, name (or first_name, last_name), email"),
]


class Problem(typer.Exit):
    """Ends the command with status 2 and a message."""

    def __init__(self, message: object):
        Console(stderr=True, soft_wrap=True).print(str(message), style="red", markup=False)
        super().__init__(2)


@app.command()
def status() -> None:
    """Show every exercise and how far you are with it."""
    from labkit.learner.check import check_exercise

    table = Table()
    for heading in ("", "exercise", "minutes", "points", "state"):
        table.add_column(heading)
    for lab in NOTEBOOKS:
        if not lab.exercises:
            table.add_row(lab.number, lab.title, "", "", "to read")
        for exercise in lab.exercises:
            report, _ = check_exercise(lab, exercise, "")
            kind = "" if exercise.core else "stretch"
            state = f"{report.status.value} {kind}".strip()
            cells = (
                exercise.id,
                exercise.title,
                f"{exercise.minutes}",
                f"{exercise.points}",
                state,
            )
            table.add_row(*cells)
    console.print(table)


@app.command()
def check(exercise: ExerciseId) -> None:
    """Check one exercise of your tinyllm package; exit status 1 if it is not right yet."""
    from labkit.learner.check import check_exercise

    lab, found = exercise_called(exercise)
    report, _ = check_exercise(lab, found, f"`tinyllm hint {found.id}` helps in three steps")
    print(report)
    if not report.passed:
        raise typer.Exit(1)


@app.command()
def assemble() -> None:
    """Run a whole model on your own parts; names the first that deviates, exit status 1."""
    from labkit.checks.assembly import assembly_report

    report = assembly_report("`tinyllm check {}`".format)
    print(report)
    if not report.passed:
        raise typer.Exit(1)


@app.command()
def hint(
    exercise: ExerciseId,
    rung: Annotated[int, typer.Option(min=1, max=3, help="1 idea, 2 API, 3 near-code")] = 1,
) -> None:
    """Show a rung of the ladder of help."""
    from labkit.learner import hints

    lab, found = exercise_called(exercise)
    again = f"`tinyllm hint {found.id} --rung {rung + 1}` shows rung {rung + 1} of 3"
    print(hints.hint_report(lab, found, rung, again, f"`tinyllm solution {found.id}`"))


@app.command()
def solution(exercise: ExerciseId) -> None:
    """Print the reference's code for an exercise: the last step of the ladder."""
    from labkit.learner import hints

    try:
        print(hints.solution_text(*exercise_called(exercise)))
    except LookupError as error:
        raise Problem(error) from error


@app.command()
def submit(
    lab: LabName,
    notebook: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 needs the long form
        typer.Argument(help="your notebook; notebooks/LAB.ipynb if not said"),
    ] = None,
) -> None:
    """Write the file to hand in: your notebook, completed from tinyllm/ where it has gaps."""
    from labkit.learner.submit import SubmitError, prepare

    try:
        written, notes = prepare(lab_called(lab), notebook)
    except SubmitError as error:
        raise Problem(error) from error
    for note in notes:
        print(note)
    print(f"hand in {written}")


@app.command()
def build(
    check: Annotated[
        bool, typer.Option(help="change nothing; fail if something is stale")
    ] = False,
    course: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="instead write the instructor edition into this course folder"),
    ] = None,
    learners: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="instead write an edition for learners, without answers"),
    ] = None,
) -> None:
    """Derive skeletons, stubs and recorded answers from solutions/ (for authors)."""
    try:
        from labkit.author.build import BuildError, write_edition
        from labkit.author.build import build as derive
    except ModuleNotFoundError as error:
        raise Problem(f"this edition has nothing to build from ({error.name})") from error

    try:
        if learners is not None:
            print(f"learners' edition: {write_edition(learners)}")
        if course is not None:
            for path in grading_course(course).build_source():
                print(f"instructor edition: {path}")
        if course or learners:
            return
        stale = derive(check=check)
    except (BuildError, OSError) as error:
        raise Problem(error) from error
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path}")
    if check and stale:
        raise Problem("run `tinyllm build` and commit what it writes")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="the folder for all that is written")] = Path(
        "demo"
    ),
) -> None:
    """Grade a small class from notebooks to gradebook, feedback and report."""
    grading_course(out)
    from labkit.grading.demo import demo as run
    from labkit.grading.nbgrader.course import CourseError

    try:
        run(out, console)
    except CourseError as error:
        raise Problem(error) from error


@app.command()
def collect(
    sources: Sources,
    lab: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="only this lab; it is also that of notebooks that do not say"),
    ] = None,
    roster: RosterFile = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="even a later submission by an earlier one")
    ] = False,
    course: CourseFolder = Path("course"),
    db: Database = None,
) -> None:
    """Bring what was handed in to COURSE/submitted/NAME/LAB; status 1 if some needs a look."""
    found = lab_called(lab) if lab else None
    folder = existing_course(course, db)
    if not collected(folder, sources or [], found, roster, replace):
        raise typer.Exit(1)


def collected(folder, sources, lab, roster=None, replace=False) -> bool:
    """Collect and show the table; whether all is well."""
    from labkit.grading.collect.deliver import TROUBLE, collect, show
    from labkit.grading.nbgrader.gradebook_connection import CourseError

    try:
        lines = collect(folder, sources, lab, roster, replace)
    except (CourseError, OSError) as error:
        raise Problem(error) from error
    show(lines, console)
    return all(line.state not in TROUBLE for line in lines)


@app.command()
def report(course: CourseFolder = Path("course"), db: Database = None) -> None:
    """Write the class reports again, with points given by hand since, and that of all labs."""
    folder = existing_course(course, db)
    from labkit.grading.class_report.report import write_reports
    from labkit.grading.nbgrader.gradebook_connection import CourseError

    try:
        written = write_reports(folder)
    except CourseError as error:
        raise Problem(error) from error
    if not written:
        raise Problem("nothing is graded yet: `tinyllm grade LAB`")
    for path in written:
        print(path)


@app.command()
def grade(
    lab: LabName,
    sources: Sources = None,
    course: CourseFolder = Path("course"),
    db: Database = None,
    jobs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="processes on this machine; else one a core"),
    ] = None,
    dask: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="a Dask scheduler whose workers do it, tcp://HOST:8786"),
    ] = None,
    require_sandbox: Annotated[
        bool, typer.Option("--require-sandbox", help="refuse to grade without bubblewrap")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh/--resume", help="grade again what is graded already")
    ] = False,
) -> None:
    """Grade everything in COURSE/submitted/*/LAB into nbgrader's gradebook.

    Stopped or killed, the same command goes on where it was.
    SOURCES are collected first, as `tinyllm collect` does.
    """
    found = lab_called(lab)
    folder = existing_course(course, db)
    if sources:
        collected(folder, sources, found)
    from labkit.grading.nbgrader.course import CourseError
    from labkit.grading.run.grade import grade_and_report
    from labkit.grading.run.pool import GradingError, GradingPool

    try:
        with GradingPool(jobs, dask, require_sandbox) as pool:
            rows = grade_and_report(folder, found, console, pool, fresh)
    except (CourseError, GradingError) as error:
        raise Problem(error) from error
    except KeyboardInterrupt:
        console.print("stopped; what is graded is kept, and the same command goes on")
        raise typer.Exit(130) from None
    if not rows:
        raise Problem(
            f"nothing to grade: no {folder.root}/submitted/*/{found.name}/{found.name}.ipynb"
        )


@app.command()
def bench(
    what: Annotated[str, typer.Argument(help="check, grade or model")] = "check",
    lab: Annotated[str, typer.Option(help="to grade; all for every lab")] = "rmsnorm",
    submissions: Annotated[int, typer.Option(min=4, help="to grade")] = 240,
    jobs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="processes that grade; else one a core"),
    ] = None,
    size: Annotated[str, typer.Option(help="of the model: tiny, small, 0.6B")] = "small",
    threads: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="of the model; else as many as torch chooses"),
    ] = None,
    device: talk.Device = "cpu",
    package: talk.PackageName = talk.PACKAGE,
    seconds: Annotated[float, typer.Option(min=0, help="for each row of the model")] = 4.0,
    file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--json", help="write all numbers of the model into this file, too"),
    ] = None,
) -> None:
    """Measure; prints times and ratios of one run on this machine.

    check: how long a visible check takes.
    grade: how many submissions a minute are graded, beside stock nbgrader autograde.
    model: prefill, decode and training beside transformers and beside an all-experts MoE.
    """
    if what == "model":
        talk.bench(console, package, device, size, seconds, threads, file)
        return
    if what not in ("check", "grade"):
        raise Problem(f"there is no benchmark {what!r}; there are: check, grade, model")
    grading_course(Path("course"))
    from labkit.bench.grading import bench_check, bench_grade

    if what == "check":
        bench_check(console)
    else:
        labs = LABS if lab == "all" else [lab_called(lab)]
        bench_grade(console, labs, submissions, jobs)


app.command()(talk.generate)
app.command()(talk.chat)
app.command()(command.train)
app.command()(command.measure)


def exercise_called(name: str):
    try:
        return find_exercise(name)
    except UnknownName as error:
        raise Problem(error) from error


def lab_called(name: str):
    try:
        return find_lab(name)
    except UnknownName as error:
        raise Problem(error) from error


def existing_course(folder: Path, database: str | None):
    course = grading_course(folder, database)
    if not course.root.exists():
        raise Problem(f"there is no folder {course.root}; `tinyllm build --course` makes one")
    return course


def grading_course(folder: Path, database: str | None = None):
    """The course folder, where the grading extra is installed."""
    try:
        from labkit.grading.nbgrader.course import Course
    except ModuleNotFoundError as error:
        raise Problem(
            f"{error.name} is not installed; "
            "`pip install -c constraints.txt -e .[grading]` installs what grading needs"
        ) from error
    return Course(folder, database)


def main() -> None:
    from labkit.learner.workspace import MissingModule

    try:
        app()
    except MissingModule as error:
        sys.exit(Problem(error).exit_code)


if __name__ == "__main__":
    main()
