"""Pictures in written answers: a photo of handwriting, a screenshot, pasted into the notebook.

Pictures that a page can show safely are kept: of a kind that their bytes prove, few and small.
None is decoded here, and a browser runs nothing that is in them. SVG, which is a program, is
left out."""

from __future__ import annotations

import base64
import io
import re
import warnings
from typing import Any
from urllib.parse import unquote

from PIL import Image

KINDS = ("PNG", "JPEG", "GIF", "WEBP")
MOST = 12  # in one submission
MAX_TRIED = 60  # a text may refer to a large one that is none many times
MAX_BYTES, MAX_TOTAL = 6 << 20, 12 << 20  # of one, of all in one submission
MAX_PIXELS = 50_000_000
NOT_SHOWN = "a picture that cannot be shown"
MAX_TEXT = int(1.4 * MAX_TOTAL)  # characters that are searched: all pictures, in base64
MAX_NAME = 1_000  # characters of an attachment's name
# As Jupyter and Colab write a picture; brackets in its name come in pairs. An address is
# matched as a whole or not at all, so that a long one costs time and memory in proportion.
PLAIN = r"[^\s()\[\]<>\"']*"
REFERENCE = re.compile(
    r"(?:!\[(?P<alt>[^\[\]\n]{0,300})\]\(|<img\b[^<>]{0,300}?\bsrc=[\"'])"
    rf"(?=(?P<address>(?:attachment|data):{PLAIN}(?:\({PLAIN}\){PLAIN}){{0,5}}))(?P=address)"
    r"(?(alt)[^()\n]{0,300}\)|[\"'][^<>]{0,300}>)",
    re.IGNORECASE,
)


class NotShown(ValueError):
    """A picture that is left out; the message says why."""


class Album:
    """The pictures of one submission, within limits of number and size."""

    def __init__(self) -> None:
        self.count = self.tried = self.size = 0

    def collect(self, text: str, attachments: Any) -> tuple[str, dict[str, dict[str, str]]]:
        """Return a written answer with its pictures, also those in the text, as attachments of
        a Markdown cell; the reason replaces a picture that cannot be shown."""
        pictures: dict[str, dict[str, str]] = {}

        def attach(found: re.Match[str]) -> str:
            try:
                self.tried += 1
                if self.tried > MAX_TRIED:
                    raise NotShown(f"{MAX_TRIED} is the most that are looked at")
                data = content_of(found["address"], attachments)
                kind = self.kind_of(data)
            except NotShown as error:
                return f"({NOT_SHOWN}: {error})"
            name = f"picture-{self.count}.{kind}"
            pictures[name] = {f"image/{kind}": base64.b64encode(data).decode()}
            return f"![{found['alt'] or ''}](attachment:{name})"

        return REFERENCE.sub(attach, text[:MAX_TEXT]) + text[MAX_TEXT:], pictures

    def kind_of(self, data: bytes) -> str:
        """png, jpeg, gif or webp, if there is still room for it."""
        if self.count == MOST or self.size + len(data) > MAX_TOTAL:
            total = f"{MOST} and {MAX_TOTAL >> 20} MB"
            raise NotShown(f"{total} are the most in one submission")
        try:
            with (
                warnings.catch_warnings(),
                Image.open(io.BytesIO(data), formats=KINDS) as image,
            ):
                warnings.simplefilter("ignore")
                kind, pixels = image.format, image.width * image.height
                image.verify()
        except Exception as error:  # Pillow raises anything
            raise NotShown("it is no whole PNG, JPEG, GIF or WebP") from error
        if pixels > MAX_PIXELS:
            raise NotShown(f"it has {pixels:,} pixels; {MAX_PIXELS:,} is the most")
        self.count, self.size = self.count + 1, self.size + len(data)
        return "jpeg" if kind == "MPO" else str(kind).lower()  # a JPEG with more after it


def content_of(address: str, attachments: Any) -> bytes:
    """The bytes of a picture in the text, or in the cell's attachments."""
    scheme, _, rest = address.partition(":")
    if scheme.lower() == "data":
        content: Any = rest.partition(",")[2]
    else:
        bundles = attachments if isinstance(attachments, dict) else {}
        bundle = bundles.get(unquote(rest[:MAX_NAME]))
        if not bundle or not isinstance(bundle, dict):
            raise NotShown("the notebook does not hold it")
        content = next(iter(bundle.values()))
    text = "".join(map(str, content)) if isinstance(content, list) else str(content)
    if len(text) > 1.4 * MAX_BYTES:
        raise NotShown(f"it has {len(text) * 3 // 4:,} bytes; {MAX_BYTES:,} is the most")
    try:
        return base64.b64decode(unquote(text))
    except ValueError as error:
        raise NotShown("it is not in base64") from error
