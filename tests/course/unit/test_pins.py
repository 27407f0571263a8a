"""Every pin of constraints.txt installs on every supported Python, by the package index."""

import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from labkit.course.paths import ROOT

LOWEST, ABOVE = re.search(
    r'^requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text(), re.M
).groups()


@pytest.mark.slow
@pytest.mark.parametrize("minor", range(int(LOWEST), int(ABOVE)))
def test_every_pin_has_a_wheel_for_the_first_patch_release(minor, tmp_path):
    """For this system only. Debian 12 has 3.11.2, so a wheel for later patch releases is not
    enough."""
    here = {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    taken = [pin for pin in pins if not pin.marker or pin.marker.evaluate(here)]
    assert len({pin.name.lower() for pin in taken}) == len(taken)  # one version of each
    (tmp_path / "pins.txt").write_text("\n".join(f"{pin.name}{pin.specifier}" for pin in taken))
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps",
         "--only-binary=:all:", f"--python-version=3.{minor}.0", f"--target={tmp_path}",
         f"--requirement={tmp_path / 'pins.txt'}"],
        capture_output=True, text=True,
    )  # fmt: skip
    if re.search("ConnectionError|NewConnectionError|Max retries|timed out", done.stderr):
        pytest.skip("not checked: there is no package index")
    assert done.returncode == 0, done.stderr[-2000:]
