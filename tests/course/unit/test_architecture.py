"""The figure of the whole model: every variant legible, every graded part on it."""

from itertools import combinations

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from labkit.core.syllabus import LABS, Lab
from labkit.learner.figures import architecture
from labkit.learner.figures.architecture import BOXES, DRAWN, PARTS, alt_text, draw
from labkit.learner.figures.drawing import BLUE, GREY, ORANGE
from tinyllm.config import PRESETS

DRAWINGS = [(part, None) for part in (None, *PARTS)] + [("moe", name) for name in PRESETS]


def apart(one, other, slack=1.0):
    return (
        one.x1 - slack <= other.x0 or other.x1 - slack <= one.x0
        or one.y1 - slack <= other.y0 or other.y1 - slack <= one.y0
    )  # fmt: skip


@pytest.mark.parametrize(("part", "name"), DRAWINGS)
def test_no_text_touches_another_or_leaves_its_box(part, name):
    is_legible(draw(part, PRESETS.get(name)))


def test_what_has_passed_is_ticked_coloured_and_said_and_pales_beside_what_is_lit():
    passed = {"rmsnorm", "gqa"}
    figure = draw("rope", None, passed)
    is_legible(figure)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts.count("\N{CHECK MARK}") == 2
    edges = {to_hex(patch.get_edgecolor()) for patch in figure.axes[0].patches}
    assert to_hex(ORANGE) in edges and to_hex(BLUE) not in edges
    blank = {to_hex(patch.get_edgecolor()) for patch in draw("rope").axes[0].patches}
    plt.close("all")
    assert len(edges - blank) == 2
    assert alt_text("rope", passed).endswith("Ticked, as passed: 01 norms, 03 attention.")


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_lab_that_is_no_part_of_the_decoder_stands_in_the_legend(count, monkeypatch):
    new = tuple(Lab(f"{9 + i}", f"quantisation{i}", "Fewer bits") for i in range(count))
    monkeypatch.setattr(architecture, "LABS", LABS + new)
    parts = PARTS | {lab.module: (GREY, lab.module, lab.title) for lab in new}
    monkeypatch.setattr(architecture, "PARTS", parts)
    figure = draw("quantisation0")
    is_legible(figure)
    assert "9 quantisation0" in [text.get_text() for text in figure.axes[0].texts]
    assert "adds no part: Fewer bits" in alt_text("quantisation0")


def is_legible(figure):
    figure.canvas.draw()
    plt.close(figure)
    (axis,) = figure.axes
    places = [(text.get_text(), text.get_window_extent()) for text in axis.texts]
    places = [(text, place) for text, place in places if text]
    for (text, one), (neighbour, other) in combinations(places, 2):
        assert apart(one, other), f"{text!r} and {neighbour!r} overlap"
    for text, place in places:
        assert place.x0 >= 0 and place.x1 <= figure.bbox.x1, f"{text!r} leaves the figure"
    boxes = [p for p in axis.patches if isinstance(p, FancyBboxPatch) and p.get_zorder() == 3]
    for box in (p.get_window_extent() for p in boxes):
        for text, place in places:
            inside = box.x0 <= place.x0 and place.x1 <= box.x1
            assert apart(box, place) or inside, f"{text!r} crosses the edge of a box"


def test_every_part_is_drawn_and_said():
    labels = {label.replace("\n", "") for _, label, *_ in BOXES}
    parts = " ".join(parts for parts, *_ in BOXES).split()
    for part in DRAWN:
        assert part in parts and DRAWN[part][2] in alt_text(part)
    named = {"causal_mask", "scaled_dot_product_attention", "repeat_kv", "causal_lm_loss"}
    assert (
        named | {"rope_cos_sin", "sample_next_token", "train_step", "learning_rate"} <= labels
    )


def test_an_unknown_part_is_refused_by_name():
    with pytest.raises(ValueError, match="no part 'rms'; the parts are rmsnorm"):
        draw("rms")
