"""A class on a JupyterHub with nbgrader's exchange, the whole way round; and what a learner
meets where the course is installed for many."""

import os
import subprocess
import sys

import pytest

from labkit.author.reference import reference_block
from labkit.course import cells
from labkit.course.paths import ROOT
from labkit.grading.sample_class import encoded, solved
from tests.course.grading.hub import IS_ROOT, Hub, lacking
from tests.course.grading.two_learners import ALL, LAB, points, tinyllm

NAME = f"{LAB.name}.ipynb"
START = """import torch
from torch import Tensor
from labkit.learner.notebook import check, start
start("rmsnorm")"""
ANSWER = cells.plain(reference_block(LAB, LAB.exercises[0]))
posix = pytest.mark.skipif(os.name != "posix", reason="not checked: needs POSIX")


@pytest.fixture
def hub():
    if why := lacking():
        pytest.skip(f"not checked: {why}")
    with Hub() as started:
        yield started


def nbgrader(course, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments], cwd=course.root,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TINYLLM_COURSE": str(course.root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@posix
@pytest.mark.slow
def test_a_class_on_a_hub_goes_round(hub, released_course):
    """Ann works with nbgrader's pages, Bob with its commands in a terminal."""
    course = released_course
    config = course.root / "nbgrader_config.py"
    config.write_text(f"{config.read_text()}\nc.Exchange.root = {str(hub.exchange)!r}\n")
    ann, bob = hub.learners
    homes = {learner: hub.folder / "home" / learner for learner in hub.learners}
    nbgrader(course, "release_assignment", LAB.name)

    hub.page(ann, "fetch")
    hub.run(bob, f"!nbgrader fetch_assignment {LAB.name}", path=".")
    for home in homes.values():
        assert (home / LAB.name / NAME).is_file()

    started, saved, checked = hub.run(ann, START, ANSWER, 'print(check("1.1"))')
    assert str(homes[ann] / "tinyllm-course" / "tinyllm" / "rmsnorm.py") in started
    assert "saved to tinyllm/rmsnorm.py" in saved and "passed" in checked
    started, checked, status = hub.run(bob, START, 'print(check("1.1"))', "!tinyllm status")
    assert str(homes[bob]) in started and "passed" not in checked  # that is Ann's
    assert "no code" in checked and "1.1" in status
    assert not [path for path in hub.installation.rglob("*") if path.name.endswith("~")]

    notebook = homes[ann] / LAB.name / NAME
    right = encoded(solved(course.released(LAB), LAB)).decode()
    content = {"type": "file", "format": "text", "content": right}
    hub.call("PUT", f"user/{ann}/api/contents/{LAB.name}/{NAME}", **content)
    assert notebook.read_text() == right
    hub.page(ann, "submit")
    (output,) = hub.run(bob, f"!nbgrader submit {LAB.name}", path=".")
    assert "Submitted as" in output
    (seen,) = hub.run(bob, f"!cat {notebook} {hub.exchange}/tinyllm/inbound/*/*")
    if IS_ROOT:
        assert "layer_norm" not in seen and "Permission denied" in seen

    assert "WARNING" not in nbgrader(course, "collect", LAB.name)
    status, output = tinyllm("grade", LAB.module, "--course", course.root, "--no-sandbox")
    assert status == 0 and points(course) == {ann: ALL, bob: 0}, output
    nbgrader(course, "release_feedback", LAB.name)
    hub.page(ann, "fetch_feedback")
    hub.run(bob, f"!nbgrader fetch_feedback {LAB.name}", path=".")
    for learner, total in {ann: f"<b>{ALL}</b> of", bob: "<b>0</b> of"}.items():
        (page,) = (homes[learner] / LAB.name / "feedback").rglob("*.html")
        assert total in page.read_text("utf-8")


SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for code in sys.argv[1:]:
    shell.run_cell(code)
"""


def cells_run(home, *codes):
    """What a notebook prints to a learner on a hub who has this home."""
    environment = {"HOME": str(home), "JUPYTERHUB_USER": "ann", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SHELL, *codes], cwd=home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **environment},
    )  # fmt: skip
    return done.stdout


@posix
def test_on_a_hub_everybody_has_a_package_in_their_home(tmp_path):
    before = (ROOT / "tinyllm" / "rmsnorm.py").read_text("utf-8")
    written = {}
    for name in ("ann", "bob"):
        (tmp_path / name).mkdir()
        answer = ANSWER if name == "ann" else "pass"
        output = cells_run(tmp_path / name, START, answer, 'print(check("1.1"))')
        written[name] = tmp_path / name / "tinyllm-course" / "tinyllm" / "rmsnorm.py"
        assert str(written[name]) in output
        assert ("passed" in output) is (name == "ann"), output
        assert "Error in callback" not in output
    assert written["ann"].read_text("utf-8") != written["bob"].read_text("utf-8") == before
    assert (ROOT / "tinyllm" / "rmsnorm.py").read_text("utf-8") == before


@posix
def test_where_nothing_can_be_saved_start_says_so(tmp_path):
    (tmp_path / "tinyllm-course").touch()  # in the way of the folder, for root too
    output = cells_run(tmp_path, START, ANSWER)
    assert output.count("nothing can be saved to") == 1 and "Traceback" not in output
    assert "Running an exercise cell saves it" not in output
