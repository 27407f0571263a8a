"""The repository itself: nothing stale, one source for versions, a lab in every room."""

import re
import subprocess
import sys
from importlib.metadata import distributions

import pytest
import torch
import yaml
from packaging.specifiers import SpecifierSet

from labkit.author.build import build, same_record, written
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS
from labkit.learner.hints import RUNGS, rungs, sections
from labkit.sandboxed.wire import pack


def test_nothing_derived_is_stale():
    """But for the records, which are made where mistakes are: soundness/test_soundness.py."""
    assert [str(derived.path) for derived in written() if derived.stale] == []


def test_build_check_notices_a_stale_file(monkeypatch, tmp_path):
    from labkit.author import build as module

    path = tmp_path / "rmsnorm.py"
    path.write_text("old")
    monkeypatch.setattr(module, "everything", lambda: iter([module.Derived(path, b"new")]))
    assert build(check=True) == [path] and path.read_text() == "old"
    assert build() == [path] and path.read_text() == "new"
    assert build(check=True) == []


def pins(text):
    """{name: version} for the Python that is tested."""
    text = re.sub(r"^.*; python(_full)?_version < .*$", "", text, flags=re.MULTILINE)
    found = re.findall(r"^\s*(?:- )?([A-Za-z0-9_.-]+)==([^\s;]+)", text, re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def test_environment_and_constraints_say_the_same():
    constraints = pins((ROOT / "constraints.txt").read_text())
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    listed = pins("\n".join(pip))
    assert constraints["torch"] == "2.13.0"
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
    """Debian 12 has 3.11.2: a pin that wants a later patch release shuts it out."""
    first = "{}.{}.0".format(*sys.version_info)
    pinned = pins((ROOT / "constraints.txt").read_text())
    shut_out = [
        dist.name
        for dist in distributions()
        if dist.version == pinned.get(dist.name.lower().replace("_", "-"))
        and first not in SpecifierSet(dist.metadata.get("Requires-Python") or "")
    ]
    with_a_marker = re.findall(
        r"^(\S+)==.*; python_full_version >=", (ROOT / "constraints.txt").read_text(), re.M
    )
    assert set(shut_out) <= set(with_a_marker)


def test_both_readmes_install_the_cpu_build_that_is_pinned():
    pinned = pins((ROOT / "constraints.txt").read_text())["torch"]
    for name in ("README.md", "labkit/author/learners/README.md"):
        command = rf"^\S.*pip install torch=={pinned} --index-url \S+/whl/cpu$"
        assert re.search(command, (ROOT / name).read_text(), re.MULTILINE), name


def quick_start():
    text = (ROOT / "README.md").read_text().split("## Quick start", 1)[1]
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_ci_runs_the_readmes_second_command():
    first, second = quick_start()[:2]
    assert "tinyllm demo" in first and "pytest" in second
    script = (ROOT / ".ci" / "run").read_text().split("# --- end of the README's part")[0]
    done = subprocess.run(
        ["bash", "-c", script + '\nprintf %s "$tests"'],
        capture_output=True, text=True, cwd=ROOT, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout.strip() == second.strip()


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_a_lab_has_its_file_in_every_room(lab):
    for room in (
        f"notebooks/{lab.name}.ipynb",
        f"tinyllm/{lab.module}.py",
        f"solutions/{lab.module}.py",
        f"solutions/mistakes/{lab.module}.diff",
        f"solutions/hints/{lab.module}.md",
        f"solutions/answers/{lab.module}.md",
        f"tests/visible/test_{lab.module}.py",
        f"tests/hidden/test_{lab.module}.py",
    ):
        assert (ROOT / room).exists(), room
    for exercise in lab.exercises:
        assert len(rungs(lab, exercise)) == len(RUNGS)
        assert "```" not in rungs(lab, exercise)[0]
    answers = sections((ROOT / f"solutions/answers/{lab.module}.md").read_text())
    assert {question.id for question in lab.questions} <= set(answers)


def test_a_record_of_another_processor_says_the_same():
    """A wrong version whose outcome is the reference's own to the bit is not kept twice; on
    another processor the two may part in the last bit."""
    right, near, far = ({"values": [torch.tensor([x])]} for x in (1.0, 1.0 + 1e-7, 1.1))

    def record(wrong):
        suspects = [["m", "", 1, wrong]]
        return pack({"f#0": {"digest": "", "reference": right, "suspects": suspects}})

    assert same_record(record(None), record(near))
    assert same_record(record(near), record(None))
    assert not same_record(record(None), record(far))
