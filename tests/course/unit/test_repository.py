"""The repository: no stale files, consistent versions, documents that are true."""

import re
import subprocess
import sys
from importlib.metadata import distributions

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from typer.main import get_command

from labkit import __version__
from labkit.author import build
from labkit.checks.mistakes import mistakes_of
from labkit.cli import app
from labkit.course.paths import ROOT
from labkit.course.syllabus import LABS, NOTEBOOKS, find_lab
from labkit.learner.hints import last_rung, rungs, sections


def test_nothing_derived_is_stale():
    assert [path.name for path in build.build(check=True)] == []


def test_build_check_notices_a_stale_file(monkeypatch, tmp_path):
    path = tmp_path / "rmsnorm.py"
    path.write_text("old")
    monkeypatch.setattr(build, "everything", lambda: iter([build.Derived(path, b"new")]))
    assert build.build(check=True) == [path] and path.read_text() == "old"
    assert build.build() == [path] and path.read_text() == "new"
    assert build.build(check=True) == []


def pins(text):
    """{name: version} for current versions of Python"""
    text = re.sub(r"^.*; python(_full)?_version < .*$", "", text, flags=re.MULTILINE)
    found = re.findall(r"^\s*(?:- )?([A-Za-z0-9_.-]+)==([^\s;]+)", text, re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def test_environment_constraints_and_project_agree():
    constraints = pins((ROOT / "constraints.txt").read_text())
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    listed = pins("\n".join(pip))
    for name, version in listed.items():
        assert constraints[name] == version
    project = (ROOT / "pyproject.toml").read_text()
    listings = re.findall(
        r"^(dependencies|grading|dev) = \[(.*?)\]$", project, re.MULTILINE | re.DOTALL
    )
    required = r'"([a-z0-9-]+)>=[^";]+"'  # with any Python
    direct = {name: set(re.findall(required, text)) for name, text in listings}
    assert set(listed) == direct["dependencies"] | direct["grading"]
    assert set().union(*direct.values()) <= set(constraints)


def test_every_pin_installs_on_the_first_patch_release_of_this_python():
    """Debian 12 has 3.11.2: a pin that needs a later patch release does not install there."""
    constraints = (ROOT / "constraints.txt").read_text()
    pinned, first = pins(constraints), "{}.{}.0".format(*sys.version_info)
    shut_out = {
        dist.name
        for dist in distributions()
        if dist.version == pinned.get(dist.name.lower().replace("_", "-"))
        and first not in SpecifierSet(dist.metadata.get("Requires-Python") or "")
    }
    assert shut_out <= set(re.findall(r"^(\S+)==.*; python_full_version >=", constraints, re.M))


def test_all_who_install_the_cpu_build_take_the_one_that_is_pinned():
    taken = "-c constraints.txt torch --index-url"  # only constraints.txt has torch's version
    for path in (
        *ROOT.glob(".github/workflows/*.yml"),
        ROOT / ".devcontainer/devcontainer.json",
    ):
        assert taken in path.read_text(), path
    for name in ("README.md", "README.zh-CN.md", "labkit/author/learners/README.md"):
        command = rf"^ *\S.*pip install {taken} \S+/whl/cpu$"
        assert re.search(command, (ROOT / name).read_text(), re.MULTILINE), name


def quick_start():
    text = (ROOT / "README.md").read_text().split("## Quick start", 1)[1]
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_readmes_have_the_minutes_of_the_syllabus(name):
    text = (ROOT / name).read_text("utf-8")
    rows = re.findall(r"^\| \[.*\]\(notebooks/(\w+)\.ipynb\) \|.*\| (\d*) ?\|$", text, re.M)
    assert sorted(rows) == [(lab.name, f"{lab.minutes or ''}") for lab in NOTEBOOKS]


def test_ci_runs_the_readmes_second_command():
    first, second = quick_start()[:2]
    assert "tinyllm demo" in first and "pytest" in second
    script = (ROOT / ".ci" / "run").read_text().split("# --- end of the README's part")[0]
    done = subprocess.run(
        ["bash", "-c", script + '\nprintf %s "$tests"'],
        capture_output=True, text=True, cwd=ROOT, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout.strip() == second.strip()


def test_a_lab_has_its_file_in_every_room():
    for lab in LABS:
        for path in (
            f"notebooks/{lab.name}.ipynb",
            f"tinyllm/{lab.module}.py",
            f"solutions/{lab.module}.py",
            f"solutions/mistakes/{lab.module}.diff",
            f"tests/visible/test_{lab.module}.py",
            f"tests/hidden/test_{lab.module}.py",
        ):
            assert (ROOT / path).exists(), path
        for exercise in lab.exercises:
            assert len(rungs(lab, exercise)) == last_rung(exercise), exercise.id
            assert "```" not in rungs(lab, exercise)[0], exercise.id
        answers = sections((ROOT / f"solutions/answers/{lab.module}.md").read_text())
        assert {question.id for question in lab.questions} <= set(answers), lab.name


def test_the_number_of_an_exercise_selects_all_that_is_proved_of_it():
    """`pytest tests/course/soundness -k "swiglu-4.3"`, as CONTRIBUTING has it."""
    lab = find_lab("swiglu")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts="]
    done = subprocess.run(
        [*command, "tests/course/soundness/test_soundness.py", "-k", "swiglu-4.3"],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    listed = {m.name for m in mistakes_of(lab) if m.exercise.id == "4.3"}
    assert listed == set(re.findall(r"-4\.3-\w+:([\w-]+)\]", done.stdout))
    for test in (
        "every_stub_fails",
        "right_answers_written_otherwise",
        "right_answers_earn_all",
    ):
        assert re.search(rf"{test}\S*\[\S*-4\.3\]", done.stdout), test


def test_the_walks_of_contributing_name_functions_that_are_there():
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Two walks")[1].split("\n## ")[0]
    stations = re.findall(r"^ *(\S+\.py) +(\w+) {2,}\S", section, re.M)
    assert len(stations) == 20
    for path, name in stations:
        text = (ROOT / "labkit" / path).read_text()
        assert re.search(rf"^ *(def|class) {name}\b", text, re.M), (path, name)


def test_the_version_and_its_date_agree_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert f'\nversion = "{__version__}"\n' in project
    assert citation["version"] == __version__
    released = f"\n## {__version__}, {citation['date-released']}\n"
    assert released in (ROOT / "CHANGELOG.md").read_text()


DOCUMENTS = ("README.md", "README.zh-CN.md", "GRADING.md", "CONTRIBUTING.md", "SECURITY.md",
             "labkit/author/learners/README.md")  # fmt: skip
SPAN = re.compile(
    r"`([^`\n]+)`|^ *(?:\.venv/bin/)?(tinyllm .+)$|&& (?:\.venv/bin/)?(tinyllm .+)$", re.M
)
PLACEHOLDER = re.compile(r"(?<![A-Za-z])(X|NN_LAB|LAB|NAME|xx)(?![A-Za-z])")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_of_the_documents_are_understood_as_they_stand(name):
    """With their arguments and options; a bare command, or one up to an option, counts as a
    name."""
    commands, count = get_command(app).commands, 0
    spans = ["".join(found) for found in SPAN.findall((ROOT / name).read_text("utf-8"))]
    for line in (line for span in spans for line in re.split(r" && | \| |; ", span)):
        plain = re.sub(r"^(\S*/|TINYLLM_LANG=\w+ )(?=tinyllm )", "", line).split("#")[0]
        words = re.findall(r"'[^']*'|\S+", plain)
        if words[:1] != ["tinyllm"] or len(words) < 2 or words[1].startswith("-"):
            continue
        command, count = commands[words[1]], count + 1
        if len(words) > 2 and not words[-1].startswith("-"):
            command.make_context(words[1], words[2:])
        known = {o for field in command.params for o in (*field.opts, *field.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= {*known, "--help"}, line
    assert count or name == "SECURITY.md"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_of_the_documents_exist(name):
    text, there = (ROOT / name).read_text("utf-8"), {path.name for path in ROOT.iterdir()}
    for span in re.findall(r"`([\w./-]+)`|\]\(([\w./-]+)\)", text):
        path = "".join(span)
        if "/" in path and path.split("/")[0] in there and not PLACEHOLDER.search(path):
            assert (ROOT / path).exists() or is_made(path), path


def is_made(path):
    """Whether git ignores the path: a command creates it"""
    return subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT).returncode == 0
