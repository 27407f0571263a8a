"""Pictures pasted into written answers: to the person who grades, and back to the learner."""

import base64
import copy
import io
import time
from html.parser import HTMLParser

import nbformat
from nbconvert.filters import markdown2html
from nbformat import from_dict
from rich.console import Console

from labkit.grading.judge.intake import cell_called, rebuild
from labkit.grading.judge.pictures import MAX_TOTAL, MOST, NOT_SHOWN, Album
from labkit.grading.nbgrader.feedback import SanitizeAnswers, rendered
from labkit.grading.nbgrader.graded_notebook import graded_notebook, remarks_on
from labkit.grading.nbgrader.submitted import Remark
from labkit.grading.run.grade import MAX_REMARK, print_remarks
from labkit.grading.sample_class import encoded
from tests.course.cost import at_most
from tests.course.grading.samples import LAB, handed, judged, notebook, store

RELEASED = nbformat.reads(notebook(), 4)


def attached(data, kind="image/png"):
    return {kind: base64.b64encode(data).decode()}


PNG = b"\x89PNG\r\n\x1a\n and so on"
ADDRESS = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def test_pictures_are_kept_as_attachments():
    for kind in ("png", "jpeg", "gif", "webp"):
        pictures = {"a b (1)": attached(PNG, f"image/{kind}")}
        text, kept = Album().collect("so ![*it* is](attachment:a%20b%20(1))!", pictures)
        assert text == f"so ![*it* is](attachment:picture-1.{kind})!"
        assert kept == {f"picture-1.{kind}": attached(PNG, f"image/{kind}")}
    for reference in (f"![x]({ADDRESS})", f'![x]({ADDRESS} "title")',
                      '<img src="attachment:a" width="50%">',
                      f"<img alt='x' src='{ADDRESS}'/>"):  # fmt: skip
        text, kept = Album().collect(f"before {reference} after", {"a": attached(PNG)})
        assert text.startswith("before ![") and kept == {"picture-1.png": attached(PNG)}
        assert text.endswith("](attachment:picture-1.png) after"), reference


HARMFUL = [
    attached(b"<svg onload='alert(1)'/>", "image/svg+xml"),
    attached(b"<script>alert(1)</script>", "text/html"),
    {"image/png": '" onload="alert(1)'},
    *({"image/png": odd} for odd in ("?", 5.5, "", [1, "("])),
    *({}, None, [["a"]]),
]


def test_anything_else_is_left_out_with_the_reason():
    for bundle in HARMFUL:
        text, kept = Album().collect("![x](attachment:a)", {"a": bundle})
        assert kept == {} and text.startswith(f"({NOT_SHOWN}: it is not a PNG"), bundle


def test_pictures_are_bounded_in_number_and_size():
    album, pictures = Album(), {"a": attached(PNG)}
    for _ in range(MOST):
        assert album.collect("![](attachment:a)", pictures)[1]
    text, kept = album.collect("![](attachment:a)", pictures)
    assert not kept and f"{MOST} and 16 MB are the most" in text
    text, kept = Album().collect("![](attachment:a)", {"a": {"image/png": "A" * MAX_TOTAL * 2}})
    assert not kept and "16 MB are the most" in text
    text, kept = Album().collect("![x](attachment:a) " * 50, pictures)
    assert len(kept) == MOST == rendered(text, kept).count("<img ")
    # a repeated picture does not make the page grow
    page = rendered("![x](attachment:a) " * 50, pictures)
    assert page.count("<img ") == 1


def test_hostile_and_long_texts_take_time_in_proportion():
    for text in ("![](data:", "![", "<img ", "<img src='data:", "![](data:a ",
                 "![](attachment:(("):  # fmt: skip
        with at_most(1000, text):
            Album().collect(text * 50_000, {})
    with at_most(2000, "a large one, many times"):
        Album().collect("![](attachment:a)" * 9_000, {"a": {"image/png": "A" * 10**7 + "?"}})

    def seconds(hostile):
        times = []
        for _ in range(3):
            began = time.process_time()
            Album().collect(hostile, None)
            times.append(time.process_time() - began)
        return min(times)

    for text in ("![a](data:{}", '<img src="data:{}', "![a](data:image/png;base64,{})",
                 "![a](data:({}"):  # fmt: skip
        short, long = (text.format("A" * (size << 20)) for size in (2, 4))
        assert seconds(long) < 3 * seconds(short), text


EVIL = "x onmouseover=alert(document.domain) style=position:fixed y="
ANSWERS = [
    f"[here](![{EVIL}](attachment:p.png))",
    f'<a href="![{EVIL}](attachment:p.png)">x</a>',
    f"<a href='![{EVIL}](attachment:p.png)'>x</a>",
    f"<a href='\">![{EVIL}](attachment:p.png)'>x</a>",
    f"<a href='><b>![{EVIL}](attachment:p.png)'>x</a>",
    f'<th scope="a>![{EVIL}](attachment:p.png)">x</th>',
    f"![{EVIL}](attachment:p.png)",
    '![x" onerror="alert(1)](attachment:p.png)',
    "![<script>alert(1)</script>](attachment:p.png)",
    f"`![{EVIL}](attachment:p.png)` [a](https://a.b/![{EVIL}](attachment:p.png))",
]


def test_words_of_a_picture_never_become_attributes():
    for answer in ANSWERS:
        text, kept = Album().collect(answer, {"p.png": attached(PNG)})
        mark = {"grade_id": "none", "solution": True}
        cell = {"cell_type": "markdown", "source": text, "attachments": kept}
        cell = from_dict(cell | {"metadata": {"nbgrader": mark}})
        shown, _ = SanitizeAnswers().preprocess_cell(cell, {}, 0)
        for page in (str(rendered(text, kept)), markdown2html(shown.source)):
            tags, parser = [], HTMLParser()
            parser.handle_starttag = lambda tag, given, tags=tags: tags.append((tag, given))
            parser.feed(page)
            names = {name for _, given in tags for name, _ in given}
            assert names <= {"href", "scope", "alt", "src"}, answer
            assert "script" not in [tag for tag, _ in tags], answer
    text = "[![a](attachment:p.png)](https://a.b)\n\n| a |\n|---|\n| ![b](attachment:p.png) |"
    page = rendered(*Album().collect(text, {"p.png": attached(PNG)}))
    assert page.count("<img ") == 2 and f'<img src="{ADDRESS}" alt="b">' in page


def test_notes_and_remarks_quote_long_names_in_part():
    exercise = LAB.exercises[0]
    name = exercise.symbols[0] + "_" * 50_000
    made = copy.deepcopy(RELEASED)
    cell_called(made, exercise.answer_cell).source = ""
    made.cells.append(nbformat.v4.new_code_cell(f"def {name}(x):\n    return x"))
    notes = rebuild(encoded(made), RELEASED, LAB).notes
    assert exercise.symbols[0] + "_" in notes[exercise.id]
    assert all(len(note) < 400 for note in notes.values())
    seen = Console(width=200, file=io.StringIO())
    print_remarks([Remark("_(" * 100_000, "ada"), Remark("late", "bob")], seen)
    first, second = seen.file.getvalue().splitlines()
    assert len(first) <= MAX_REMARK + 1 and second == "bob: late"


def test_a_picture_reaches_formgrader_and_the_learners_page(released_course):
    course, made = released_course, copy.deepcopy(RELEASED)
    cell = cell_called(made, LAB.questions[0].answer_cell)
    cell.source = "My *drawing*: ![by hand](attachment:a.png)\n\n![b](attachment:b.svg)"
    svg = attached(b"<svg onload='alert(1)'/>", "image/svg+xml")
    cell.attachments = {"a.png": attached(PNG), "b.svg": svg}
    # a picture without text is an answer, too
    alone = cell_called(made, LAB.questions[1].answer_cell)
    alone.source, alone.attachments = "![](attachment:a)", {"a": attached(PNG)}
    kept = [cell_called(rebuild(encoded(made), RELEASED, LAB).notebook, question.answer_cell)
            for question in LAB.questions]  # fmt: skip
    assert kept[1].attachments == {"picture-2.png": attached(PNG)}
    assert "attachments" not in kept[2]

    submission = judged()
    done = graded_notebook(encoded(made), course.released(LAB), LAB, submission)
    (remark,) = remarks_on(done, LAB)
    assert remark.startswith("question 1.a: 1 x")
    store(course, handed(course, "ada"), submission, done)
    (path,) = course.feedback(LAB)
    shown, _ = SanitizeAnswers().preprocess(copy.deepcopy(done), {})
    formgrader = markdown2html(cell_called(shown, LAB.questions[0].answer_cell).source)
    for page, count in ((path.read_text("utf-8"), 2), (formgrader, 1)):
        assert f'<img src="{ADDRESS}" alt="by hand">' in page and page.count("<img") == count
        assert "<em>drawing</em>" in page and f"({NOT_SHOWN}: it is not a PNG" in page
        assert "<svg" not in page
    assert "img-src data:" in path.read_text("utf-8")
