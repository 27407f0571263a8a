"""What stands in a notebook's place of the page where nobody serves it: a saved notebook, an
exported one, the web edition. Plain HTML, from what the learner's own code computed."""

from __future__ import annotations

import base64
import html

import torch
from torch import Tensor

from labkit.lang import tr
from labkit.look.page import Shown
from labkit.model.tokenizer import Tokenizer

MOST = 5  # next tokens
MARKS = {"<|im_start|>": "⟨", "<|im_end|>": "⟩"}
SHADE = "213, 94, 0"  # as on the page: where the model is unsure


def still(shown: Shown) -> str:
    """The text, shaded where the code was unsure how to go on, and what it would say next; or
    what keeps it from running."""
    computed = shown.computed or {}
    if problem := computed.get("problem"):
        said = tr("{name} does not run in this code yet: {problem}.",
                  name=shown.name, problem=problem)  # fmt: skip
        return f"<p>{html.escape(said)}</p>"
    tokenizer, ids = Tokenizer(shown.folder), computed["ids"]
    probs = _logits(computed["logits"], len(ids)).softmax(dim=-1)  # (T, V)
    sure = probs.max(dim=-1).values  # (T,)
    text = "".join(map(_token, _texts(tokenizer, ids), sure.tolist()))
    shares, tokens = probs[-1].topk(MOST)
    rows = zip(_texts(tokenizer, tokens.tolist()), shares.tolist(), strict=True)
    cells = "".join(
        f"<tr><td><code>{html.escape(token.strip())}</code></td><td>{share:.1%}</td></tr>"
        for token, share in rows
    )
    reads = tr(
        "{name} in this code reads a text; the stronger the shade, the less sure it is how to "
        "go on:",
        name=shown.name,
    )
    heads = "".join(f"<th>{each}</th>" for each in (tr("it would say next"), tr("with")))
    return (
        f'<p>{reads}</p><p style="white-space:pre-wrap">{text}</p>'
        f"<table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{cells}</tbody></table>"
    )


def _logits(packed: str, tokens: int) -> Tensor:
    """What export.base64_of packed, as (T, V)."""
    numbers = torch.frombuffer(bytearray(base64.b64decode(packed)), dtype=torch.float32)
    return numbers.view(tokens, -1)


def _texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    texts = (tokenizer.decode([each], skip_special_tokens=False) for each in ids)
    return [MARKS.get(text, text) for text in texts]


def _token(text: str, sure: float) -> str:
    shade = f"background-color:rgba({SHADE}, {0.6 * (1 - sure):.2f})"
    return f'<span style="{shade}">{html.escape(text)}</span>'
