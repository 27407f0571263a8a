"""A learner on a JupyterHub, where many use one installation of the course. Its exchange and
`nbgrader submit` are in test_exchange.py."""

import os
import subprocess
import sys

import pytest

from labkit.author.reference import reference_block
from labkit.course import cells
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS

LAB = LABS[0]
START = """import torch
from torch import Tensor
from labkit.learner.notebook import check, start
start("rmsnorm")"""
ANSWER = cells.plain(reference_block(LAB, LAB.exercises[0]))
posix = pytest.mark.skipif(os.name != "posix", reason="not checked: needs POSIX")


SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for code in sys.argv[1:]:
    shell.run_cell(code)
"""


def cells_run(home, *codes):
    """The output of a notebook for a learner on a hub with this home folder."""
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
    (tmp_path / "tinyllm-course").touch()  # a file where the folder should be; stops root, too
    output = cells_run(tmp_path, START, ANSWER)
    assert output.count("nothing can be saved to") == 1 and "Traceback" not in output
    assert "Running an exercise cell saves it" not in output
