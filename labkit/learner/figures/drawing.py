"""Figures of the notebooks: one colour for each name, one look, pictures with alt text.

    figure, axis = plt.subplots()
    axis.plot(sizes, color=COLOURS["RMSNorm"])
    show(figure, "1.why")

It needs matplotlib, so nothing that `import labkit` loads may import this module.
"""

from __future__ import annotations

import base64
import html
import io
import struct
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from labkit.course.lang import tr
from labkit.course.syllabus import CAPTIONS, PREDICTIONS
from labkit.learner.figures.labels import label, translate
from labkit.learner.progress.predictions import outcome, show_now

# Okabe and Ito's palette, for every common colour blindness. Its yellow is left out, too pale
# for a line on white.
BLACK, GREY, ORANGE, SKY = "#000000", "#767676", "#E69F00", "#56B4E9"
GREEN, BLUE, VERMILION, PURPLE = "#009E73", "#0072B2", "#D55E00", "#CC79A7"

# A name keeps its colour in every lab; names that never share a figure may share a colour.
COLOURS = {
    "x": GREY,
    "hidden_states": GREY,
    "mine": BLUE,
    "wrong": VERMILION,
    "layer_norm": ORANGE,
    "RMSNorm": BLUE,
    "pre": BLUE,
    "post": VERMILION,
    "sandwich": GREEN,
    "deepnorm": PURPLE,
    "query": BLUE,
    "key": ORANGE,
    "value": GREEN,
    "scores": PURPLE,
    "weights": VERMILION,
    "gate": SKY,
    "up": GREEN,
    "relu": ORANGE,
    "gelu": PURPLE,
    "silu": BLUE,
    "swish": BLUE,
    "geglu": GREEN,
    "swiglu": BLACK,
    "attention": ORANGE,
    "mlp": BLUE,
    "embed_tokens": GREY,
    "loss": BLACK,
}

STYLE = {
    "figure.figsize": (7.0, 3.0),
    "figure.facecolor": "white",  # opaque: a dark theme cannot swallow the labels
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "legend.fontsize": 9,
    "legend.frameon": False,
}
plt.rcParams.update(STYLE)

PIXELS_PER_INCH = 96  # pixels on the page; the picture has twice as many


def show(figure: Figure, text: str) -> None:
    """Display `figure` in the notebook as a PNG with an alternative text, then close it.

    `text` is also the caption below the picture: a key of CAPTIONS, "1.cloud", or the text
    itself, put together from the figure's own numbers. Outside a notebook it is printed
    instead of the picture. If a prediction has this key, its outcome follows.
    """
    if text[:1].isdigit() and text not in CAPTIONS:
        raise KeyError(f"{text!r} is no caption: add it to labkit/course/labs")
    alt = tr(CAPTIONS[text]) if text in CAPTIONS else label(text)
    if _in_ipython():
        from IPython.display import display

        page = as_html(figure, alt)
        page = f"<figure>{page}<figcaption>{html.escape(alt)}</figcaption></figure>"
        display({"text/html": page, "text/plain": f"[figure] {alt}"}, raw=True)
    else:
        print(f"[figure] {alt}")
    plt.close(figure)
    if text in PREDICTIONS:
        show_now(outcome(text))


# backgrounds of words, for things with only a number, such as experts
YELLOW = "#F0E442"
DISTINCT = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, GREY, YELLOW)


def shade(
    pieces: Sequence[str],
    weights: Sequence[float],
    columns: int = 84,
    kinds: Sequence[int] | None = None,
) -> Figure:
    """Draw a text in pieces, darker for larger weights.

    kinds    a number for each piece: it picks a colour of DISTINCT and is written, small,
             behind the piece
    """
    rows, at = [[]], 0
    hues = [BLUE if kinds is None else DISTINCT[k % len(DISTINCT)] for k in kinds or weights]
    marks = [""] * len(hues) if kinds is None else kinds
    for piece, weight, hue, kind in zip(pieces, weights, hues, marks, strict=True):
        if at + len(piece) > columns or piece == "\n":
            rows.append([])
            piece, at = piece.lstrip(), 0
        rows[-1].append((at, piece, weight / max(weights), hue, kind))
        at += len(piece)
    if kinds is not None:
        names = [
            (3 * k, f" {k} ", 1.0, DISTINCT[k % len(DISTINCT)], "")
            for k in range(max(kinds) + 1)
        ]
        rows = [names, [], *rows]
    figure = plt.figure(figsize=(7, 0.26 * len(rows) + 0.1), layout="none")
    axis = figure.add_axes((0.01, 0, 0.98, 1))
    axis.set(xlim=(0, columns), ylim=(len(rows), 0))
    axis.axis("off")
    for y, row in enumerate(rows):
        for x, piece, dark, hue, kind in row:
            word = piece.strip()
            left = x + len(piece) - len(piece.lstrip())
            place = (left, y + 0.08)
            alpha = (0.8 if kinds is None else 0.45) * dark
            box = plt.Rectangle(place, len(word), 0.84, color=hue, alpha=alpha, lw=0)
            axis.add_patch(box)
            if word:
                axis.text(left + len(word) + 0.1, y + 0.3, kind, size=5.5, va="center")
            for index, letter in enumerate(word):
                axis.text(
                    left + index + 0.5, y + 0.5, letter, size=8.5, ha="center", va="center",
                    family="monospace", color="white" if alpha > 0.48 else "black",
                )  # fmt: skip
    return figure


def show_svg(svg: str, alt: str) -> None:
    """Display a drawing in the notebook; outside of one, print its text."""
    if _in_ipython():
        from IPython.display import display

        page = image("svg+xml", svg.encode(), alt, 960)
        display({"text/html": page, "text/plain": f"[figure] {alt}"}, raw=True)
    else:
        print(f"[figure] {alt}")


def as_html(figure: Figure, alt: str) -> str:
    """Return the figure as an <img>, its labels in the current language."""
    translate(figure)
    for axis in figure.axes:
        if axis.images:  # lines would cut its cells
            axis.grid(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=2 * PIXELS_PER_INCH)
    png = buffer.getvalue()
    width = struct.unpack(">I", png[16:20])[0] // 2  # a PNG states its width at byte 16
    return image("png", png, alt, width)


def image(kind: str, content: bytes, alt: str, width: int) -> str:
    """Return an <img> with its content as a data URL: nothing has to be fetched."""
    data = base64.b64encode(content).decode("ascii")
    style = "max-width: 100%; height: auto; background: white"
    source = f"data:image/{kind};base64,{data}"
    return f'<img src="{source}" alt="{html.escape(alt)}" width="{width}" style="{style}">'


def _in_ipython() -> bool:
    from IPython import get_ipython

    return get_ipython() is not None
