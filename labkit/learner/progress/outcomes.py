"""What comes out where a notebook asks for a prediction: the choices, which one it is, why.

They stand here and not in the notebooks, so that nobody reads them before the cell has run;
`tinyllm build` writes the choices into the cell `predict-...`. A key is the lab's number and
the name of the figure, or of the cell, that shows it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """choices    {letter: text}
    right      the letter of what comes out
    why        one sentence
    """

    choices: dict[str, str]
    right: str
    why: str


def _of(*choices: str, why: str) -> Outcome:
    """The choices get letters; the right one begins with a star."""
    letters = "abcdef"[: len(choices)]
    (right,) = (a for a, text in zip(letters, choices, strict=True) if text[0] == "*")
    texts = (text.removeprefix("*") for text in choices)
    return Outcome(dict(zip(letters, texts, strict=True)), right, why)


OUTCOMES = {
    # Lab 00
    "0.tokens": _of(
        "about 8 each",
        "*8, and more than 20",
        "34 and 35, one for each letter",
        why="Words of the stories are one token each; strange ones fall into fragments.",
    ),
    "0.attention": _of(
        "none does",
        "one does, with about a tenth of its attention",
        "*one does, with a third of its attention or more",
        why="Training made it look for what is asked; nobody told it to.",
    ),
    # Lab 01
    "1.why": _of(
        "about 7",
        "about 40",
        "*above 200",
        why="1.1 to the 60th is about 300: a tenth too much is multiplied sixty times, not "
        "added.",
    ),
    "1.cloud": _of(
        "on a circle",
        "on a line",
        "*on two spots",
        why="The mean takes one dimension, the spread another: in the plane only a sign is "
        "left.",
    ),
    "1.overflow": _of(
        "the right values",
        "inf",
        "nan",
        "*zeros",
        why="The square of 300 is beyond 65504 and becomes inf; one over its root is 0.",
    ),
    "1.warm-up": _of(
        "pre, no warm-up",
        "pre, with warm-up",
        "*post, no warm-up",
        "post, with warm-up",
        why="Its first steps, at full rate, spoil the stack, and it stays at the frequencies.",
    ),
    "1.places": _of(
        "*post",
        "pre",
        "sandwich",
        "output",
        why="Post keeps the stream at size 1; elsewhere it grows with the depth, and the last "
        "norm divides the gradient by that.",
    ),
    "1.living": _of(
        "*layer_norm, with the same weights",
        "RMSNorm without its weights",
        "no norm, the weights alone",
        why="The mean was hardly worth keeping; the size, and the strength of each feature, "
        "are what the layers behind were trained to read.",
    ),
    # Lab 02
    "2.why": _of(
        'in "dog bites man"',
        'in "man bites dog"',
        "*in neither: it is the same",
        why="Scores are products of query and key, and neither knows its place.",
    ),
    "2.base": _of(
        "tens of thousands",
        "hundreds of thousands",
        "*millions",
        why="Its speed is 1e6 to the power -126/128, and a turn is 2 pi: 5 million positions.",
    ),
    "2.narrow": _of(
        "512, and the table hurts more",
        "512, and the angles hurt more",
        "385, and the table hurts more",
        "*385, and the angles hurt more",
        why="Eight bits count to 256, then in steps of 2; a rounded angle is wrong by ever "
        "more the farther one goes, a rounded table by 0.002 at most.",
    ),
    "2.stripes": _of(
        "rows, and they move on",
        "diagonals, and they move on",
        "rows, and nothing changes",
        "*diagonals, and nothing changes",
        why="The score hangs on the offset alone, which is constant along a diagonal and stays "
        "if both move.",
    ),
    "2.layouts": _of(
        "yes, no, no",
        "*yes, yes, no",
        "yes, yes, yes",
        "no, no, no",
        why="It turns every pair as yours does, only other pairs.",
    ),
    "2.longer": _of(
        "nearly all with either",
        "little with either",
        "*little, and nearly all with ALiBi",
        why="Noise spreads its weight over all tokens; a penalty for distance keeps it near, "
        "however long the text.",
    ),
}
