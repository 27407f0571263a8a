"""Judge single answers, for measurements of the checks.

    judge                  the checks of one exercise in this process, without a sandbox
    grader, notebook_with  the judge in its sandbox, on the bytes of a notebook

Labs and exercises come by name ("02_rope", "2.1"), answers as the text of their cells.
"""

from __future__ import annotations

import hashlib
import hmac
import linecache
from contextlib import contextmanager
from functools import cache

from labkit.author.owned_cells import filled, notebook_path, read_notebook
from labkit.author.reference import reference
from labkit.checks.declared import prepared_checks
from labkit.checks.diagnose import diagnose
from labkit.checks.mistakes import Oracle, mistakes_of
from labkit.checks.package import localize
from labkit.checks.runner import run_checks
from labkit.course import cells
from labkit.course.syllabus import NOTEBOOKS
from labkit.grading.judge.judge import Judge, is_missing_in_each_check
from labkit.grading.sample_class import encoded, solved, with_answer
from labkit.sandbox.inside.call import Outcome, describe
from labkit.sandbox.inside.importer import filename
from labkit.sandbox.inside.perform import perform
from labkit.sandbox.launch import WorkerLauncher
from labkit.sandbox.probe import best_sandbox

LABS = {lab.name: lab for lab in NOTEBOOKS}
SECRET = b"secret"


def verdict(points=None, of=None, status="", **reasons):
    """points, of     what was earned and could be; none at home
    status            passed, not yet, not started, not checked
    why, names        the sentences that explain it, and the listed mistakes they belong to
    look, facts       the first difference; further facts if no mistake is named
    person            whether a person is asked to look
    """
    earned = {} if points is None else {"points": round(points, 4), "of": of}
    return {**earned, "status": status, **{key: text for key, text in reasons.items() if text}}


@cache
def oracle_of(lab):
    return Oracle(LABS[lab])


@cache
def checks_of(folder, lab, exercise):
    seed = "visible"
    if folder == "hidden":
        seed = hmac.new(SECRET, exercise.encode(), hashlib.sha256).hexdigest()  # the judge's
    return prepared_checks(folder, LABS[lab].module, LABS[lab].exercise(exercise), seed)


def judge(folder, lab_name, exercise_id, cell):
    """Run the checks of an exercise in this process, with the cell over the reference."""
    lab, oracle = LABS[lab_name], oracle_of(lab_name)
    exercise, path, failure = lab.exercise(exercise_id), filename(lab.module), None
    module = cells.with_block(cells.plain(reference(lab)), exercise, cell)
    names = {"__name__": f"solutions.{lab.module}", "__package__": "solutions"}
    linecache.cache[path] = (
        len(module),
        None,
        module.splitlines(True),
        path,
    )  # read by TorchScript
    try:
        exec(compile(module, path, "exec", dont_inherit=True), names)
    except Exception as error:
        failure = describe(error, path)

    def student(call):
        outcome = Outcome(failure=failure) if failure else perform(call, names, path)
        return localize(outcome, module, exercise_id)

    checks = checks_of(folder, lab_name, exercise_id)
    result = run_checks(exercise, checks, student, oracle.reference)
    found = diagnose(result, oracle, cell)
    result.bounds = found.bounds
    failed = result.first_failure
    status = "not checked" if result.broken else "passed" if result.passed else "not yet"
    return verdict(
        result.score, exercise.points, status,
        why=[*(v.mistake.sentence for v in found.versions), *filter(None, [found.advice])],
        names=found.mistakes, look=failed.difference.look if failed else "",
        facts=list(found.facts),
        person=bool(result.broken) or (folder == "hidden" and is_missing_in_each_check(result)),
    )  # fmt: skip


def names_of(lab, exercise, sentences):
    listed = [m for m in mistakes_of(lab) if m.symbol in exercise.symbols]
    return [m.name for m in listed if m.sentence in sentences]


@contextmanager
def grader(lab, sandbox=None, **limits):
    """Yield grade(bytes of a notebook) -> {exercise: verdict}, {exercise: report as text}."""
    released = released_notebook(lab)
    with WorkerLauncher(sandbox or best_sandbox()) as workers:
        judge = Judge(LABS[lab], released, SECRET, workers, **limits)

        def grade(data):
            graded = judge.grade(data).exercises
            return {g.id: graded_verdict(lab, g) for g in graded}, {
                g.id: str(g.report) for g in graded
            }

        yield grade


def graded_verdict(lab, graded):
    return verdict(
        graded.score, graded.possible, graded.status.value,
        why=list(graded.why), names=names_of(LABS[lab], graded.exercise, graded.why),
        look=graded.look,
        person=graded.needs_person, doubtful=graded.doubtful,
    )  # fmt: skip


@cache
def released_notebook(lab):
    return filled(LABS[lab], read_notebook(notebook_path(LABS[lab])))


def notebook_with(lab, exercise, cell):
    """Return a solved notebook as bytes, with this cell as the answer to one exercise."""
    perfect = solved(released_notebook(lab), LABS[lab])
    return encoded(with_answer(perfect, LABS[lab].exercise(exercise), cell))
