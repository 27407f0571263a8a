"""The figures: the map of the model, captions, and labels in another language."""

import ast
import re
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest

from labkit.author.owned_cells import notebook_path, read_notebook
from labkit.author.translation import prints
from labkit.author.translation.labels import labels_of
from labkit.author.translation.prints import printed_texts, with_prints
from labkit.course.lang import ENGLISH, speaking
from labkit.course.syllabus import CAPTIONS, LABS, NOTEBOOKS, Lab
from labkit.learner.figures import architecture, drawing
from labkit.learner.figures.architecture import DRAWN, PARTS, SVG, alt_text, draw
from labkit.learner.figures.drawing import BLUE, GREY, ORANGE
from labkit.learner.figures.labels import families, label, translate
from tinyllm.config import PRESETS


def texts_of(svg):
    """The texts of a drawing, each with the style of its group or text element"""
    found = {}
    for group in ElementTree.fromstring(svg).iter(f"{{{SVG}}}g"):
        for text in group:
            if text.tag.endswith("text"):
                words = "".join(text.itertext())
                found.setdefault(words, text.get("style") or group.get("style"))
    return found


def test_the_part_of_each_lab_is_lit():
    for part, (color, *_) in DRAWN.items():
        assert f"--edge: {color}" in draw(part) and DRAWN[part][2] in alt_text(part)
    texts = texts_of(draw("rope"))
    assert ORANGE in texts["RoPE"] and "--edge" not in texts["repeat"]
    everything = texts_of(draw())
    assert BLUE in everything["repeat"] and ORANGE in everything["RoPE"]
    assert texts_of(draw("all")) == everything
    with pytest.raises(ValueError, match="no part 'rms'; the parts are rmsnorm"):
        draw("rms")


def test_letters_become_the_numbers_of_a_model():
    assert "(B, H, T, D)" in texts_of(draw())
    texts = texts_of(draw(config=PRESETS["Qwen3-0.6B"]))
    assert "(B, 16, T, 128)" in texts and "× 28" in texts


def test_a_lab_that_adds_no_part_is_in_the_legend(monkeypatch):
    lab = Lab("10", "quantisation", "Fewer bits")
    monkeypatch.setattr(architecture, "LABS", (*LABS, lab))
    monkeypatch.setattr(
        architecture, "PARTS", PARTS | {lab.module: (GREY, lab.module, lab.title)}
    )
    assert "10 quantisation" in draw("quantisation")
    assert "adds no part: Fewer bits" in alt_text("quantisation")


# captions


def test_every_caption_has_its_figure_and_every_named_figure_its_caption():
    used = [
        key
        for lab in NOTEBOOKS
        for cell in read_notebook(notebook_path(lab)).cells
        for key in re.findall(r'show\(\w+, "(\d+\.[\w-]+)"\)', cell.source)
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
    assert plain.count("put together") == 2
    with pytest.raises(KeyError, match="add it"):
        drawing.show(plt.figure(), "1.nowhere")


# labels in Chinese


def test_labels_and_ticks_are_in_the_language_in_use():
    figure, axis = plt.subplots()
    axis.bar(["yours", "RMSNorm"], [1, 2])
    axis.set(xlabel="probability", title="after layer 3")
    with speaking("zh"):
        translate(figure)
        figure.draw_without_rendering()
        ticks = [tick.get_text() for tick in axis.get_xticklabels()]
        map_texts = draw("gqa")
        assert label("random: 12 rows") == "随机：12 行"
    assert axis.get_xlabel() == "概率" and axis.get_title() == "第 3 层之后"
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


PRINTS = """
for name, way in (("plain", 1), ("tiles", 2)):
    print(f"{name}: {sizes[name][-1]:.1f} MiB")
for moment in ("at the start", "after a step"):
    print(moment, f"largest difference {gap:.7f}:", "found" if gap < 1e-5 else "not yet")
print("weights         ", weights, names["loss"],
      f"{way} of {len(ways):,} tokens: {{a}} "
      f"{share:{width}.0%}")
"""


def test_what_a_cell_prints_is_translated_but_for_the_keys_it_uses(monkeypatch):
    messages = list(printed_texts(PRINTS))
    assert messages == [
        *("at the start", "after a step", "largest difference {0}:", "found", "not yet"),
        *("weights", "{0} of {1} tokens: {a} {2}"),
    ]
    monkeypatch.setattr(prints, "tr", lambda text: {
        "at the start": "开始时", "weights": "权重", "found": '"找到"',
        "{0} of {1} tokens: {a} {2}": "{1} 个词元中 {0} 个：{a} {2}",
    }.get(text, text))  # fmt: skip
    with speaking("zh"):
        source = with_prints(PRINTS)
    ast.parse(source)
    assert 'in ("开始时", "after a step"):' in source and '("plain", 1)' in source
    assert 'f"largest difference {gap:.7f}:", "\\"找到\\"" if gap < 1e-5' in source
    assert 'print("权重            ", weights, names["loss"]' in source  # as wide as before
    assert 'f"{len(ways):,} 个词元中 {way} 个：{{a}} {share:{width}.0%}"' in source
    with speaking(ENGLISH):
        assert with_prints(PRINTS) == PRINTS
