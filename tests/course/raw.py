"""Find text that must not reach a reader: an unfilled placeholder, a traceback; in prose also a
repeated word, and bytes that are not text."""

import re

ANYWHERE = (r"(?<![\w{}$\\^])\{[a-z_]{2,}\}", r"Traceback \(most recent")  # {value}
IN_PROSE = (
    r"\b(?!that\b|had\b|million\b)([A-Za-z]{2,}) \1\b",
    r"(?<!一)(?!一)([\u4e00-\u9fff]{2,})\2",  # 一个一个: one by one
    "\ufffd",
)


def raw_in(text: str, is_prose: bool = True) -> list[str]:
    """Return the parts of a text, code left out, that were never meant for a reader, with their
    surroundings."""
    pattern = "|".join((*ANYWHERE, *IN_PROSE) if is_prose else ANYWHERE)
    return [text[max(0, m.start() - 30) : m.end() + 30] for m in re.finditer(pattern, text)]
