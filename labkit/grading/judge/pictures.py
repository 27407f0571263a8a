"""Pictures in written answers: a photo of handwriting, a screenshot, pasted into the notebook.

A browser runs nothing that it shows as an <img>. So a picture is kept if its label is that of a
known kind, in plain base64, and small; nothing decodes it here. The price: a damaged picture
shows as a damaged one.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

KINDS = {f"image/{kind}": kind for kind in ("png", "jpeg", "gif", "webp")}
MOST, MAX_TOTAL = 12, 16 << 20  # pictures in one submission, and their characters in base64
NOT_SHOWN = "a picture that cannot be shown"
MAX_NAME = 1_000  # characters of an attachment's name
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
# As Jupyter and Colab write a picture; brackets in its name come in pairs. An address is
# matched as a whole or not at all, so that a long one costs time and memory in proportion.
PLAIN = r"[^\s()\[\]<>\"']*"
REFERENCE = re.compile(
    r"(?:!\[(?P<alt>[^\[\]\n]{0,300})\]\(|<img\b[^<>]{0,300}?\bsrc=[\"'])"
    rf"(?=(?P<address>(?:attachment|data):{PLAIN}(?:\({PLAIN}\){PLAIN}){{0,5}}))(?P=address)"
    r"(?(alt)[^()\n]{0,300}\)|[\"'][^<>]{0,300}>)",
    re.IGNORECASE,
)


class Album:
    """The pictures of one submission, within limits of number and size."""

    def __init__(self) -> None:
        self.count = self.size = 0

    def collect(self, text: str, attachments: Any) -> tuple[str, dict[str, dict[str, str]]]:
        """Return a written answer with its pictures, also those in the text, as attachments of
        a Markdown cell; the reason replaces a picture that cannot be shown."""
        pictures: dict[str, dict[str, str]] = {}
        refused: dict[str, str] = {}  # {address: why}

        def attach(found: re.Match[str]) -> str:
            address = found["address"]
            if address not in refused:
                kind, letters = content_of(address, attachments)
                if not (why := self.refusal(kind, letters)):
                    self.count, self.size = self.count + 1, self.size + len(letters)
                    name = f"picture-{self.count}.{KINDS[kind]}"
                    pictures[name] = {kind: letters}
                    return f"![{found['alt'] or ''}](attachment:{name})"
                refused[address] = why
            return f"({NOT_SHOWN}: {refused[address]})"

        return REFERENCE.sub(attach, text[:MAX_TOTAL]) + text[MAX_TOTAL:], pictures

    def refusal(self, kind: str, letters: str) -> str:
        """Return why a picture is left out; "" if it is not."""
        if self.count == MOST or self.size + len(letters) > MAX_TOTAL:
            return f"{MOST} and {MAX_TOTAL >> 20} MB are the most in one submission"
        is_plain = kind in KINDS and BASE64.fullmatch(letters)
        return "" if is_plain else "it is not a PNG, JPEG, GIF or WebP in this notebook"


def content_of(address: str, attachments: Any) -> tuple[str, str]:
    """Return the kind and the base64 of a picture in the text, or in the cell's attachments."""
    scheme, _, rest = address.partition(":")
    if scheme.lower() == "data":
        about, _, content = rest.partition(",")
        return about.partition(";")[0].lower(), unquote(content)
    bundles = attachments if isinstance(attachments, dict) else {}
    bundle = bundles.get(unquote(rest[:MAX_NAME]))
    if not isinstance(bundle, dict) or not bundle:
        return "", ""
    kind, content = next(iter(bundle.items()))
    text = "".join(map(str, content)) if isinstance(content, list) else str(content)
    return str(kind), "".join(text.split())
