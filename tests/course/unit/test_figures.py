"""The figures: the map of the model, captions, and labels in another language."""

import re
from itertools import combinations, zip_longest

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from labkit.author.owned_cells import notebook_path, read_notebook
from labkit.author.translation.labels import labels_of
from labkit.core.syllabus import CAPTIONS, LABS, NOTEBOOKS, Lab
from labkit.lang import ENGLISH, speaking
from labkit.learner.figures import architecture, drawing
from labkit.learner.figures.architecture import BOXES, DRAWN, PARTS, alt_text, draw
from labkit.learner.figures.drawing import BLUE, GREY, ORANGE
from labkit.learner.figures.labels import families, label, translate
from tinyllm.config import PRESETS


def are_apart(first, second, slack=1.0):
    return (
        first.x1 - slack <= second.x0 or second.x1 - slack <= first.x0
        or first.y1 - slack <= second.y0 or second.y1 - slack <= first.y0
    )  # fmt: skip


def check_legible(figure):
    """No text overlaps another, leaves the figure or crosses the edge of a box."""
    figure.canvas.draw()
    plt.close(figure)
    (axis,) = figure.axes
    extents = [(text.get_text(), text.get_window_extent()) for text in axis.texts]
    extents = [(text, extent) for text, extent in extents if text]
    for (text, extent), (neighbor, other) in combinations(extents, 2):
        assert are_apart(extent, other), f"{text!r} and {neighbor!r} overlap"
    for text, extent in extents:
        inside = extent.x0 >= 0 and extent.x1 <= figure.bbox.x1
        assert inside, f"{text!r} leaves the figure"
    boxes = [p for p in axis.patches if isinstance(p, FancyBboxPatch) and p.get_zorder() == 3]
    for box in (p.get_window_extent() for p in boxes):
        for text, extent in extents:
            inside = box.x0 <= extent.x0 and extent.x1 <= box.x1
            assert are_apart(box, extent) or inside, f"{text!r} crosses the edge of a box"


def edge_colors(figure):
    return {to_hex(patch.get_edgecolor()) for patch in figure.axes[0].patches}


def test_every_map_is_legible():
    assert len(PRESETS) <= len(PARTS)  # each part and each model's numbers in some map
    for part, config in zip_longest((None, *PARTS), PRESETS.values()):
        check_legible(draw(part, config))


def test_the_map_ticks_and_colors_what_has_passed():
    passed = {"rmsnorm", "gqa"}
    figure = draw("rope", None, passed)
    check_legible(figure)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts.count("\N{CHECK MARK}") == 2
    colors = edge_colors(figure)
    assert to_hex(ORANGE) in colors and to_hex(BLUE) not in colors  # paler than what is lit
    assert len(colors - edge_colors(draw("rope"))) == 2
    plt.close("all")
    assert alt_text("rope", passed).endswith("Ticked, as passed: 01 norms, 03 attention.")


@pytest.mark.parametrize("count", [1, 4])
def test_a_lab_that_adds_no_part_is_in_the_legend(count, monkeypatch):
    labs = tuple(Lab(f"{9 + i}", f"quantisation{i}", "Fewer bits") for i in range(count))
    monkeypatch.setattr(architecture, "LABS", LABS + labs)
    parts = PARTS | {lab.module: (GREY, lab.module, lab.title) for lab in labs}
    monkeypatch.setattr(architecture, "PARTS", parts)
    figure = draw("quantisation0")
    check_legible(figure)
    assert "9 quantisation0" in [text.get_text() for text in figure.axes[0].texts]
    assert "adds no part: Fewer bits" in alt_text("quantisation0")


def test_every_part_is_on_the_map_and_in_its_text():
    labels = {label.replace("\n", "") for _, label, *_ in BOXES}
    parts = " ".join(parts for parts, *_ in BOXES).split()
    for part in DRAWN:
        assert part in parts and DRAWN[part][2] in alt_text(part)
    names = {"causal_mask", "scaled_dot_product_attention", "repeat_kv", "causal_lm_loss"}
    names |= {"rope_cos_sin", "sample_next_token", "train_step", "learning_rate"}
    assert names <= labels
    with pytest.raises(ValueError, match="no part 'rms'; the parts are rmsnorm"):
        draw("rms")


# captions


def test_every_caption_has_its_figure_and_every_named_figure_its_caption():
    used = [
        key
        for lab in NOTEBOOKS
        for cell in read_notebook(notebook_path(lab)).cells
        for key in re.findall(r'show\(\w+, "(\d\.[\w-]+)"\)', cell.source)
    ]
    assert sorted(used) == sorted(CAPTIONS)


def test_a_caption_is_shown_below_its_figure(monkeypatch):
    shown = []
    monkeypatch.setattr(drawing, "_in_ipython", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    for text in ("1.circle", "put together"):
        drawing.show(plt.figure(), text)
    named, plain = (data["text/html"] for data in shown)
    assert named.count(CAPTIONS["1.circle"]) == 2 and "<figcaption>" in named
    assert plain.count("put together") == 1
    with pytest.raises(KeyError, match="add it"):
        drawing.show(plt.figure(), "1.nowhere")


# labels in Chinese


def test_labels_and_ticks_are_in_the_language_in_use():
    figure, axis = plt.subplots()
    axis.bar(["yours", "RMSNorm"], [1, 2])
    axis.set(xlabel="learning rate", title="after layer 3")
    with speaking("zh"):
        translate(figure)
        figure.draw_without_rendering()
        ticks = [tick.get_text() for tick in axis.get_xticklabels()]
        map_texts = [text.get_text() for text in architecture.draw("gqa").axes[0].texts]
        assert label("random: 12 rows") == "随机：12 行"
    assert axis.get_xlabel() == "学习率" and axis.get_title() == "第 3 层之后"
    assert ticks == ["你的", "RMSNorm"]
    assert "03 注意力" in map_texts and "q_proj" in map_texts
    with speaking(ENGLISH):
        assert label("learning rate") == "learning rate" and families() == ["sans-serif"]
    plt.close("all")


def test_code_formulas_and_numbers_are_not_translated():
    wrapped_name = "scaled_dot_\nproduct_\nattention"
    for code in ("RMSNorm", "q_norm", "float32", "x", "$D^{-0.5}$", "12.5"):
        assert labels_of([f"axis.set(title={code!r})"]) == []
    with speaking("zh"):
        for code in ("RMSNorm", "q_norm", "float32", "x", "$D^{-0.5}$", "12.5", wrapped_name):
            assert label(code) == code


def test_the_labels_of_a_cell_are_found():
    cell = """
for name, dash in (("all of it", "--"), ("x", "-")):
    axis.plot(xs, dash, label=name, color=COLOURS["a colour"])
    print("not in the figure")
axis.set(xlabel=f"layer {i}, {'with' if on else 'no'} mask", aspect="equal")
show(figure, "1.why")
"""
    assert labels_of([cell]) == ["all of it", "layer {0}, with mask", "layer {0}, no mask"]
