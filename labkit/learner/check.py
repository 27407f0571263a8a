"""Checks of one exercise and of the whole model, for check("1.2") and assemble().

The learner's code runs in this process and not in the sandbox of grading: a check answers in
half a second, and a debugger works. The price is that only CPU time can be limited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from labkit.checks.assembly import PARTS, judged
from labkit.checks.declared import BrokenCheck, Check, prepared_checks
from labkit.checks.diagnose import diagnose
from labkit.checks.errors import advice_on
from labkit.checks.messages import error_text, learner_report
from labkit.checks.mistakes import Oracle
from labkit.checks.package import exercise_at, localize
from labkit.checks.runner import Result, package_in, run_checks
from labkit.course import cells
from labkit.course.lang import said, tr
from labkit.course.report import Report, Status
from labkit.course.statements import strip_unused
from labkit.course.syllabus import LABS, Exercise, Lab
from labkit.learner import workspace
from labkit.learner.home_sandbox import (
    ENDLESS,
    FRESH,
    HomeSandbox,
    OutOfTime,
    use_torch_settings,
)
from labkit.learner.record import record_pass
from labkit.sandbox.inside import banned
from labkit.sandbox.inside.call import Call, Failure, Outcome
from labkit.sandbox.inside.importer import imported

SEED = "visible"
ASSEMBLY = said("Assembly  your own parts")


def check_exercise(
    lab: Lab, exercise: Exercise, hint: str, quiet: bool = False
) -> tuple[Report, float]:
    """Run the visible checks of an exercise; return the report and the points.

    Only the lab's own module is the learner's: all other labs come from the reference.

    hint     the next step of a learner whose code is wrong, such as 'hint("1.2") shows ...'
    quiet    leave out the output of the learner's code
    """
    with use_torch_settings(FRESH):
        sandbox = HomeSandbox(workspace.folder(), quiet)
        report, score = _judge(lab, exercise, hint, sandbox)
        if report.status is Status.NOT_YET:
            report.rows[:0] = _note_on_cause(lab, exercise)
    report.rows += [("note", sandbox.printed)] if sandbox.printed else []
    if report.passed:
        record_pass(lab, exercise)
    return report, score


def _judge(
    lab: Lab, exercise: Exercise, hint: str, sandbox: HomeSandbox
) -> tuple[Report, float]:
    if not lab.is_checkable:
        return Report(exercise.heading, Status.NOT_CHECKED, needs_rows(lab)), 0.0
    try:
        return _check(lab, exercise, hint, sandbox)
    except OutOfTime as stopped:
        return Report(
            exercise.heading, Status.NOT_CHECKED, stopped_rows(stopped, exercise)
        ), 0.0


def needs_rows(lab: Lab) -> list[tuple[str, str]]:
    """Rows on the package that this machine lacks, and on systems where checks run."""
    look = tr("this lab needs the package {package}, which is not installed", package=lab.needs)
    do = tr(
        "on Linux: pip install '.[{lab}]'; elsewhere read and predict, the other labs do "
        "without it",
        lab=lab.module,
    )
    return [("look", look), ("next", do)]


def stopped_rows(stopped: OutOfTime, exercise: Exercise | None) -> list[tuple[str, str]]:
    """Return rows on the line at which the learner's code ran out of time.

    exercise    the one that is checked
    """
    path = Path(stopped.path)
    home, line = exercise_at(workspace.source_in(path), stopped.line)
    where = (
        tr("line {line} of your cell", line=line)
        if home
        else tr("{path}, line {line}", path=workspace.short_path(path), line=line)
    )
    if home and (exercise is None or home != exercise.id):
        where += tr(" of exercise {home}", home=home)
    if stopped.rank is not None:
        where += tr(", on rank {rank}", rank=stopped.rank)
    return [
        ("look", tr("the check was {stopped} ({where})", stopped=stopped, where=where)),
        ("next", tr(ENDLESS)),
    ]


def _check(
    lab: Lab, exercise: Exercise, hint: str, sandbox: HomeSandbox
) -> tuple[Report, float]:
    source = workspace.module_source(lab)
    block = cells.block(source, exercise.id)
    if workspace.is_empty(exercise, block) and not (exercise.hunt and block):
        return _not_started(lab, exercise, block, hint), 0.0
    if mentioned := banned.found_in(strip_unused(block, exercise.symbols), lab.not_allowed):
        line = cells.line_in_cell(block, mentioned[1])
        where = tr("line {line}", line=line) if line else tr("what it takes from another cell")
        look = where + tr(": ") + banned.message(mentioned[0], tr)
        return Report(exercise.heading, Status.NOT_YET, [("look", look), ("next", hint)]), 0.0
    result = _run_visible_checks(lab, exercise, source, sandbox)
    if isinstance(result, Failure):
        return _does_not_load(result, lab, exercise), 0.0
    found = diagnose(result, oracle_of(lab), block or "")
    result.bounds = found.bounds
    step = next_step(lab, exercise) if result.passed else hint
    return learner_report(result, found, step), result.score


def _not_started(lab: Lab, exercise: Exercise, block: str | None, hint: str) -> Report:
    names = {"where": workspace.short_path(workspace.module_path(lab)), "title": exercise.title}
    defined = cells.defined_names(workspace.module_source(lab))
    if block is None and set(exercise.symbols) & set(defined):
        look = tr("{where} defines {title}, but nothing marks it as this exercise", **names)
        line = cells.directive(exercise)
        do = tr('put "{exercise}" on the line before it', exercise=line)
    else:
        look = tr("{where} has no code for this exercise yet", where=names["where"])
        do = tr("write the exercise's cell and run it, then check again; stuck? {hint}",
                hint=hint)  # fmt: skip
    return Report(exercise.heading, Status.NOT_STARTED, [("look", look), ("next", do)])


def _run_visible_checks(
    lab: Lab, exercise: Exercise, source: str, sandbox: HomeSandbox
) -> Result | Failure:
    """Run the checks on the learner's module; return its Failure if it does not load."""
    oracle, folder = oracle_of(lab), workspace.folder()
    ask = sandbox.limited(package_in(folder))

    def student(call: Call) -> Outcome:
        return localize(ask(lab.module, call), source, exercise.id)

    with imported(workspace.judged_package(lab), folder), banned.out_of_reach(lab.not_allowed):
        # this call only loads the module
        if failure := ask(lab.module, Call("__name__")).failure:
            return failure
        try:
            checks = visible_checks(lab, exercise)
            result = run_checks(exercise, checks, student, oracle.reference)
        except BrokenCheck as error:
            result = Result(exercise, broken=str(error))
    for check in result.checks:  # a kernel rounds once, not step by step as Qwen3 does
        check.rounded_otherwise &= not lab.needs
    return result


@cache
def oracle_of(lab: Lab) -> Oracle:
    """Return the lab's oracle, one per process: it remembers the outcomes of mistakes."""
    return Oracle(lab)


@cache
def visible_checks(lab: Lab, exercise: Exercise) -> list[Check]:
    return prepared_checks("visible", lab.module, exercise, SEED)


def _does_not_load(failure: Failure, lab: Lab, exercise: Exercise) -> Report:
    """Return the report on a module that cannot be imported.

    exercise    the one that is checked
    """
    source = workspace.module_source(lab)
    file = workspace.short_path(workspace.module_path(lab))
    home, line = exercise_at(source, failure.line) if failure.line else (None, None)
    blamed = next((each for each in lab.exercises if each.id == home), exercise)
    where = tr("{file} does not load: ", file=file)
    if home:
        where = tr(
            "{file} stops at its line {number}, line {line} of exercise {home}'s cell: ",
            file=file,
            number=failure.line,
            line=line,
            home=home,
        )
    elif line:
        where = tr("{file} stops at its line {line}: ", file=file, line=line)
    rows = [("look", where + error_text(replace(failure, line=None)))]
    cell = cells.block(source, blamed.id) or ""
    why = advice_on(replace(failure, line=line), blamed, cell)
    rows += [("why", why)] if why else []
    step = tr("fix that line, then check again")
    if home:
        step = tr(
            "fix it in the cell of exercise {home}, run the cell, then check again", home=home
        )
    rows.append(("next", step))
    return Report(exercise.heading, Status.NOT_YET, rows)


def _note_on_cause(lab: Lab, exercise: Exercise) -> list[tuple[str, str]]:
    """Return a row on the first exercise that this one uses and that fails its own check."""
    for used in workspace.used_by(lab, exercise):
        quiet = HomeSandbox(workspace.folder(), quiet=True)
        if _judge(lab, used, "", quiet)[0].status is Status.NOT_YET:
            note = tr(
                "exercise {id}, {title}, which this one uses, does not pass: fix it first",
                id=used.id,
                title=used.title,
            )
            return [("note", note)]
    return []


def next_step(lab: Lab, exercise: Exercise) -> str:
    place = [e.id for e in lab.exercises].index(exercise.id)
    rest = [each for each in lab.exercises[place + 1 :] if not each.hunt]
    if exercise.hunt:
        return tr("read on")
    if not exercise.points:
        return tr("read on; this was practice")
    if not rest:
        return tr(
            'read on to the end, where finish("{module}") sums up the lab; then '
            "`tinyllm submit {module}` hands it in",
            module=lab.module,
        )
    stretch = "" if rest[0].core else tr(" (stretch)")
    return tr(
        "read on to exercise {id}, {title}{stretch}",
        id=rest[0].id,
        title=rest[0].title,
        stretch=stretch,
    )


def assembly_report(check: Callable[[str], str]) -> Report:
    """Run the learner's whole model and report the first wrong part.

    check    makes the text that checks an exercise: "1.2" -> 'check("1.2")'
    """
    labs = [lab for lab in LABS if any({*PARTS} & {*e.symbols} for e in lab.exercises)]
    empty = [e for lab in labs for e in workspace.unfinished(lab) if {*PARTS} & {*e.symbols}]
    sources = workspace.learner_modules()
    if empty:
        sources |= workspace.completed_modules(labs)
    ask = HomeSandbox(workspace.folder(), quiet=True).limited(package_in(workspace.folder()))
    try:
        with use_torch_settings(FRESH), imported(sources, workspace.folder()):
            verdict = judged(ask, sources)
    except OutOfTime as stopped:
        return Report(tr(ASSEMBLY), Status.NOT_CHECKED, stopped_rows(stopped, None))
    if verdict.passed and not empty:
        step = tr("every part of this model is yours; now it can load a checkpoint and talk")
        return Report(tr(ASSEMBLY), Status.PASSED, [*verdict.rows, ("next", step)])
    rows, to_fix = verdict.rows, verdict.exercise
    if to_fix in empty or verdict.passed:  # list everything that is missing
        missing = tr(", ").join(f"{e.id} {e.title}" for e in empty)
        rows, to_fix = [row for row in rows if row[0] == "ok"], empty[0]
        rows.append(("look", tr("not written yet: {missing}", missing=missing)))
    if empty:
        rows.insert(0, ("note", workspace.describe_authors(labs)))
    step = check(to_fix.id) if to_fix else tr("fix this, then assemble again")
    return Report(tr(ASSEMBLY), Status.NOT_YET, [*rows, ("next", step)])
