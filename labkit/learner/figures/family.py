"""The wider family: the choices of well-known language models as a table.

    table(MODELS)                                       all of them, by year
    table(m for m in MODELS if m.attention == "MLA")    some of them
    compare("Qwen3-0.6B", "Llama-3.2-1B")               side by side, with what can be computed

The rows are those of family.csv, mostly the largest model of each family. A `?` is a field
that its source does not state (a computed number is then nan); an empty field is something
that the model does not have.

A csv file and not the configs of the hub: many of these models (GPT-3, PaLM) were never
published, and a reader can check a row against its paper.
"""

from __future__ import annotations

import csv
import html
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path

from rich.cells import cell_len

from labkit.course.lang import said, tr
from labkit.course.lang.layout import pad

UNKNOWN = "?"
HUB = "https://huggingface.co/"


@dataclass(frozen=True)
class Model:
    """One model. `placement` says where the norms of a layer are:

    post      after each residual sum
    pre       before each sublayer
    sandwich  before and after each sublayer, within the residual branch
    output    after each sublayer only, within the residual branch
    parallel  before, with attention and feed-forward side by side on one input
    """

    name: str
    year: int
    category: str  # causal, prefix (sees all of a prompt both ways) or encoder-decoder
    billions: float  # parameters, as published
    active: float  # parameters that one token uses, as published; by default all
    norm: str
    placement: str
    position: str
    activation: str
    window: str  # share of the layers that see only the last few tokens
    state: str  # layers with a state; their key heads, value heads, features of each
    layers: int  # layers of the encoder and of the decoder each, if there are two
    width: int  # hidden_size
    heads: int
    kv_heads: int  # None if the cache holds latents
    head_dim: int  # width / heads by default
    inner: int  # intermediate_size of a dense feed-forward layer, if there is one
    vocab: int
    tied: str  # yes: input and output share one table
    experts: str  # "used of all + always used"
    expert_inner: int
    dense_layers: int  # the first ones, without experts
    kv_latent: int
    rope_dim: int  # dimensions of a key in addition to its latent
    extra: str
    source: str  # an arXiv number, or an address

    @property
    def address(self) -> str:
        return self.source if "://" in self.source else f"https://arxiv.org/abs/{self.source}"

    @property
    def attention(self) -> str:
        """MHA, MQA, GQA or MLA: how many queries share a cached key and value."""
        kinds = {None: "MLA", 1: "MQA", self.heads: "MHA", UNKNOWN: UNKNOWN}
        return kinds.get(self.kv_heads, "GQA")

    @property
    def active_share(self) -> float:
        """The share of the parameters that works on one token, from 0 to 1"""
        return self.active / self.billions

    @property
    def kv_bytes(self) -> float:
        """Bytes that one more token adds to the cache, in bfloat16, until a window is full"""
        if self.kv_latent:
            return 2 * self.layers * (self.kv_latent + self.rope_dim)
        if self.kv_heads == UNKNOWN:
            return math.nan
        stateful = int(self.state.split()[0]) if self.state else 0  # lab 12: no cache
        return 2 * (self.layers - stateful) * 2 * self.kv_heads * self.head_dim


def _load() -> list[Model]:
    with (Path(__file__).parent / "family.csv").open(encoding="utf-8", newline="") as file:
        models = [_model(row) for row in csv.DictReader(file, restval="")]
    return sorted(models, key=attrgetter("year"))


def _model(row: dict[str, str]) -> Model:
    row["active"] = row["active"] or row["billions"]
    row["head_dim"] = row["head_dim"] or str(int(row["width"]) // int(row["heads"]))
    kinds = {"str": str, "int": int, "float": float}
    values = {}
    for field in fields(Model):
        text = row[field.name]
        known = text != UNKNOWN and (text or field.type == "str")
        values[field.name] = kinds[field.type](text) if known else text or None
    return Model(**values)


MODELS = _load()
# The columns of `table`
COLUMNS = [
    "name", "year", "category", "billions", "active", "norm", "placement", "position",
    "activation", "attention", "window", "state", "layers", "width", "heads", "kv_heads",
    "experts", "extra", "source",
]  # fmt: skip
CHOICES = (
    *(said("year"), said("category"), said("norm"), said("placement"), said("position")),
    *(said("activation"), said("attention"), said("window"), said("state"), said("layers")),
    *(said("width"), said("heads"), said("kv_heads")),
)
BESIDE = {  # the rows of `compare`: label, value
    **{name: attrgetter(name) for name in CHOICES},
    "head_dim": attrgetter("head_dim"),
    said("experts"): attrgetter("experts"),
    said("width of one"): attrgetter("expert_inner"),
    said("dense layers"): attrgetter("dense_layers"),
    said("feed-forward"): attrgetter("inner"),
    said("vocabulary"): attrgetter("vocab"),
    said("tied"): attrgetter("tied"),
    said("extra"): attrgetter("extra"),
    said("published"): lambda m: _shown(m.billions, 1, "B"),
    said("active share"): lambda m: _shown(m.active_share, 100, "%"),
    said("KV a token"): lambda m: _shown(m.kv_bytes, 1 / 1024, "KiB"),
    said("source"): attrgetter("source"),
}


@dataclass(frozen=True)
class Table:
    """Rows of text, titles first: rendered as a table in a notebook, as lines elsewhere."""

    rows: list[list[str]]

    def __repr__(self) -> str:
        rows = [[text.removeprefix(HUB) for text in row] for row in self.rows]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(pad, row, widths)).rstrip() for row in rows)

    def _repr_html_(self) -> str:
        head, *rows = self.rows
        head = "".join(f"<th>{html.escape(text)}</th>" for text in head)
        body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in rows)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'<div style="overflow-x: auto">{table}</div>'


def _html_cell(text: str) -> str:
    """Return the <td> of a text; a model's source becomes a link."""
    shown = html.escape(text.removeprefix(HUB))
    address = next((m.address for m in MODELS if m.source == text), None)
    return (
        f'<td><a href="{html.escape(address)}">{shown}</a></td>'
        if address
        else f"<td>{shown}</td>"
    )


def table(models: Iterable[Model]) -> Table:
    return Table([COLUMNS, *([_text(getattr(m, n)) for n in COLUMNS] for m in models)])


def compare(*names: str) -> Table:
    """Return models side by side: their choices, and numbers computed from their sizes.

    names    as in MODELS; case, spaces and dashes do not matter

    Errors: ValueError for an unknown name, with the nearest ones
    """
    models = [find_model(name) for name in names]
    rows = [[tr(word), *(_text(read(m)) for m in models)] for word, read in BESIDE.items()]
    return Table([["", *(m.name for m in models)], *(row for row in rows if any(row[1:]))])


def find_model(name: str) -> Model:
    """Find a model by its name. Errors: ValueError with the nearest names"""
    known = {_plain(model.name): model for model in MODELS}
    if _plain(name) in known:
        return known[_plain(name)]
    near = get_close_matches(_plain(name), known, cutoff=0.4)
    raise ValueError(
        tr(
            "there is no model {name!r} in the table of the family; the nearest: {near}",
            name=name,
            near=", ".join(known[plain].name for plain in near),
        )
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _shown(value: float, scale: float, unit: str) -> str:
    return UNKNOWN if math.isnan(value) else f"{value * scale:.4g} {unit}"
