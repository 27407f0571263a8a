"""The font of a language's figures: of an open font, the characters that its catalogs use.

    python -m labkit.author.translation.font zh NotoSansSC_400Regular.ttf

NotoSansSC-subset.ttf is made of Noto Sans SC Regular, with its licence, OFL.txt, beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

from labkit.course.lang import FOLDER

ALWAYS = "".join(map(chr, range(0x20, 0x7F))) + "，。：；！？（）“”‘’、《》…—·×"


def characters(language: str) -> str:
    """All that the catalogs hold, each once, and common punctuation."""
    texts = [path.read_text("utf-8") for path in (FOLDER / language).glob("*.po")]
    return "".join(sorted({*ALWAYS, *"".join(texts)} - {"\n"}))


def write_subset(language: str, source: Path) -> Path:
    font = TTFont(source)
    options = Options(hinting=False, layout_features=[], name_IDs=[0, 1, 2, 3, 4, 5, 6, 13, 14])
    subsetter = Subsetter(options)
    subsetter.populate(text=characters(language))
    subsetter.subset(font)
    written = FOLDER / language / f"{source.stem.partition('_')[0]}-subset.ttf"
    font.save(written)
    return written


if __name__ == "__main__":
    print(write_subset(sys.argv[1], Path(sys.argv[2])))
