"""How verdicts.py asks the machinery for verdicts. Whoever changes it rewrites this.

    judge_hidden, judge_visible    the checks of one exercise in this process, no sandbox
    grader                         the judge, in its sandbox, on the bytes of a notebook
    home                           check() of each exercise, after the cells ran in a kernel
    assemble, assembler            all parts together

Labs and exercises come by name ("02_rope", "2.1"), answers as the text of their cells.
"""

from __future__ import annotations

import hashlib
import hmac
import linecache
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

from nbformat.v4 import new_code_cell, new_notebook

from labkit.author.owned_cells import filled, notebook_path, read_notebook, setup_cell
from labkit.author.reference import reference, reference_block
from labkit.checks import assembly
from labkit.checks.declared import prepared_checks
from labkit.checks.diagnose import diagnose
from labkit.checks.mistakes import Oracle, mistakes_of
from labkit.checks.package import compose, localize, reference_modules
from labkit.checks.runner import package_in, run_checks
from labkit.course import cells
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS as GRADED
from labkit.course.syllabus import NOTEBOOKS
from labkit.grading.judge.assembly import assembly_rows
from labkit.grading.judge.judge import Judge, is_missing_in_each_check
from labkit.grading.sample_class import encoded, solved, with_answer
from labkit.sandbox.bubblewrap import Sandbox
from labkit.sandbox.inside.call import Outcome, describe
from labkit.sandbox.inside.importer import filename, imported
from labkit.sandbox.inside.perform import perform
from labkit.sandbox.launch import WorkerLauncher
from labkit.sandbox.probe import best_sandbox

LABS = {lab.name: lab for lab in NOTEBOOKS}
SECRET, LAST = b"secret", "06_decoder"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def verdict(points=None, of=None, status="", **reasons):
    """points, of     what was earned and could be; none at home
    status            passed, not yet, not started, not checked
    why, names        the sentences that explain it, and the listed mistakes they belong to
    look, facts       the first thing seen wrong; what else is told where no mistake is named
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


def judge_hidden(lab, exercise, cell):
    return judge("hidden", lab, exercise, cell)


def judge_visible(lab, exercise, cell):
    return judge("visible", lab, exercise, cell)


FIRST_ANSWERS = {  # the ways in which somebody waits for a verdict
    "visible": judge_visible,
    "hidden": judge_hidden,
}


def judge(folder, lab_name, exercise_id, cell):
    """The checks of one exercise in this process, the cell laid over the reference."""
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
    """grade(bytes of a notebook) -> {exercise: verdict}, {exercise: report as text}."""
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
    """The bytes of a solved notebook with this cell as its answer to one exercise."""
    perfect = solved(released_notebook(lab), LABS[lab])
    return encoded(with_answer(perfect, LABS[lab].exercise(exercise), cell))


def notebook_of(lab, sources):
    """The bytes of a notebook of these code cells below the course's first one."""
    sources = [setup_cell(LABS[lab]), *sources]
    return encoded(new_notebook(cells=[new_code_cell(source) for source in sources]))


@contextmanager
def home(lab):
    """check(code cells) -> {exercise: verdict}: run in a kernel, then check() of each exercise.
    It changes what `tinyllm` is: for a process of its own."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    import tinyllm
    from labkit.learner import notebook

    config, given = Config({"HistoryManager": {"enabled": False}}), dict(vars(tinyllm))
    with tempfile.TemporaryDirectory() as folder:
        shell = InteractiveShell.instance(config=config, ipython_dir=f"{folder}/ipython")

        def check(sources):
            package = Path(tempfile.mkdtemp(dir=folder), "tinyllm")
            shutil.copytree(ROOT / "tinyllm", package)
            for name in [name for name in sys.modules if name.startswith("tinyllm.")]:
                del sys.modules[name]
            vars(tinyllm).clear()
            place = {"__file__": str(package / "__init__.py"), "__path__": [str(package)]}
            vars(tinyllm).update(given | place)
            shell.reset(new_session=False)
            with capture_output():
                for source in [setup_cell(LABS[lab]), *sources]:
                    shell.run_cell(source)
                reports = {e.id: notebook.check(e.id) for e in LABS[lab].exercises}
            shell.events.unregister("post_run_cell", notebook._session.after_cell)
            notebook._session = None
            return {key: report_verdict(report) for key, report in reports.items()}

        yield check


def report_verdict(report):
    texts = defaultdict(list)
    for label, text in report.rows:
        texts[label].append(text)
    look, *facts = texts["look"] or [""]
    status, why, note = report.status.value, texts["why"], texts["note"]
    return verdict(status=status, why=why, look=look, facts=facts, note=note)


def assemble(answers):
    """All parts together in this process; `answers` replace cells of the reference."""
    sources = compose(reference_modules(), answers)
    with imported(sources):
        result = assembly.judged(package_in(), sources)
    return assembled_verdict(result.rows, result.exercise)


@contextmanager
def assembler():
    """The same in grading: assemble(answers); one that is None was not handed in."""
    with WorkerLauncher(best_sandbox()) as workers:
        yield partial(assemble_graded, workers)


def assemble_graded(workers, answers):
    labs = [lab for lab in GRADED if lab.name <= LAST]
    cell = {e.id: cells.plain(reference_block(lab, e)) for lab in labs for e in lab.exercises}
    handed_in = {lab: {e.id: (cell | answers)[e.id] for e in lab.exercises} for lab in labs}
    return assembled_verdict(assembly_rows(handed_in, LABS[LAST], workers)[0])


def assembled_verdict(rows, exercise=None):
    why, look = ([text for label, text in rows if label == key] for key in ("why", "look"))
    named = exercise.id if exercise else ", ".join(re.findall(r"exercise (\d\.\d)", f"{why}"))
    return verdict(status="not yet" if look else "passed", why=why, look=look, exercise=named)


def judge_attacks(cases):
    """What each gained without bubblewrap, on every machine; what was seen wrong is not kept,
    since it names this machine's files and numbers."""
    sys.path.insert(0, str(ROOT / "tests" / "course"))
    from attacks.world import World

    badge = f"/badge-{secrets.token_hex(8)}"  # marks every process that is started from here on
    os.environ["PATH"] += os.pathsep + badge
    shown = [SimpleNamespace(name=name, source=case["cell"]) for _, name, case in cases]
    lab, folder = cases[0][2]["lab"], Path(tempfile.mkdtemp())
    with World(folder / "world", shown, badge) as world:
        with grader(lab, Sandbox(), cpu_seconds=1) as grade:
            for kind, name, case in cases:
                cell = aimed(case["cell"], world.aim(name))
                data = notebook_with(lab, case["exercise"], cell)
                verdicts, reports = grade(data)
                verdict, report = verdicts[case["exercise"]], reports[case["exercise"]]
                gained = world.traces(name)
                gained += ["loot"] * ("LOOT" in report or world.token in report)
                gained += ["control characters"] * bool(CONTROL.search(report))
                kept = {key: verdict[key] for key in ("points", "of", "status")}
                person = {"person": True} if verdict.get("person") else {}
                yield kind, name, "graded", {**kept, **person, "gained": sorted(gained)}
        end = time.monotonic() + 20
        while world.left() and time.monotonic() < end:
            time.sleep(0.05)
        left = {"status": "", "gained": ["a process"] * bool(world.left())}
        yield "attacks", "what is left of all", "graded", left
    shutil.rmtree(folder, ignore_errors=True)


def aimed(cell, aim):
    """The cell with this world's canaries in its table."""
    row = re.compile(r"^(    (\w+) = )'<\2>'$", re.MULTILINE)
    return row.sub(lambda found: found[1] + repr(aim.get(found[2], "")), cell)
