"""The sandbox at home: it has the rules of grading and stops endless loops."""

import hashlib
import signal
import threading
import time

import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook
from test_notebooks import answer, execute, finished, text_of

from labkit.author.owned_cells import setup_cell
from labkit.checks.runner import package_in
from labkit.course import cells
from labkit.course.syllabus import LABS, find_lab
from labkit.learner import home_sandbox
from labkit.learner.home_sandbox import HomeSandbox, OutOfTime
from labkit.sandbox.inside.call import Call, Given
from labkit.sandbox.inside.importer import imported
from labkit.sandbox.inside.perform import perform
from labkit.sandbox.launch import LoadRequest

FOLDER = "somewhere/tinyllm"
HEADER = """
import itertools, threading, time, torch
from concurrent.futures import ThreadPoolExecutor
from torch.utils.data import DataLoader
"""


def source_of(body):
    lines = "\n    ".join(body.split("\n"))
    return f"{HEADER}\ndef g():\n    return 1\n\ndef f(x):\n    {lines}\n    return x"


def at_home(body, sandbox=None):
    """Return the outcome of f(x), whose code is `body`."""
    sandbox = sandbox or HomeSandbox(FOLDER, quiet=True)
    with imported({"lab": source_of(body)}, FOLDER):
        return sandbox.limited(package_in(FOLDER))("lab", Call("f", x=torch.arange(3.0)))


def in_grading(workers, body):
    request, call = LoadRequest({"lab": source_of(body)}, "lab"), Call("f", x=torch.arange(3.0))
    return workers.answer(request, [call]).outcomes[0]


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(home_sandbox, "CPU_SECONDS", 0.5)


# The same rules


def test_what_does_no_harm_is_let_in_both(workers):
    for body in (
        *("print(x)", "display(x)", "torch.set_num_threads(4)"),
        *("torch.set_num_interop_threads(2)", "torch.set_default_dtype(torch.float64)"),
        *("list(DataLoader([1, 2]))", "from tqdm import tqdm\nlist(tqdm([1, 2]))"),
        "try:\n    get_ipython()\nexcept NameError:\n    pass",
    ):
        assert at_home(body).failure is None, body
        assert in_grading(workers, body).failure is None, body


def test_what_grading_refuses_is_refused_at_home_with_the_same_words(workers):
    for body, words in {
        "input('eps? ')": "input() has nobody to ask in grading",
        "get_ipython().run_line_magic('time', '')": "get_ipython() is not there in grading",
        "threading.Thread(target=g).start()": "cannot start threads in grading",
        "ThreadPoolExecutor().submit(g)": "cannot start threads in grading",
        "print('x' * 2_000_000)": "it printed more than 1,000,000 characters",
    }.items():
        home, graded = at_home(body).failure, in_grading(workers, body).failure
        assert words in home.text and home.kind == graded.kind, body
        assert graded.text == home.text, body
        assert home.line


def test_packages_that_the_course_does_not_bring_are_refused():
    assert "yaml may not be there in grading" in at_home("import yaml").failure.text
    assert at_home("import numpy.linalg, json, matplotlib").failure is None
    guarded = "try:\n    import labkit.course\nexcept ImportError:\n    pass"
    assert at_home(guarded).failure is None


def test_what_the_code_sets_for_all_of_torch_stays_in_the_sandbox():
    sandbox = HomeSandbox(FOLDER, quiet=True)
    body = "torch.set_default_dtype(torch.float64)\ntorch.set_default_device('meta')"
    at_home(f"{body}\ntorch.set_grad_enabled(False)", sandbox)
    kinds = "return [str(torch.ones(1).dtype), torch.ones(1).device.type]"
    assert at_home(kinds, sandbox).value == ["torch.float64", "meta"]
    assert torch.is_grad_enabled() and torch.get_default_dtype() is torch.float32
    assert torch.ones(1).device.type == "cpu"
    torch.set_default_dtype(torch.float64)  # imported by the notebook
    try:
        assert at_home(kinds).value == ["torch.float32", "cpu"]
    finally:
        torch.set_default_dtype(torch.float32)


def test_afterwards_all_is_as_it_was(capsys):
    names = {"input": input, "__import__": __import__, "threads": torch.set_num_threads}
    at_home("g()")
    assert names == {
        "input": input, "__import__": __import__, "threads": torch.set_num_threads
    }  # fmt: skip
    assert not {"display", "get_ipython"} & set(dir(__builtins__))
    thread = threading.Thread(target=print, args=["a thread"])
    thread.start()
    thread.join()
    assert capsys.readouterr().out == "a thread\n"
    sandbox = HomeSandbox(FOLDER)
    at_home("print(x.shape)", sandbox)
    at_home("print('end')", sandbox)
    assert sandbox.printed == "your code printed:\ntorch.Size([3])\nend"
    at_home("[print(n) for n in range(100)]", sandbox)
    lines = sandbox.printed.split("\n")
    assert len(lines) == 22 and lines[-1] == "... and 82 more lines"
    assert not capsys.readouterr().out and not HomeSandbox(FOLDER, quiet=True).printed


# Loops


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "while True:\n    try: g()\n    except Exception: pass",
        "try:\n    while True: pass\nexcept: return x",
        "for _ in itertools.count(): x = x + 1",
    ],
)
def test_a_loop_is_stopped(body, short):
    start, handler = time.thread_time(), signal.getsignal(signal.SIGPROF)
    with pytest.raises(OutOfTime) as stopped:
        at_home(body)
    assert stopped.value.line in range(5, 14) and stopped.value.path.startswith(FOLDER)
    assert time.thread_time() - start < 3
    assert signal.getsignal(signal.SIGPROF) is handler
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_calls_of_an_exercise_share_their_time(short):
    sandbox = HomeSandbox(FOLDER, quiet=True)
    work = "start = time.thread_time()\nwhile time.thread_time() < start + 0.2: pass"
    for _ in range(2):
        assert at_home(work, sandbox).failure is None
    with pytest.raises(OutOfTime):
        at_home(work.replace("0.2", "0.9"), sandbox)


def test_only_the_time_of_the_codes_own_thread_counts(short):
    """A busy machine and other threads of torch do not count."""
    work = b"0" * (1 << 27)  # hashed without the interpreter's lock
    threads = [threading.Thread(target=hashlib.sha256, args=[work * 4]) for _ in range(2)]
    before = time.process_time()
    for thread in threads:
        thread.start()
    assert at_home("time.sleep(1)").failure is None
    for thread in threads:
        thread.join()
    assert time.process_time() - before > 0.5


def test_off_the_main_thread_code_runs_without_a_limit():
    found = []
    thread = threading.Thread(target=lambda: found.append(at_home("return 2 * x")))
    thread.start()
    thread.join()
    assert found[0].failure is None


def test_a_loop_on_a_rank_says_on_which(monkeypatch):
    monkeypatch.setattr(home_sandbox, "CPU_SECONDS", 0.4)
    path = f"{FOLDER}/parallel.py"
    exec(compile("def work(group):\n  while group.rank: pass\n", path, "exec"), names := {})
    call = Call("work", ranks=2, group=Given("parallel.group"))
    with pytest.raises(OutOfTime) as stopped, HomeSandbox(FOLDER).entered():
        perform(call, names)
    assert (stopped.value.line, stopped.value.rank) == (2, 1)


# The messages to a learner


LOOP = answer("1.1").replace("    wide = x.float()", "    while True: pass")


def test_the_check_says_where_the_loop_is(run, short):
    run(answer("1.1").replace("    wide = x.float()", "    raise KeyboardInterrupt"))
    assert "the check was interrupted" in run('check("1.1")')
    run(LOOP)
    line = LOOP.split("\n").index("    while True: pass") + 1
    report = run('check("1.1")')
    assert "not checked" in report and "look for a loop that never ends" in report
    assert f"stopped after 0.5 seconds of CPU time (line {line} of your cell)" in report


def test_what_is_not_allowed_is_refused_where_it_is_called(run):
    """As in grading; this use is not visible in the source."""
    line = "getattr(torch.nn.functional, 'rms_' + 'norm')(torch.ones(2, 3), (3,))"
    run(answer("1.1").replace("    wide", f"    {line}\n    wide", 1))
    assert "F.rms_norm may not be used here" in run('check("1.1")')
    run(f"{answer('1.1')}\n{line}")
    assert "passed" in run('check("1.1")')


def test_what_the_notebook_sets_for_all_of_torch_changes_no_check(run):
    run(answer("1.1"))
    run("torch.set_default_dtype(torch.float64)\ntorch.set_default_device('meta')")
    try:
        assert "passed" in run('check("1.1")')
        assert "torch.float64" in run("torch.ones(1).dtype")
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def test_a_loop_outside_the_cell_is_found_and_does_not_stop_the_hook(run, package, short):
    module = package / "rmsnorm.py"
    module.write_text(module.read_text().replace("\n# %%", "\nwhile True: pass\n\n# %%", 1))
    assert "look for a loop that never ends" in run(answer("1.1"))
    assert "not checked" in (report := run('check("1.1")'))
    assert "(tinyllm/rmsnorm.py, line " in report


def test_assemble_says_in_which_exercise_the_loop_is(run, package, short):
    for lab in LABS:
        (package / f"{lab.module}.py").write_text(finished(lab))
    loop = answer("4.1").replace("    return", "    while True: pass\n    return")
    module = find_lab("swiglu")
    path = package / f"{module.module}.py"
    path.write_text(cells.with_block(path.read_text(), module.exercise("4.1"), loop))
    report = run("from labkit.learner.notebook import assemble\nassemble()")
    assert "of your cell of exercise 4.1)" in report and "not checked" in report


def test_in_a_kernel(package):
    sources = [
        setup_cell(LABS[0]),
        "import labkit.learner.home_sandbox\nlabkit.learner.home_sandbox.CPU_SECONDS = 0.5",
        LOOP,
        'check("1.1")',
        answer("1.1") + "\ndisplay(layer_norm(*torch.ones(3, 2)))",
        'check("1.1")',
        answer("1.1").replace("    wide = x.float()", "    print(x.shape); wide = x.float()"),
        'check("1.1")',
        answer("1.1").replace(
            "    wide", "    get_ipython().run_line_magic('time', '')\n    wide", 1
        ),
        'check("1.1")',
    ]
    done = execute(new_notebook(cells=[new_code_cell(source) for source in sources]), package)
    texts = [text_of(cell) for cell in done.cells]
    assert "stopped after 0.5 seconds of CPU time" in texts[3]
    assert "tensor" in texts[4] and "passed" in texts[5] and "tensor" not in texts[5]
    assert texts[7].count("your code printed:") == 1 and "passed" in texts[7]
    assert "get_ipython() is not there in grading" in texts[9]


def test_a_call_that_does_not_end_is_stopped_in_a_cell_of_the_course(monkeypatch, capsys):
    names = {"LONG_CALL": 0.6, "CPU_SECONDS": 0.2}
    for name, value in names.items():
        monkeypatch.setattr(home_sandbox, name, value)
    path = f"{FOLDER}/rmsnorm.py"
    exec(compile("def ends(): return sum(range(99))\ndef loops():\n  while True: ends()\n",
                 path, "exec"), found := {})  # fmt: skip
    with home_sandbox.at_ticks(FOLDER, home_sandbox.LongCalls().look):
        start = time.thread_time()
        while time.thread_time() - start < 1.5:
            found["ends"]()  # each call for itself is short
        with pytest.raises(OutOfTime, match=r"stopped after 0\.6 seconds") as stopped:
            found["loops"]()
    assert stopped.value.path == path and stopped.value.line in (1, 3)
    assert capsys.readouterr().out.count("seconds in one call") == 1
