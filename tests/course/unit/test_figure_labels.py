"""What stands in a figure, in another language."""

import matplotlib.pyplot as plt
import pytest
from fontTools.ttLib import TTFont

from labkit.author.translation import catalogs, messages
from labkit.author.translation.labels import labels_of
from labkit.lang import ENGLISH, FOLDER, speaking
from labkit.learner.figures import architecture
from labkit.learner.figures.labels import families, label, translate


def test_labels_and_ticks_are_said_in_the_language_that_is_spoken():
    figure, axis = plt.subplots()
    axis.bar(["yours", "RMSNorm"], [1, 2])
    axis.set(xlabel="learning rate", title="after layer 3")
    with speaking("zh"):
        translate(figure)
        figure.draw_without_rendering()
        ticks = [tick.get_text() for tick in axis.get_xticklabels()]
    assert axis.get_xlabel() == "学习率" and axis.get_title() == "第 3 层之后"
    assert ticks == ["你的", "RMSNorm"]
    plt.close(figure)


def test_english_figures_stay():
    with speaking(ENGLISH):
        assert label("learning rate") == "learning rate" and families() == ["sans-serif"]


@pytest.mark.parametrize("code", ["RMSNorm", "q_norm", "float32", "x", "$D^{-0.5}$", "12.5"])
def test_code_formulas_and_numbers_stay(code):
    assert labels_of([f"axis.set(title={code!r})"]) == []
    with speaking("zh"):
        assert label(code) == code


def test_what_stands_in_a_place_is_translated_too():
    with speaking("zh"):
        assert label("random: 12 rows") == "随机：12 行"


def test_the_labels_of_a_cell_are_found():
    cell = """
for name, dash in (("all of it", "--"), ("x", "-")):
    axis.plot(xs, dash, label=name, color=COLOURS["a colour"])
    print("not in the figure")
axis.set(xlabel=f"layer {i}, {'with' if on else 'no'} mask", aspect="equal")
show(figure, "1.why")
"""
    assert labels_of([cell]) == ["all of it", "layer {0}, with mask", "layer {0}, no mask"]


@pytest.mark.parametrize("language", catalogs.translated())
def test_the_font_has_every_character_of_the_figures(language):
    (path,) = (FOLDER / language).glob("*.ttf")
    held = TTFont(path).getBestCmap()
    found = [
        message
        for name in catalogs.templates()
        for message in catalogs.read(catalogs.path_of(language, name), language)
        if message.id
        and (name == messages.FIGURES or any("plots.py" in at for at, _ in message.locations))
    ]
    assert any("plots.py" in at for message in found for at, _ in message.locations)
    said = "".join(message.string for message in found)
    assert sorted(letter for letter in {*said} - {"\n"} if ord(letter) not in held) == []


def test_the_map_says_its_parts_in_chinese():
    with speaking("zh"):
        figure = architecture.draw("gqa")
        said = [text.get_text() for text in figure.axes[0].texts]
    assert "03 注意力" in said and "q_proj" in said
    plt.close(figure)


def test_a_name_that_was_cut_into_lines_stays():
    with speaking("zh"):
        assert label("scaled_dot_\nproduct_\nattention") == "scaled_dot_\nproduct_\nattention"
