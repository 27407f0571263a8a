"""Starting JupyterLab: the command, and the reasons not to start it."""

import json
import os
import sys

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.course.paths import ROOT


@pytest.fixture
def lab(monkeypatch, tmp_path):
    """Runs `tinyllm lab ...` in a different folder: exit status, output, started command."""
    started = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "1")
    monkeypatch.setattr(
        "labkit.learner.project.jupyter.start", lambda c: started.extend(c) or 0
    )

    def run(*arguments):
        started.clear()
        result = CliRunner().invoke(app, ["lab", *arguments])
        return result.exit_code, " ".join(result.output.split()), list(started)

    return run


def test_it_opens_a_notebook_of_the_project_from_anywhere(lab):
    begin = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={ROOT}"]
    for arguments, notebook in {
        (): "00_tour",
        ("rmsnorm",): "01_rmsnorm",
        ("9", "--port", "9999"): "09_tokenizer",
        ("--no-browser",): "00_tour",
    }.items():
        code, _, started = lab(*arguments)
        extra = [text for text in arguments if text not in ("rmsnorm", "9")]
        path = str(ROOT / "notebooks" / f"{notebook}.ipynb")
        assert (code, started) == (0, [*begin, *extra, path]), arguments


def test_a_kernel_of_another_python_is_named(lab, monkeypatch, tmp_path):
    folder = tmp_path / "kernels" / "python3"
    folder.mkdir(parents=True)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    own = os.path.join(os.path.dirname(sys.executable), "python3")
    for argv in ("python", "python3", own, "/opt/other/bin/python"):
        fits = argv != "/opt/other/bin/python"
        spec = {
            "argv": [argv, "-m", "ipykernel_launcher"],
            "display_name": "x",
            "language": "x",
        }
        (folder / "kernel.json").write_text(json.dumps(spec))
        code, text, started = lab("rmsnorm")
        assert bool(started) == fits and code == (0 if fits else 2), argv
        assert fits or f"is {argv}, but the course is installed in {sys.executable}" in text


def test_a_notebook_that_was_deleted_is_said_with_what_brings_it_back(
    lab, monkeypatch, tmp_path
):
    monkeypatch.setattr("labkit.learner.project.notebook_file.ROOT", tmp_path)
    monkeypatch.setattr("labkit.learner.project.jupyter.project", lambda: tmp_path)
    assert "folder or zip that you were given" in lab("rmsnorm")[1]
    (tmp_path / ".git").mkdir()
    code, text, started = lab("rmsnorm")
    assert code == 2 and not started and "there is no file" in text
    assert "`git checkout -- notebooks/01_rmsnorm.ipynb` brings back" in text
    monkeypatch.setattr("labkit.learner.project.notebook_file.GIVEN", tmp_path)
    assert "`tinyllm update` brings back the lesson, with your answers" in lab("rmsnorm")[1]


def test_an_unknown_lab_is_said(lab):
    code, text, started = lab("lab9")
    assert code == 2 and "00_tour" in text and not started
