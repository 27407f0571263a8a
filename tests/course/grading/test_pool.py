"""Grading with many processes: whichever of them dies, every submission is graded once."""

import copy
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest
from nbgrader.api import Gradebook

from labkit.author.edition import write_source
from labkit.checks.mistakes import mistakes_of
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS
from labkit.grading.judge.graded import BROKE_OFF, GradedSubmission, zero
from labkit.grading.judge.intake import cell_called
from labkit.grading.judge.judge import Judge
from labkit.grading.nbgrader.course import Course
from labkit.grading.private_api import processes_of
from labkit.grading.run import pool as pool_module
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.results import JUDGING, GradingSpec, Results
from labkit.grading.run.schedule import Task, grade_lab, verdicts
from labkit.grading.sample_class import Learner, encoded, hand_in, solved
from labkit.sandbox.bubblewrap import GradingError

LAB = LABS[0]
ALL = sum(exercise.points for exercise in LAB.exercises)
COUNT = 6


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A course with a few submissions: right ones that differ, and the first mistake."""
    course = Course(tmp_path_factory.mktemp("pool"))
    write_source(course.root)
    course.release(LAB)
    notebook = solved(course.released(LAB), LAB)
    for number in range(COUNT):
        changed = copy.deepcopy(notebook)
        cell = cell_called(changed, LAB.exercises[0].answer_cell)
        cell.source += f"\n# {number}\n"
        if number == 0:
            mistake = next(m for m in mistakes_of(LAB) if m.symbol == "layer_norm")
            cell.source = mistake.cell
        hand_in(course.root, LAB, Learner(f"learner-{number}", encoded(changed)))
    return course


@pytest.fixture
def course(template, tmp_path):
    shutil.copytree(template.root, tmp_path / "course")
    return Course(tmp_path / "course")


@pytest.fixture(scope="module")
def pool():
    with GradingPool(2) as running:
        yield running


def points(graded):
    return {learner: submission.score for learner, submission in graded.items()}


def stored(course):
    return sorted((course.root / ".results" / LAB.name).glob("*.json"))


@pytest.fixture(scope="module")
def quiet(template, workers):
    """The scores of one judge that does one submission after the other."""
    judge = Judge(LAB, template.released(LAB), template.secret(), workers)
    return {
        one.learner: judge.grade(one.path.read_bytes()).score for one in template.submitted(LAB)
    }


def in_gradebook(course):
    """{learner: points}; fails if a learner is there twice."""
    with Gradebook(course.database, "tinyllm") as gradebook:
        submissions = gradebook.assignment_submissions(LAB.name)
        found = [(one.student.id, round(one.score, 2)) for one in submissions]
    assert len(found) == len(dict(found))
    return dict(found)


def test_many_processes_give_the_scores_of_a_quiet_run_and_keep_them(course, pool, quiet):
    seen = []
    graded = grade_lab(course, LAB, pool, lambda done, total: seen.append((done, total)))
    assert points(graded) == quiet == in_gradebook(course)
    assert sorted(quiet.values())[1:] == [ALL] * (COUNT - 1) and quiet["learner-0"] < ALL
    assert seen[-1] == (COUNT, COUNT)
    files = {path: path.stat().st_mtime_ns for path in stored(course)}
    assert len(files) == COUNT
    # once more: nothing is graded or stored twice
    (course.root / "autograded" / "learner-1" / LAB.name / f"{LAB.name}.ipynb").unlink()
    with GradingPool(1) as idle:
        again = grade_lab(course, LAB, idle)
        assert idle.running is None
    assert again == graded  # read back from the files
    assert (course.root / "autograded" / "learner-1" / LAB.name / f"{LAB.name}.ipynb").exists()
    assert {path: path.stat().st_mtime_ns for path in stored(course)} == files
    assert in_gradebook(course) == quiet
    # one changed submission and one damaged result: these two are graded
    path = course.root / "submitted" / "learner-2" / LAB.name / f"{LAB.name}.ipynb"
    path.write_text(path.read_text().replace("# 2", "# changed"))
    stored(course)[0].write_text("{")
    grade_lab(course, LAB, pool)
    changed = [p for p in stored(course) if p.stat().st_mtime_ns != files.get(p)]
    assert len(changed) == 2 and in_gradebook(course) == quiet


def test_a_process_that_is_killed_costs_nobody_anything(course, pool, quiet):
    killed = []

    def kill_one(done, total):
        if not killed:
            process = processes_of(pool.running.executor)[0]
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    graded = grade_lab(course, LAB, pool, kill_one, fresh=True)
    assert killed and points(graded) == quiet == in_gradebook(course)


SCRIPT = """
from pathlib import Path
from labkit.grading.nbgrader.course import Course
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.schedule import grade_lab
from labkit.course.syllabus import LABS
if __name__ == "__main__":
    with GradingPool(1) as pool:
        grade_lab(Course(Path({root!r})), LABS[0], pool)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="not checked: needs kill -9")
def test_after_kill_9_the_same_command_goes_on(course, pool, quiet):
    script = course.root / "grade.py"
    script.write_text(SCRIPT.format(root=str(course.root)))
    process = subprocess.Popen([sys.executable, str(script)], cwd=ROOT)
    end = time.monotonic() + 300
    while len(stored(course)) < 2 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.kill()
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in stored(course)}
    assert before, "nothing was finished before the kill"
    graded = grade_lab(course, LAB, pool)
    assert points(graded) == quiet == in_gradebook(course)
    assert before.items() <= {p: p.stat().st_mtime_ns for p in stored(course)}.items()
    assert not list(course.root.rglob("*.part"))


# Scripted answers, without any process


class Script(GradingPool):
    """A pool with given answers: {data: [answer, ...]}; None is an answer that never comes."""

    def __init__(self, answers, patience=5.0):
        super().__init__(2, patience=patience)
        self.answers, self.asked, self.stops = answers, [], 0

    def submit(self, spec, data, before):
        self.asked.append(data)
        future = Future()
        answer = self.answers[data].pop(0)
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        elif answer is not None:
            future.set_result(answer)
        return future

    def stop(self, at_once=True):
        self.stops += 1


@pytest.fixture(scope="module")
def verdict():
    return GradedSubmission(tuple(zero(each, "no points") for each in LAB.exercises))


@pytest.fixture
def run(tmp_path, verdict):
    """run(answers): {key: verdict, or None for an error}, the pool, and what is stored."""

    def run(answers, **options):
        pool, results = Script(answers, **options), Results(tmp_path, LAB)
        tasks = [Task(data.decode(), "{}", None, data) for data in answers]
        outcomes = verdicts(iter(tasks), results, None, pool, fresh=False)
        found = {
            task.key: outcome if isinstance(outcome, GradedSubmission) else None
            for task, outcome in outcomes
        }
        assert found == {task.key: results.get(task.key) for task in tasks}
        return found, pool

    return run


def test_what_was_in_flight_in_a_broken_pool_is_judged_again_alone(run, verdict):
    broken = BrokenProcessPool("died")
    answers = {b"a": [broken, verdict], b"b": [broken, broken], b"c": [verdict]}
    found, pool = run(answers)
    assert found == {"a": verdict, "b": None, "c": verdict}
    assert pool.asked == [b"a", b"b", b"c", b"a", b"b"] and pool.stops


def test_a_verdict_of_the_wall_clock_is_asked_for_again(run, verdict):
    late = replace(verdict, exercises=(replace(verdict.exercises[0], timed_out=True),))
    found, pool = run({b"a": [late, verdict], b"b": [late, late]})
    assert found == {"a": verdict, "b": late} and pool.asked == [b"a", b"b"] * 2


def test_what_hangs_is_judged_again_alone_and_stops_nobody(run, verdict):
    found, pool = run(
        {b"a": [None, verdict], b"b": [verdict], b"c": [None, None]}, patience=0.05
    )
    assert found == {"a": verdict, "b": verdict, "c": None} and pool.stops == 2


def test_a_fault_of_the_judge_stays_with_its_submission(run, verdict):
    found, pool = run({b"a": [MemoryError(), MemoryError()], b"b": [verdict]})
    assert found == {"a": None, "b": verdict} and pool.stops == 0


def test_a_learner_at_whom_judging_fails_twice_waits_for_a_person(course, verdict):
    class Failing(Script):
        def submit(self, spec, data, before):
            answer = MemoryError() if b"\\n# 1\\n" in data else verdict
            self.answers = {data: [answer]}
            return super().submit(spec, data, before)

    graded = grade_lab(course, LAB, Failing({}))
    assert len(graded) == len(stored(course)) == COUNT - 1  # the next run tries again
    assert Results(course.root, LAB).of_class() == graded | {"learner-1": None}
    assert "learner-1" not in {*graded, *in_gradebook(course)}
    (remark,) = course.remarks
    assert remark.learner == "learner-1" and remark.text.startswith(BROKE_OFF)


def test_ctrl_c_loses_nothing(course, pool, quiet):
    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade_lab(course, LAB, pool, stop)
    assert len(in_gradebook(course)) == len(stored(course)) == 2
    assert points(grade_lab(course, LAB, pool)) == quiet == in_gradebook(course)


def test_results_are_named_by_everything_that_can_change_a_score(template):
    for pattern in JUDGING:  # fails if a folder was moved and its pattern not changed
        assert list(ROOT.glob(pattern.format(lab=LAB.module))), pattern
    released = template.released(LAB)
    one = GradingSpec.of(LAB, released, b"secret")
    strict = GradingSpec.of(LAB, released, b"secret", unsandboxed=True)
    assert one.key(b"x") == one.key(b"x") == strict.key(b"x")
    others = {one.key(b"x"), one.key(b"y"), replace(one, secret=b"other").key(b"x"),
              replace(one, judging="newer checks").key(b"x")}  # fmt: skip
    changed = copy.deepcopy(released)
    changed.cells[0].source += "!"
    assert GradingSpec.of(LAB, changed, b"secret").key(b"x") == one.key(b"x")
    cell_called(changed, LAB.exercises[0].answer_cell).source += "# another stub"
    assert len(others | {GradingSpec.of(LAB, changed, b"secret").key(b"x")}) == 5


@pytest.mark.skipif(os.name == "nt", reason="not checked: links and pipes need POSIX")
def test_odd_files_in_submitted_are_remarks_and_stop_nobody(course, pool, quiet):
    folder = course.root / "submitted"
    for name in ("link", "pipe"):
        (folder / name / LAB.name).mkdir(parents=True)
    file = f"{LAB.name}/{LAB.name}.ipynb"
    (folder / "link" / file).symlink_to(course.root / "gradebook.db")
    os.mkfifo(folder / "pipe" / file)
    (folder / "eve").symlink_to(folder / "learner-1", target_is_directory=True)
    (folder / "mallory").mkdir()
    (folder / "mallory" / LAB.name).symlink_to(folder / "learner-1" / LAB.name)
    os.mkfifo(folder / "learner-2" / LAB.name / "timestamp.txt")
    (folder / "learner-3" / LAB.name / "timestamp.txt").mkdir()
    for name in ("two\nlines", os.fsdecode(b"zo\xeb")):
        shutil.copytree(folder / "learner-4", folder / name)
    assert points(grade_lab(course, LAB, pool)) == quiet == in_gradebook(course)
    remarks = "; ".join(map(str, course.remarks))
    for part in ("link: a link", "pipe: ", "eve: a link", "mallory: a link",
                 "two\nlines: the folder's name"):  # fmt: skip
        assert part in remarks
    for learner in ("learner-2", "learner-3"):
        assert f"{learner}: timestamp.txt holds no time" in remarks


@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_dask_workers_of_which_one_dies(course, quiet, dies):
    """The surviving worker is a thread of this process."""
    distributed = pytest.importorskip("distributed", reason="not checked: needs .[dask]")
    options = {"n_workers": 1 + dies, "threads_per_worker": 1, "processes": dies}
    options |= {"dashboard_address": None, "silence_logs": 50, "memory_limit": 0}
    options |= {"host": "127.0.0.1", "protocol": "tcp://"}
    with distributed.LocalCluster(**options) as cluster:
        killed = []

        def kill_one(done, total):
            if dies and not killed:
                killed.append(cluster.workers[0].pid)
                os.kill(killed[0], signal.SIGKILL)

        with GradingPool(scheduler=cluster.scheduler_address, patience=120) as pool:
            graded = grade_lab(course, LAB, pool, kill_one)
    assert len(killed) == dies and points(graded) == quiet == in_gradebook(course)


def test_a_scheduler_that_is_not_there_is_said_so(course, monkeypatch):
    pytest.importorskip("distributed", reason="not checked: needs .[dask]")
    monkeypatch.setattr(pool_module, "CONNECT", 1)
    with (
        GradingPool(scheduler="tcp://127.0.0.1:9") as pool,
        pytest.raises(GradingError, match="no Dask"),
    ):
        grade_lab(course, LAB, pool)


def test_the_command_needs_no_torch_and_judges_start_meanwhile(course):
    code = (
        "import sys; from labkit.grading.run.pool import GradingPool; "
        "import labkit.grading.run.grade; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    with GradingPool(jobs=1) as pool:
        pool.start(COUNT)
        (process,) = processes_of(pool.starting.result().executor)  # nothing is submitted
    process.join(20)
    assert not process.is_alive()
