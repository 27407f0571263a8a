"""`pytest tests/hidden` checks the package beside it, with the course's own messages."""

import os
import re
import shutil
import subprocess
import sys

from labkit.course.paths import ROOT


def test_pytest_alone_runs_the_checks_of_a_package(tmp_path):
    for name in ("labkit", "solutions", "tests"):
        (tmp_path / name).mkdir()
        for path in (ROOT / name).iterdir():
            (tmp_path / name / path.name).symlink_to(path)
    shutil.copytree(ROOT / "solutions", tmp_path / "tinyllm", ignore=lambda *_: ["mistakes"])
    module = tmp_path / "tinyllm" / "rmsnorm.py"
    module.write_text(module.read_text().replace("wide.square().mean(", "wide.square().sum("))
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/hidden"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "TINYLLM_LANG": "en"}
    done = subprocess.run(
        [*run, "-k", "rms_norm or residual"], cwd=tmp_path, env=environment,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and re.search(r"\d+ failed, \d+ passed", done.stdout)
    assert "Exercise 1.2  RMSNorm" in done.stdout and "the squares are summed" in done.stdout
    assert "Exercise 1.3" not in done.stdout.partition("short test summary")[0]
