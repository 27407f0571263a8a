"""The wider family: which choices well-known language models made, as a table to explore.

    family()                                   all of it, by year
    family(attention="GQA", sort="-width")     some of it, the widest first
    family(layers=lambda n: n > 90)            whatever a function says yes to
    [model.width for model in family()]        its rows, for a plot of your own

Of a family of sizes mostly the largest is listed. An empty field is one that its source does
not state.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from operator import attrgetter


@dataclass(frozen=True)
class Model:
    """One model. `placement` says where the norms of a layer stand:

    post      behind each residual sum
    pre       before each sublayer
    sandwich  before and behind each sublayer, within the residual branch
    output    behind each sublayer only, within the residual branch
    parallel  before, with attention and feed-forward side by side on one input
    """

    name: str
    year: int
    billions: float  # parameters, as published
    active: float  # of them for one token, in billions
    norm: str
    placement: str
    position: str
    activation: str
    attention: str  # MHA, MQA, GQA or MLA
    window: str  # share of the layers that see only the last few tokens
    layers: int
    width: int  # hidden_size
    heads: int
    kv_heads: int | None  # None where the cache holds latents
    experts: str  # used of all, without those that are always used
    extra: str
    source: str  # an arXiv number, or an address

    @property
    def address(self) -> str:
        """Where to look it up."""
        return self.source if "://" in self.source else f"https://arxiv.org/abs/{self.source}"


LN, RMS, HUB = "LayerNorm", "RMSNorm", "https://huggingface.co/"
QWEN3 = (RMS, "pre", "RoPE", "SwiGLU", "GQA", "")
# fmt: off
MODELS = [Model(*row) for row in (
    ("Transformer base", 2017, 0.065, 0.065, LN, "post", "sinusoidal", "ReLU", "MHA", "",
     6, 512, 8, 8, "", "encoder and decoder", "1706.03762"),
    ("GPT-2 XL", 2019, 1.5, 1.5, LN, "pre", "learned", "GELU", "MHA", "",
     48, 1600, 25, 25, "", "", HUB + "openai-community/gpt2-xl"),
    ("T5-11B", 2019, 11, 11, RMS, "pre", "relative bias", "ReLU", "MHA", "",
     24, 1024, 128, 128, "", "encoder and decoder", "1910.10683"),
    ("GPT-3", 2020, 175, 175, LN, "pre", "learned", "GELU", "MHA", "1 of 2",
     96, 12288, 96, 96, "", "", "2005.14165"),
    ("GPT-J", 2021, 6, 6, LN, "parallel", "RoPE", "GELU", "MHA", "",
     28, 4096, 16, 16, "", "", HUB + "EleutherAI/gpt-j-6b"),
    ("Gopher", 2021, 280, 280, RMS, "pre", "Transformer-XL", "", "MHA", "",
     80, 16384, 128, 128, "", "", "2112.11446"),
    ("GPT-NeoX-20B", 2022, 20, 20, LN, "parallel", "RoPE", "GELU", "MHA", "",
     44, 6144, 64, 64, "", "", "2204.06745"),
    ("PaLM", 2022, 540, 540, LN, "parallel", "RoPE", "SwiGLU", "MQA", "",
     118, 18432, 48, 1, "", "", "2204.02311"),
    ("OPT-175B", 2022, 175, 175, LN, "pre", "learned", "ReLU", "MHA", "",
     96, 12288, 96, 96, "", "", "2205.01068"),
    ("GLM-130B", 2022, 130, 130, LN, "post", "RoPE", "GEGLU", "MHA", "",
     70, 12288, 96, 96, "", "DeepNorm", "2210.02414"),
    ("BLOOM", 2022, 176, 176, LN, "pre", "ALiBi", "GELU", "MHA", "",
     70, 14336, 112, 112, "", "norm behind the embedding", "2211.05100"),
    ("LLaMA-65B", 2023, 65.2, 65.2, RMS, "pre", "RoPE", "SwiGLU", "MHA", "",
     80, 8192, 64, 64, "", "", "2302.13971"),
    ("StarCoder", 2023, 15.5, 15.5, LN, "pre", "learned", "GELU", "MQA", "",
     40, 6144, 48, 1, "", "", "2305.06161"),
    ("Llama-2-70B", 2023, 70, 70, RMS, "pre", "RoPE", "SwiGLU", "GQA", "",
     80, 8192, 64, 8, "", "", "2307.09288"),
    ("Mistral-7B", 2023, 7.3, 7.3, RMS, "pre", "RoPE", "SwiGLU", "GQA", "all",
     32, 4096, 32, 8, "", "", "2310.06825"),
    ("Falcon-40B", 2023, 40, 40, LN, "parallel", "RoPE", "GELU", "GQA", "",
     60, 8192, 128, 8, "", "", "2311.16867"),
    ("Mixtral-8x7B", 2024, 47, 13, RMS, "pre", "RoPE", "SwiGLU", "GQA", "",
     32, 4096, 32, 8, "2 of 8", "", "2401.04088"),
    ("Gemma-7B", 2024, 8.5, 8.5, RMS, "pre", "RoPE", "GEGLU", "MHA", "",
     28, 3072, 16, 16, "", "", "2403.08295"),
    ("DeepSeek-V2", 2024, 236, 21, RMS, "pre", "RoPE", "SwiGLU", "MLA", "",
     60, 5120, 128, None, "6 of 160", "2 shared experts", "2405.04434"),
    ("GLM-4-9B", 2024, 9, 9, RMS, "pre", "RoPE", "SwiGLU", "GQA", "",
     40, 4096, 32, 2, "", "bias on q, k, v", "2406.12793"),
    ("Qwen2-72B", 2024, 72.7, 72.7, RMS, "pre", "RoPE", "SwiGLU", "GQA", "",
     80, 8192, 64, 8, "", "bias on q, k, v", "2407.10671"),
    ("Llama-3.1-405B", 2024, 405, 405, RMS, "pre", "RoPE", "SwiGLU", "GQA", "",
     126, 16384, 128, 8, "", "", "2407.21783"),
    ("Gemma-2-27B", 2024, 27.2, 27.2, RMS, "sandwich", "RoPE", "GEGLU", "GQA", "1 of 2",
     46, 4608, 32, 16, "", "capped logits", "2408.00118"),
    ("DeepSeek-V3", 2024, 671, 37, RMS, "pre", "RoPE", "SwiGLU", "MLA", "",
     61, 7168, 128, None, "8 of 256", "1 shared expert", "2412.19437"),
    ("OLMo-2-7B", 2025, 7, 7, RMS, "output", "RoPE", "SwiGLU", "MHA", "",
     32, 4096, 32, 32, "", "QK-Norm", "2501.00656"),
    ("Gemma-3-27B", 2025, 27, 27, RMS, "sandwich", "RoPE", "GEGLU", "GQA", "5 of 6",
     62, 5376, 32, 16, "", "QK-Norm", "2503.19786"),
    ("Qwen3-0.6B", 2025, 0.6, 0.6, *QWEN3, 28, 1024, 16, 8, "", "QK-Norm", "2505.09388"),
    ("Qwen3-1.7B", 2025, 1.7, 1.7, *QWEN3, 28, 2048, 16, 8, "", "QK-Norm", "2505.09388"),
    ("Qwen3-4B", 2025, 4.0, 4.0, *QWEN3, 36, 2560, 32, 8, "", "QK-Norm", "2505.09388"),
    ("Qwen3-8B", 2025, 8.2, 8.2, *QWEN3, 36, 4096, 32, 8, "", "QK-Norm", "2505.09388"),
    ("Qwen3-14B", 2025, 14.8, 14.8, *QWEN3, 40, 5120, 40, 8, "", "QK-Norm", "2505.09388"),
    ("Qwen3-32B", 2025, 32.8, 32.8, *QWEN3, 64, 5120, 64, 8, "", "QK-Norm", "2505.09388"),
    ("Qwen3-30B-A3B", 2025, 30.5, 3.3, *QWEN3, 48, 2048, 32, 4, "8 of 128", "QK-Norm",
     "2505.09388"),
    ("Qwen3-235B-A22B", 2025, 235, 22, *QWEN3, 94, 4096, 64, 4, "8 of 128", "QK-Norm",
     "2505.09388"),
    ("gpt-oss-120b", 2025, 117, 5.1, RMS, "pre", "RoPE", "SwiGLU", "GQA", "1 of 2",
     36, 2880, 64, 8, "4 of 128", "attention sinks", "2508.10925"),
)]
# fmt: on

COLUMNS = [field.name for field in fields(Model)]


@dataclass(frozen=True)
class Table:
    """Some models: a table in a notebook, lines of text elsewhere, a list to loop over."""

    models: list[Model]

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)

    def __repr__(self) -> str:
        rows = [COLUMNS, *([_text(value) for value in astuple(m)] for m in self.models)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{column}</th>" for column in COLUMNS)
        body = "".join(f"<tr>{_cells(model)}</tr>" for model in self.models)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'<div style="overflow-x: auto">{table}</div>'


def family(sort: str = "year", **wanted: object) -> Table:
    """The models whose columns are as `wanted`, sorted by one of them.

    sort     a column; "-width" puts the largest first
    wanted   column=value, or column=function of the value

    Errors: a column that does not exist: ValueError lists those that do
    """
    column = sort.removeprefix("-")
    for name in (column, *wanted):
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}")
    chosen = [m for m in MODELS if all(_fits(getattr(m, n), w) for n, w in wanted.items())]
    known = [m for m in chosen if getattr(m, column) is not None]
    known.sort(key=attrgetter(column), reverse=sort.startswith("-"))
    return Table(known + [m for m in chosen if getattr(m, column) is None])


def _fits(value: object, wanted: object | Callable[[object], bool]) -> bool:
    if callable(wanted):
        return value is not None and bool(wanted(value))
    return value == wanted


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _cells(model: Model) -> str:
    texts = [f"<td>{html.escape(_text(value))}</td>" for value in astuple(model)[:-1]]
    address, shown = html.escape(model.address), html.escape(model.source.removeprefix(HUB))
    link = f'<td><a href="{address}" rel="noopener" target="_blank">{shown}</a></td>'
    return "".join([*texts, link])
