"""Find text that must not reach a reader: an unfilled placeholder, a traceback; in prose also a
repeated word and bytes that are not text; in Chinese, English that is neither code nor a
term."""

import re

from labkit.model.chat import manners

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


# English that a Chinese page may contain: texts of the little models, terms of tables, commands
NAMES = (name for names in manners.LISTS.values() for name in names)
WORLD = manners.ASKED | manners.SAID | manners.lower(NAMES) | set(manners.LITTLE)
WORLD |= manners.slotless([*manners.REFUSALS, *manners.CHATTER.values()])
TERMS = "attention bias capped causal inf learned logits nan norm parallel pre sinks"
QUOTED = r"[（(][ -~，、；]+[）)]|`[^`]*`|\"[^\"]*\"|'[^'\n]*'"  # terms, too
CODE = re.compile(QUOTED + r"|\S*[/_.=()\[\]<>|@#$\\]\S*")
PHRASE = re.compile(r"\b[A-Za-z]+(?: [a-z]{2,})+")


def english_in(text: str, given: str = "") -> list[str]:
    """The English phrases of a Chinese text, without code and stories.

    given    a text whose words are allowed: the code that printed it
    """
    known = WORLD | set(re.findall(r"[a-z]+", f"{TERMS} {given}".lower()))
    phrases = PHRASE.findall(CODE.sub(" · ", text))
    return [each for each in phrases if not known.issuperset(each.lower().split())]
