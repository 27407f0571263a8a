"""The events of the stories, from events.txt: their steps in the world, and their sentences."""

import re
from pathlib import Path

from storyworld.words import VERBS

_ROWS = re.findall(
    r"^(\w+):(.*)((?:\n  .*)*)",
    (Path(__file__).parent / "events.txt").read_text("utf-8"),
    re.MULTILINE,
)
# kind: its steps, each with its arguments
RULES = {kind: [step.split() for step in steps.split(";") if step] for kind, steps, _ in _ROWS}
SENTENCES = {kind: re.split(r" \| |\n  ", lines.strip()) for kind, _, lines in _ROWS if lines}
# each thing has its own way of being used
SENTENCES |= {f"use:{verb}": [f"{{a}} {verb} the {{x}}."] for verb in VERBS.values()}
