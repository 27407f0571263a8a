"""Where the course's folders lie; the learners' edition lacks some of them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LABKIT = ROOT / "labkit"
NOTEBOOKS = ROOT / "notebooks"
SOLUTIONS = ROOT / "solutions"
TESTS = ROOT / "tests"
CHECKPOINTS = ROOT / "checkpoints"
