"""What stands below the figures of the notebooks."""

import re

import matplotlib.pyplot as plt
import pytest

from labkit.author.owned_cells import notebook_path, read_notebook
from labkit.core.syllabus import NOTEBOOKS
from labkit.learner.figures import drawing
from labkit.learner.figures.captions import CAPTIONS


def test_every_caption_has_its_figure_and_every_named_figure_its_caption():
    used = [
        key
        for lab in NOTEBOOKS
        for cell in read_notebook(notebook_path(lab)).cells
        for key in re.findall(r'show\(\w+, "(\d\.[\w-]+)"\)', cell.source)
    ]
    assert sorted(used) == sorted(CAPTIONS)


def test_a_figure_without_its_caption_says_where_to_add_it():
    with pytest.raises(KeyError, match="add it"):
        drawing.show(plt.figure(), "1.nowhere")


def test_a_caption_is_shown_below_its_figure(monkeypatch):
    shown = []
    monkeypatch.setattr(drawing, "_in_ipython", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    for text in ("1.circle", "put together"):
        drawing.show(plt.figure(), text)
    named, plain = (data["text/html"] for data in shown)
    assert named.count(CAPTIONS["1.circle"]) == 2 and "<figcaption>" in named
    assert plain.count("put together") == 1
