"""Qwen3 in one figure: the place of each lab, and the shapes between the parts.

    architecture("gqa")                          the part of lab 03 lit
    architecture(config=PRESETS["Qwen3-0.6B"])   all of it, with this model's numbers

The drawing is architecture.svg. Its groups name the labs that write them; here they get colors.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib.colors import to_hex, to_rgb

from labkit.course.lang import ENGLISH, FOLDER, language, said, tr
from labkit.course.syllabus import LABS, Lab
from labkit.learner.figures.drawing import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    show_svg,
)

# {a lab's module: (color, name of its part, description of the part)}
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
# labs without a part of the decoder are only in the legend
LEGEND = {"tokenizer": said("tokenizer"), "serving": said("serving"),
          "posttraining": said("post-training"), "hybrid": said("after Qwen3")}  # fmt: skip
PARTS = {
    lab.module: DRAWN.get(lab.module, (GREY, LEGEND.get(lab.module, lab.module), lab.title))
    for lab in LABS
}
STREAMS = ("query", "key", "value")  # wires of attention with a color of their own
LETTERS = {
    "B": said("texts"), "T": said("new tokens"), "N": "B·T", "S": said("cached + new"),
    "E": "hidden_size",
    "H": said("query heads"), "K": said("KV heads"), "D": "head_dim", "I": said("intermediate"),
    "X": said("experts"), "k": said("experts a token"), "V": said("vocabulary"),
}  # fmt: skip
FILE = Path(__file__).with_name("architecture.svg")
SVG = "http://www.w3.org/2000/svg"
WIDTH, MARGIN = 960, 24
ElementTree.register_namespace("", SVG)


def architecture(lit: str | None = None, config: Any = None) -> None:
    """Draw Qwen3 with the part of one lab lit (its module's name; None or "all": every part).

    With a config, the letters E, H, K, D, I, k and V become its numbers.

    Errors: a part that does not exist raises ValueError and lists those that do
    """
    show_svg(draw(lit, config), alt_text(lit))


def alt_text(lit: str | None = None) -> str:
    """Describe the figure for readers who cannot see it."""
    whole = tr(
        "Qwen3 from token ids to logits: embeddings, a stack of equal layers, a final norm and "
        "lm_head; the sampled token joins the text, or the loss trains the model. One layer is "
        "opened: norm, attention, addition; norm, SwiGLU or mixture of experts, addition."
    )
    if lit in (None, "all"):
        return whole
    part = tr(PARTS[lit][2])
    if lit not in DRAWN:
        about = tr("The map of Qwen3, to which this lab adds no part: {part}.", part=part)
    else:
        about = tr("The map of Qwen3 with this lab's part lit: {part}.", part=part)
    return f"{about} {whole}"


def words() -> list[str]:
    """The texts of the drawing that are translated"""
    return [text.text for text in ElementTree.parse(FILE).iter(f"{{{SVG}}}text")
            if text.get("class") in ("note", "label")]  # fmt: skip


def draw(lit: str | None = None, config: Any = None) -> str:
    """Return the figure as SVG, see `architecture` for arguments and errors."""
    if lit not in (None, "all", *PARTS):
        raise ValueError(f"there is no part {lit!r}; the parts are {', '.join(PARTS)}, all")
    lab = None if lit == "all" else lit
    shown = lab if lab in DRAWN else None
    root = ElementTree.parse(FILE).getroot()
    for group in root.iter(f"{{{SVG}}}g"):
        names = group.get("data-parts", "").split()
        is_wire = group.get("class") == "wire"
        group.set("style", style(names, shown, is_wire))
    for text in root.iter(f"{{{SVG}}}text"):
        if text.get("class") == "shape":
            text.text = f"({sizes(text.text.strip('()'), config)})"
        elif text.get("class") in ("note", "label"):
            write_lines(text, label_of(text.text, config))
        elif text.get("id") == "layers" and config is not None:
            text.text = f"× {config.num_hidden_layers}"
    add_legend(root, lab, shown)
    add_font(root)
    return ElementTree.tostring(root, encoding="unicode")


def style(names: list[str], lit: str | None, is_wire: bool = False) -> str:
    """Return the CSS of a group: its part's color if lit (that of the first), else grey."""
    stream = next((name for name in names if name in STREAMS), None)
    parts = ["gqa"] if stream else [name for name in names if name in DRAWN]
    if lit is None:
        color = PARTS[parts[0]][0] if parts else None
    else:
        color = PARTS[lit][0] if lit in parts else None
    if stream and lit in (None, "gqa"):
        color = COLOURS[stream]
    elif is_wire and lit is None:
        color = "#8C8C8C"
    ink = "black" if lit is None or color else "#767676"
    if color is None:
        return f"--ink: {ink}"
    fill = tint(color, 0.86 if color == GREY else 0.72)
    return f"--edge: {color}; --fill: {fill}; --line: 2.4; --ink: {ink}"


def tint(color: str, white: float) -> str:
    return to_hex([part + (1 - part) * white for part in to_rgb(color)])


def sizes(shape: str, config: Any) -> str:
    """Replace the letters of a shape such as "B, T, E" by the config's numbers."""
    if config is None:
        return shape
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    numbers = {
        "E": config.hidden_size,
        "H": heads,
        "K": kv_heads,
        "D": config.head_dim,
        "I": config.intermediate_size,
        "V": config.vocab_size,
        "k": config.num_experts_per_tok if config.num_experts else "k",
        "H·D": heads * config.head_dim,
        "K·D": kv_heads * config.head_dim,
    }
    return ", ".join(str(numbers.get(part, part)) for part in shape.split(", "))


def label_of(text: str, config: Any) -> str:
    if text == "sparse: k of X" and config is not None and config.num_experts:
        k, count = config.num_experts_per_tok, config.num_experts
        return tr("sparse: {k} of {count}", k=k, count=count)
    return tr(text)


def write_lines(text: ElementTree.Element, lines: str) -> None:
    first, *rest = lines.split("\n")
    text.text = first
    for line in rest:
        span = ElementTree.SubElement(text, "tspan", x=text.get("x"), dy="1.2em")
        span.text = line


def add_legend(root: ElementTree.Element, lab: str | None, lit: str | None) -> None:
    """Write the labs along the top and the letters along the bottom."""

    def write(group: ElementTree.Element, words: str, x: float, y: float, size: float) -> None:
        place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "font-size": f"{size:.1f}"}
        ElementTree.SubElement(group, "text", place).text = words

    columns = -(-len(LABS) // 2)  # in two rows
    step = (WIDTH - 2 * MARGIN) / columns
    for place, each in enumerate(LABS):
        row, column = divmod(place, columns)
        x, y, module = MARGIN + column * step, 8 + 24 * row, each.module
        group = ElementTree.SubElement(root, "g", style=style([module], lit))
        ElementTree.SubElement(
            group, "rect", x=f"{x:.1f}", y=f"{y}", width="14", height="14", rx="3"
        )
        weight = "bold" if lab == module and language() == ENGLISH else "normal"
        label = {"text-anchor": "start", "font-weight": weight}
        write(
            ElementTree.SubElement(group, "g", label),
            legend_label(each),
            x + 20,
            y + 11.5,
            12.5,
        )
    letters = ElementTree.SubElement(root, "g")
    meanings = [f"{letter}  {tr(meaning)}" for letter, meaning in LETTERS.items()]
    for y, row in ((620, meanings[:6]), (636, meanings[6:])):
        write(letters, ("\N{NO-BREAK SPACE}" * 5).join(row), WIDTH / 2, y, 11)


def add_font(root: ElementTree.Element) -> None:
    """Embed the font of the language: an image cannot load other files."""
    for path in (FOLDER / language()).glob("*.ttf"):
        data = base64.b64encode(path.read_bytes()).decode("ascii")
        source = f"url(data:font/ttf;base64,{data})"
        rule = f'@font-face {{ font-family: "{path.stem}"; src: {source} }}'
        root.find(f"{{{SVG}}}style").text += rule
        root.set("font-family", f"{path.stem}, DejaVu Sans, sans-serif")


def legend_label(lab: Lab) -> str:
    return f"{lab.number} {tr(PARTS[lab.module][1])}"
