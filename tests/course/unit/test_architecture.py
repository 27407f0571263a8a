"""The figure of the whole model: every variant legible, every graded part on it."""

from itertools import combinations

import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import FancyBboxPatch

from labkit.author.owned_cells import filled, notebook_path, read_notebook
from labkit.core.syllabus import LABS
from labkit.learner.figures.architecture import BOXES, PARTS, alt_text, draw
from tinyllm.config import PRESETS

DRAWINGS = [(part, None) for part in (None, *PARTS)] + [("moe", name) for name in PRESETS]


def apart(one, other, slack=1.0):
    return (
        one.x1 - slack <= other.x0 or other.x1 - slack <= one.x0
        or one.y1 - slack <= other.y0 or other.y1 - slack <= one.y0
    )  # fmt: skip


@pytest.mark.parametrize(("part", "name"), DRAWINGS)
def test_no_text_touches_another_or_leaves_its_box(part, name):
    figure = draw(part, PRESETS.get(name))
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


def test_every_lab_has_its_part_and_says_so():
    assert list(PARTS) == [lab.module for lab in LABS]
    labels = {label.replace("\n", "") for _, label, *_ in BOXES}
    parts = " ".join(parts for parts, *_ in BOXES).split()
    for part in PARTS:
        assert part in parts and PARTS[part][2] in alt_text(part)
    named = {"causal_mask", "scaled_dot_product_attention", "repeat_kv", "causal_lm_loss"}
    assert (
        named | {"rope_cos_sin", "sample_next_token", "train_step", "learning_rate"} <= labels
    )


def test_an_unknown_part_is_refused_by_name():
    with pytest.raises(ValueError, match="no part 'rms'; the parts are rmsnorm"):
        draw("rms")


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_the_build_puts_the_map_where_it_is_missing(lab):
    notebook = read_notebook(notebook_path(lab))
    notebook.cells = [cell for cell in notebook.cells if cell.id != "map"]
    ids = [cell.id for cell in filled(lab, notebook).cells]
    assert ids[ids.index("setup") + 1] == "map" and ids.count("map") == 1
    (cell,) = [cell for cell in notebook.cells if cell.id == "map"]
    assert f'architecture("{lab.module}")' in cell.source and not cell.metadata
