"""Translates the labels of a figure when it is rendered.

The code that draws is in English in every edition. A message may have placeholders,
"layer {0}"; the text in a placeholder is translated, too, if it is a message. The price is that
composed labels have to be recognized by patterns.

It needs matplotlib, so nothing that `import labkit` loads may import this module.
"""

from __future__ import annotations

import re
from functools import cache

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font
from matplotlib.text import Text

from labkit.course.lang import ENGLISH, FOLDER, known_messages, language, tr

PLACE = re.compile(r"\{\d\}")
BREAK = re.compile(r"(\n|, | -?[\d.]+(?=,|$))")  # lines, and lists of words with their numbers


def label(text: str) -> str:
    """Translate a label; a label that is in no catalog stays unchanged."""
    if language() == ENGLISH or not re.search("[a-z]{2}", text):
        return text
    if (translated := tr(text)) != text:
        return translated
    for pattern, message in _patterns(language()):
        if found := pattern.fullmatch(text):
            return tr(message).format(*map(label, found.groups()))
    parts = [text] if "_\n" in text else BREAK.split(text)  # a name in code was too long
    return "".join(map(label, parts)) if len(parts) > 1 else text


@cache
def _patterns(chosen: str) -> list[tuple[re.Pattern, str]]:
    """All messages with placeholders as patterns, the longest first"""
    found = [message for message in known_messages() if "{0}" in message]
    found.sort(key=lambda message: -len(PLACE.sub("", message)))
    return [
        (re.compile("(.+?)".join(map(re.escape, PLACE.split(message))), re.DOTALL), message)
        for message in found
    ]


@cache
def _font(chosen: str) -> str | None:
    """Register the language's own font with matplotlib and return its name."""
    for path in sorted((FOLDER / chosen).glob("*.ttf")):
        fontManager.addfont(path)
        return get_font(path).family_name
    return None


def families() -> list[str]:
    """The fonts of a label; a character that one lacks comes from the next"""
    font = _font(language())
    return ["sans-serif", font] if font else ["sans-serif"]


def translate(figure: Figure) -> None:
    if language() == ENGLISH:
        return
    for axes in figure.findobj(Axes):
        for axis in (axes.xaxis, axes.yaxis):
            _translate_ticks(axis)
    for text in figure.findobj(Text):
        translated = label(text.get_text())
        if translated != text.get_text() or not translated.isascii():
            text.set_text(translated)
            # a formula uses one font only: the one with the language's characters
            text.set_fontfamily(families()[::-1] if "$" in translated else families())


def _translate_ticks(axis: Axis) -> None:
    """Let the formatter translate: matplotlib writes tick labels anew for each drawing."""
    formatter = axis.get_major_formatter()
    say = formatter.format_ticks
    formatter.format_ticks = lambda places: [label(str(each)) for each in say(places)]
    axis.set_tick_params(labelfontfamily=families())
