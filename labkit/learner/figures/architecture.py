"""The whole of Qwen3 in one figure: where a lab sits, and which shapes flow through it.

    architecture("gqa")                          the part of lab 03 lit, pale what has passed
    architecture(config=PRESETS["Qwen3-0.6B"])   all of it, with this model's numbers

It needs matplotlib, so nothing that `import labkit` loads may import this module.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Circle, FancyBboxPatch, Polygon
from matplotlib.textpath import TextPath

from labkit.core.syllabus import LABS, Lab
from labkit.lang import ENGLISH, language, said, tr
from labkit.learner.figures import drawing
from labkit.learner.figures.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from labkit.learner.figures.labels import families
from labkit.learner.progress.record import passed_labs

# module of a lab -> (colour, what its part is called, what the lab writes)
DRAWN = {
    "rmsnorm": (SKY, said("norms"), said("the norms and the residual additions")),
    "rope": (ORANGE, said("positions"), said("the rotation of queries and keys")),
    "gqa": (BLUE, said("attention"), said("attention, from q_proj to o_proj")),
    "swiglu": (GREEN, "SwiGLU", said("the dense feed-forward layer")),
    "moe": (PURPLE, said("experts"), said("the mixture of experts")),
    "decoder": (GREY, said("decoder"), said("the frame: embeddings, layers, final norm, head")),
    "generation": (
        VERMILION,
        said("generation"),
        said("the KV cache and the loop that writes"),
    ),
    "training": ("#000000", said("training"), said("the loss and the step that learns")),
}
# a lab whose work is no part of the decoder stands in the legend alone
PARTS = {lab.module: DRAWN.get(lab.module, (GREY, lab.module, lab.title)) for lab in LABS}
LETTERS = {
    "B": said("texts"), "T": said("new tokens"), "N": "B·T", "S": said("cached + new"),
    "E": "hidden_size",
    "H": said("query heads"), "K": said("KV heads"), "D": "head_dim", "I": said("intermediate"),
    "X": said("experts"), "k": said("experts a token"), "V": said("vocabulary"),
}  # fmt: skip
WIDTH, HEIGHT = 960, 640  # in hundredths of an inch
MARGIN = 24
DIM_EDGE, DIM_TEXT, WIRE = "#CFCFCF", "#767676", "#8C8C8C"

# (part or parts, label, left, bottom, width, height)
BOXES = (
    ("", said("token ids"), 40, 38, 130, 28),
    ("decoder", "embed_tokens", 40, 98, 130, 28),
    ("rmsnorm decoder", "norm", 40, 388, 130, 26),
    ("decoder", "lm_head", 40, 444, 130, 28),
    ("generation", "sample_next_token", 40, 524, 130, 34),
    ("training", "causal_lm_loss", 376, 524, 116, 34),
    ("training", "train_step", 620, 524, 90, 34),
    ("training", "learning_rate", 828, 524, 104, 34),
    ("rmsnorm", "input_\nlayernorm", 313, 133, 72, 36),
    ("gqa", "q_proj", 402, 199, 54, 30),
    ("gqa", "k_proj", 402, 136, 54, 30),
    ("gqa", "v_proj", 402, 73, 54, 30),
    ("gqa rmsnorm", "q_norm", 482, 199, 54, 30),
    ("gqa rmsnorm", "k_norm", 482, 136, 54, 30),
    ("rope", "RoPE", 560, 136, 44, 93),
    ("rope", "rope_cos_sin", 537, 246, 90, 22),
    ("generation", "KV\ncache", 628, 73, 48, 93),
    ("gqa", "repeat\n_kv", 704, 73, 52, 93),
    ("gqa", "scaled_dot_\nproduct_\nattention", 780, 73, 80, 156),
    ("gqa", "causal_mask", 776, 246, 88, 22),
    ("gqa", "o_proj", 886, 136, 52, 30),
    ("rmsnorm", "post_\nattention_\nlayernorm", 316, 347, 70, 50),
    ("swiglu", "gate_proj", 420, 389, 70, 28),
    ("swiglu", "silu", 514, 389, 40, 28),
    ("swiglu", "up_proj", 420, 327, 70, 28),
    ("swiglu", "down_proj", 596, 358, 74, 28),
    ("moe", "gate:\nroute", 724, 354, 54, 36),
)
# (part or parts, points of the wire); the last point has the arrow's head
WIRES = (
    ("decoder", [(105, 66), (105, 98)]),
    ("decoder", [(105, 126), (105, 164)]),
    ("decoder", [(105, 348), (105, 388)]),
    ("decoder", [(105, 414), (105, 444)]),
    ("generation", [(105, 472), (105, 524)]),
    ("training", [(105, 506), (434, 506), (434, 524)]),
    ("training", [(492, 541), (620, 541)]),
    ("training", [(828, 541), (710, 541)]),
    ("generation", [(40, 541), (18, 541), (18, 52), (40, 52)]),
    ("rmsnorm", [(296, 151), (313, 151)]),
    ("gqa", [(385, 151), (402, 151)]),
    ("gqa", [(392, 151), (392, 214), (402, 214)]),
    ("gqa", [(392, 151), (392, 88), (402, 88)]),
    ("query", [(456, 214), (482, 214)]),
    ("query", [(536, 214), (560, 214)]),
    ("query", [(604, 214), (780, 214)]),
    ("key", [(456, 151), (482, 151)]),
    ("key", [(536, 151), (560, 151)]),
    ("key", [(604, 151), (628, 151)]),
    ("key", [(676, 151), (704, 151)]),
    ("key", [(756, 151), (780, 151)]),
    ("value", [(456, 88), (628, 88)]),
    ("value", [(676, 88), (704, 88)]),
    ("value", [(756, 88), (780, 88)]),
    ("rope", [(582, 246), (582, 229)]),
    ("gqa", [(820, 246), (820, 229)]),
    ("gqa", [(860, 151), (886, 151)]),
    ("gqa", [(912, 166), (912, 286), (304, 286)]),
    ("rmsnorm", [(296, 372), (316, 372)]),
    ("swiglu", [(386, 372), (403, 372), (403, 403), (420, 403)]),
    ("swiglu", [(403, 372), (403, 341), (420, 341)]),
    ("swiglu", [(490, 403), (514, 403)]),
    ("swiglu", [(554, 403), (572, 403), (572, 380)]),
    ("swiglu", [(490, 341), (572, 341), (572, 364)]),
    ("swiglu", [(580, 372), (596, 372)]),
    ("swiglu", [(633, 386), (633, 454), (304, 454)]),
    ("moe", [(700, 372), (724, 372)]),
    ("moe", [(778, 372), (808, 409)]),
    ("moe", [(778, 372), (808, 353)]),
    ("moe", [(868, 409), (896, 377)]),
    ("moe", [(868, 353), (896, 369)]),
    ("moe", [(904, 380), (904, 454), (304, 454)]),
)
EXPERTS = ((808, 400, True), (808, 372, False), (808, 344, True), (808, 316, False))
# (part, x, y, sign): where streams meet
NODES = (
    ("rmsnorm decoder", 296, 286, "+"),
    ("rmsnorm decoder", 296, 454, "+"),
    ("swiglu", 572, 372, "×"),
    ("moe", 904, 372, "+"),
)
# (part or parts, x, y, shape)
LEFT = 112  # of the labels beside the tower
SHAPES = (
    ("decoder", LEFT, 82, "B, T"),
    ("decoder", LEFT, 145, "B, T, E"),
    ("decoder", LEFT, 366, "B, T, E"),
    ("decoder generation training", LEFT, 489, "B, T, V"),
    ("gqa", 429, 237, "B, T, H·D"),
    ("gqa rmsnorm rope", 505, 237, "B, H, T, D"),
    ("gqa", 429, 174, "B, T, K·D"),
    ("gqa rmsnorm rope", 505, 174, "B, K, T, D"),
    ("gqa", 429, 111, "B, T, K·D"),
    ("gqa generation", 654, 174, "B, K, S, D"),
    ("gqa", 730, 174, "B, H, S, D"),
    ("gqa", 820, 63, "B, H, T, S"),
    ("gqa", 912, 126, "B, T, E"),
    ("decoder", 334, 42, "B, T, E"),
    ("swiglu", 455, 425, "B, T, I"),
    ("swiglu", 636, 348, "B, T, E"),
    ("moe", 751, 344, "N, k"),
)
# (part or parts, x, y, alignment, text)
NOTES = (
    ("decoder", 944, 43, "right", said("one layer, opened")),
    ("swiglu", 409, 308, "left", said("dense: Qwen3MLP")),
    ("", 691, 372, "center", said("or")),
    ("moe", 713, 308, "left", said("sparse: k of X")),
    ("generation", 182, 541, "left", said("one token, which joins\nthe text: run it again")),
    ("training", 556, 550, "center", said("gradients")),
    ("training", 769, 550, "center", said("size of the step")),
)


def architecture(lit: str | None = None, config: Any = None) -> None:
    """Draw Qwen3 with the part of one lab lit (its module's name; None or "all": every part),
    and in pale colour what the learner has finished.

    With a config, the letters E, H, K, D, I, X, k and V become its numbers.

    Errors: a part that does not exist raises ValueError and names those that do
    """
    passed = passed_labs()
    drawing.show(draw(lit, config, passed), alt_text(lit, passed))


def alt_text(lit: str | None = None, passed: Collection[str] = ()) -> str:
    whole = tr(
        "Qwen3 from token ids to logits: embeddings, a stack of equal layers, a final norm and "
        "lm_head; the sampled token joins the text, or the loss trains the model. One layer is "
        "opened: norm, attention, addition; norm, SwiGLU or mixture of experts, addition."
    )
    if lit in (None, "all"):
        return whole
    if passed:
        names = [_called(lab) for lab in LABS if lab.module in passed]
        whole += " " + tr("Ticked, as passed: {names}.", names=", ".join(names))
    part = tr(PARTS[lit][2])
    if lit not in DRAWN:
        about = tr("The map of Qwen3, to which this lab adds no part: {part}.", part=part)
    else:
        about = tr("The map of Qwen3 with this lab's part lit: {part}.", part=part)
    return f"{about} {whole}"


def _called(lab: Lab) -> str:
    return f"{lab.number} {tr(PARTS[lab.module][1])}"


def draw(lit: str | None = None, config: Any = None, passed: Collection[str] = ()) -> Figure:
    """The figure of `architecture`, not yet shown.

    passed    the modules of the labs that are finished
    """
    if lit not in (None, "all", *PARTS):
        raise ValueError(f"there is no part {lit!r}; the parts are {', '.join(PARTS)}, all")
    return _Map(None if lit == "all" else lit, config, passed).figure


class _Map:
    """One drawing: an axis in hundredths of an inch, and which part is lit on it."""

    def __init__(self, lab: str | None, config: Any, passed: Collection[str]):
        self.lab, self.config, self.passed = lab, config, passed
        self.lit = lab if lab in DRAWN else None
        size = (WIDTH / 100, HEIGHT / 100)
        self.figure = plt.figure(figsize=size, layout="none")
        self.axis = self.figure.add_axes((0, 0, 1, 1))
        self.axis.set(xlim=(0, WIDTH), ylim=(-8, HEIGHT - 8))
        self.axis.axis("off")
        self.frame()
        for parts, points in WIRES:
            self.wire(parts, points)
        for parts, label, *place in BOXES:
            self.box(parts, label, *place)
        for x, y, chosen in EXPERTS:
            self.box("moe" if chosen else "", "expert", x, y, 60, 20)
        for parts, x, y, sign in NODES:
            self.node(parts, x, y, sign)
        for parts, x, y, shape in SHAPES:
            align = "left" if x == LEFT else "center"
            self.text(parts, x, y, f"({self.sizes(shape)})", size=7.5, ha=align)
        for parts, x, y, align, text in NOTES:
            if config is not None and config.num_experts and text == "sparse: k of X":
                k, count = config.num_experts_per_tok, config.num_experts
                text = tr("sparse: {k} of {count}", k=k, count=count)
            self.text(
                parts, x, y, tr(text), size=8.5, ha=align, style="italic", family=families()
            )
        self.legend()

    def colour(self, parts: str) -> str | None:
        """The colour of the lit part, of the first one named if all are; paler of one that has
        passed; None: dim."""
        names = [name for name in parts.split() if name in DRAWN]
        if self.lit is None:
            return PARTS[names[0]][0] if names else None
        if self.lit in names:
            return PARTS[self.lit][0]
        done = [PARTS[name][0] for name in names if name in self.passed]
        return to_hex(_tint(done[0], 0.45)) if done else None

    def is_lit(self, parts: str) -> bool:
        return self.lit is None or self.lit in parts.split()

    def sizes(self, shape: str) -> str:
        if self.config is None:
            return shape
        config = self.config
        sizes = {
            "E": config.hidden_size,
            "H": config.num_attention_heads,
            "K": config.num_key_value_heads,
            "D": config.head_dim,
            "I": config.intermediate_size,
            "V": config.vocab_size,
            "k": config.num_experts_per_tok if config.num_experts else "k",
            "H·D": config.num_attention_heads * config.head_dim,
            "K·D": config.num_key_value_heads * config.head_dim,
        }
        return ", ".join(str(sizes.get(part, part)) for part in shape.split(", "))

    def frame(self) -> None:
        """The stack of layers, and the one that is opened beside it."""
        colour = self.colour("decoder")
        edge = colour or DIM_EDGE
        wedge = [(190, 166), (268, 30), (268, 474), (190, 358)]
        self.axis.add_patch(Polygon(wedge, facecolor="#F3F3F3", edgecolor="none", zorder=0))
        self.rectangle(268, 30, 684, 444, "#FAFAFA", edge, 1.4, zorder=0)
        for shift in (20, 10, 0):
            fill = _tint(colour, 0.86) if colour else "white"
            self.rectangle(40 + shift, 164 + shift, 130, 174, fill, edge, 1.2, zorder=1)
        times = "" if self.config is None else f"\n× {self.config.num_hidden_layers}"
        self.text("decoder", 105, 251, f"Qwen3-\nDecoderLayer{times}", size=9)
        self.wire("decoder rmsnorm", [(296, 54), (296, 470)], width=4, head=False)
        for left, width, part in ((396, 284, "swiglu"), (702, 236, "moe")):
            edge = self.colour(part) or DIM_EDGE
            self.rectangle(left, 298, width, 140, "white", edge, 1.0, zorder=1, ls="--")

    def rectangle(self, x, y, width, height, fill, edge, line, zorder=3, ls="-") -> None:
        style = "round,pad=0,rounding_size=5"
        self.axis.add_patch(
            FancyBboxPatch(
                (x, y), width, height, boxstyle=style, facecolor=fill, edgecolor=edge,
                linewidth=line, linestyle=ls, zorder=zorder,
            )
        )  # fmt: skip

    def box(self, parts: str, label: str, x: float, y: float, width: float, height: float):
        colour = self.colour(parts)
        fill, edge = _fill(colour), colour or DIM_EDGE
        line = 1.8 if colour and self.is_lit(parts) else 1.0
        self.rectangle(x, y, width, height, fill, edge, line)
        self.text(parts, x + width / 2, y + height / 2, label, size=9, linespacing=1.05)

    def node(self, parts: str, x: float, y: float, sign: str) -> None:
        colour = self.colour(parts)
        face, edge = _tint(colour, 0.72) if colour else "white", colour or DIM_EDGE
        self.axis.add_patch(Circle((x, y), 8, facecolor=face, edgecolor=edge, lw=1.6, zorder=5))
        self.text(parts, x, y - 0.5, sign, size=10, zorder=6)

    def wire(self, parts: str, points: Sequence, width: float = 1.3, head: bool = True) -> None:
        rows = ("query", "key", "value")
        own = parts in rows and self.lit in (None, "gqa")
        of = "gqa" if parts in rows else parts
        colour = drawing.COLOURS[parts] if own else self.colour(of)
        colour = WIRE if self.lit is None and not own else colour or DIM_EDGE
        above = 2.5 if self.lit and (own or self.colour(of)) else 2
        x, y = zip(*points, strict=True)
        self.axis.plot(x, y, color=colour, lw=width, zorder=above, solid_joinstyle="round")
        if head:
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": width, "mutation_scale": 9}
            arrow |= {"shrinkA": 0, "shrinkB": 0}
            self.axis.annotate("", points[-1], points[-2], arrowprops=arrow, zorder=above)

    def text(self, parts: str, x: float, y: float, text: str, size: float, **style) -> None:
        bright = self.lit is None or self.colour(parts)
        style = {"ha": "center", "va": "center", "zorder": 4, **style}
        self.axis.text(x, y, text, size=size, color="black" if bright else DIM_TEXT, **style)

    def legend(self) -> None:
        """The labs along the top, the letters along the bottom."""
        labels = {lab.module: _called(lab) for lab in LABS}
        size, places = _spread(list(labels.values()))
        for x, (part, label) in zip(places, labels.items(), strict=True):
            colour = self.colour(part) if part in DRAWN else None
            self.rectangle(x, 600, 14, 14, _fill(colour), colour or DIM_EDGE, 1.6)
            if self.lit and part in self.passed:
                self.text(part, x + 7, 606, "\N{CHECK MARK}", size=9)
            weight = "bold" if self.lab == part and language() == ENGLISH else "normal"
            self.text(
                part, x + 20, 607, label, size=size, ha="left", weight=weight, family=families()
            )
        words = [f"{letter}  {tr(meaning)}" for letter, meaning in LETTERS.items()]
        for y, row in ((15, words[:6]), (0, words[6:])):
            self.text("", WIDTH / 2, y, "      ".join(row), size=8, family=families())


def _spread(labels: list[str]) -> tuple[float, list[float]]:
    """The size of the legend's labels, each behind its square, and where they begin: with
    equal gaps, smaller if there are many. Room is left for each to be bold."""
    room, size = WIDTH - 2 * MARGIN, 9.5
    bold = FontProperties(
        family=families(), weight="bold" if language() == ENGLISH else "normal", size=size
    )
    widths = [TextPath((0, 0), label, prop=bold).get_extents().x1 / 0.72 for label in labels]
    squares = len(labels) * 20
    shrink = min(1, (room - squares - 10 * len(labels)) / sum(widths))
    ends = list(accumulate(20 + width * shrink for width in widths))
    gap = (room - ends[-1]) / max(1, len(labels) - 1)
    begins = [0.0, *ends[:-1]]
    return size * shrink, [MARGIN + end + place * gap for place, end in enumerate(begins)]


def _fill(colour: str | None) -> tuple[float, ...] | str:
    """Inside of a box: a lit one's colour, paler; dim ones are white."""
    return _tint(colour, 0.86 if colour == GREY else 0.72) if colour else "white"


def _tint(colour: str, white: float) -> tuple[float, ...]:
    return tuple(part + (1 - part) * white for part in to_rgb(colour))
