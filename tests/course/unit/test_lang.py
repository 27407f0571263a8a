"""Other languages: no message is missing or stale, code in messages is unchanged, and the same
work earns the same points in any edition."""

import ast
import json
import os
import re
import subprocess
import sys

import nbformat
import pytest
from babel.messages.catalog import Message
from fontTools.ttLib import TTFont
from rich.cells import cell_len

from labkit.author.owned_cells import filled, notebook_path, read_notebook, serialised
from labkit.author.translation import catalogs, messages
from labkit.author.translation.faults import faults
from labkit.author.translation.prints import with_prints
from labkit.author.translation.texts import with_docstrings
from labkit.course import cells, lang
from labkit.course.lang import language, ntr, speaking, tr
from labkit.course.lang.layout import pad, wrap_text
from labkit.course.paths import LABKIT
from labkit.course.report import Report, Status
from labkit.course.syllabus import LABS, NOTEBOOKS
from labkit.grading.nbgrader.graded_notebook import written_by_place
from tests.course.raw import english_in, raw_in

# prints the help of every command, and errors of wrong and missing arguments
EVERY_COMMAND = """
import sys, typer
from labkit import cli

def paths(command, before=()):
    yield before
    for name, each in getattr(command, "commands", {}).items():
        yield from paths(each, (*before, name))

WRONG = ["check 9.9", "look --view nothing", "chat /nowhere/at/all",
         "generate -p a --top-k 0 nothing", "submit nothing"]
whole = typer.main.get_command(cli.app)
teaching = {n for n, c in whole.commands.items() if c.rich_help_panel == "Teaching"}
authors = {"build", "site"}
helps = [(*w, "--help") for w in paths(whole) if not w or w[0] not in teaching | authors]
for words in [*helps, *map(str.split, WRONG)]:
    sys.argv = ["tinyllm", *words]
    print(">", *words, file=sys.stderr)
    try:
        cli.main()
    except SystemExit:
        pass
"""
OURS = re.compile(r"^> .*$|^ 用法：.*$", re.MULTILINE)  # and lines of typer

CATALOG = """\
msgid ""
msgstr ""
"Language: zh\\n"
"Plural-Forms: nplurals=1; plural=0;\\n"
"Content-Type: text/plain; charset=utf-8\\n"

msgid "{file} is empty"
msgstr "{file} 是空的"

msgid "one {n} line"
msgid_plural "{n} lines"
msgstr[0] "{n} 行"

#, fuzzy
msgid "it changed"
msgstr "旧的话"
"""


@pytest.fixture
def small_catalogs(tmp_path, monkeypatch):
    """A folder of catalogs with one small Chinese one."""
    (tmp_path / "zh").mkdir()
    (tmp_path / "zh" / "small.po").write_text(CATALOG, "utf-8")
    monkeypatch.setattr(lang, "FOLDER", tmp_path)
    lang._catalog.cache_clear()
    yield tmp_path
    lang._catalog.cache_clear()


@pytest.mark.release
def test_every_message_is_translated_and_says_what_its_english_says():
    with speaking("en"):
        assert catalogs.unfinished() == []


def test_no_message_stands_in_an_f_string():
    """Babel finds such messages only from Python 3.12 on."""
    hidden = []
    for path in LABKIT.rglob("*.py"):
        for string in ast.walk(ast.parse(path.read_text("utf-8"))):
            for node in ast.walk(string) if isinstance(string, ast.JoinedStr) else ():
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    fixed = any(isinstance(arg, ast.Constant) for arg in node.args)
                    if node.func.id in ("tr", "ntr", "said") and fixed:
                        hidden.append(f"{path.relative_to(LABKIT)}:{node.lineno}")
    assert hidden == []


def test_a_message_in_another_language(small_catalogs):
    with speaking("zh"):
        assert tr("{file} is empty", file="rope.py") == "rope.py 是空的"
        assert ntr("one {n} line", "{n} lines", 3) == "3 行"
        assert tr("not in any catalog") == "not in any catalog"
        assert tr("it changed") == "it changed"  # a fuzzy message is shown in English
    assert tr("{file} is empty", file="rope.py") == "rope.py is empty"
    assert ntr("one {n} line", "{n} lines", 1) == "one 1 line"


def test_the_language_is_the_one_asked_for_or_the_systems(monkeypatch):
    for variables, expected in (
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "TINYLLM_LANG": "en"}, "en"),
        ({"LANG": "C.UTF-8", "TINYLLM_LANG": "zh"}, "zh"),
        ({"LANGUAGE": "zh:en", "LANG": "en_GB.UTF-8"}, "zh"),
        ({"LANG": "fi_FI.UTF-8"}, "en"),
    ):
        for name in lang.VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        lang._chosen.cache_clear()
        assert language() == expected, variables
    monkeypatch.undo()
    lang._chosen.cache_clear()


def test_a_translation_that_lost_something_is_refused():
    for english, translation in (
        ("run `check`", "运行"),
        ("run `check`", "运行 `hint`"),
        ("about $x^2$", "关于 $x^3$"),
        ("see [it](https://a.b/c)", "见[它](https://a.b/d)"),
        ("{n} of 12", "{m} / 12"),
        ("<summary>out</summary>", "结果"),
        ("the residual stream grows", "残余流变大"),  # a term of the glossary
    ):
        assert faults("zh", Message(english, translation)), english
    assert not faults("zh", Message("the residual stream grows", "残差流变大"))


def test_no_translation_says_a_word_twice():
    for name in catalogs.translated():
        for path in (lang.FOLDER / name).glob("*.po"):
            for message in filter(lambda each: each.id, catalogs.read(path, name)):
                texts = message.string if message.pluralizable else (message.string,)
                prose = (re.sub(r"`[^`]*`|\{\w+\}", "·", text) for text in texts)
                found = [raw for text in prose for raw in raw_in(text)]
                assert not found or raw_in(str(message.id)), (path.name, found)
    assert raw_in("故意故意弄错") and raw_in("the the cat") and raw_in("用的是 {value}")


def test_a_catalog_is_brought_up_to_date(small_catalogs, monkeypatch):
    path = small_catalogs / "zh" / "small.po"
    monkeypatch.setattr(catalogs, "FOLDER", small_catalogs)
    changed = catalogs.Catalog()
    changed.add("{file} is quite empty")
    changed.add(("one {n} row", "{n} rows"))
    changed.add("it changed")  # still used, so its translation is not reused
    changed.add("it changes")
    monkeypatch.setattr(catalogs, "templates", lambda: {"small": changed})
    path.write_bytes(catalogs.updated("zh", "small"))
    assert catalogs.updated("zh", "small") == path.read_bytes()
    strings = {message.id: message.string for message in catalogs.read(path, "zh")}
    assert strings["{file} is quite empty"] and not strings["it changes"]
    changes = [fault.split(": ")[1] for fault in catalogs.unfinished()]
    assert changes == ["its English has changed"] * 3 + ["not translated"]
    with speaking("zh"):
        assert tr("{file} is quite empty", file="x") == "x is quite empty"


def test_a_translated_notebook_has_the_same_cells_and_code():
    for lab in NOTEBOOKS:
        notebooks = []
        for name in ("en", "zh"):
            with speaking(name):
                notebooks.append(filled(lab, read_notebook(notebook_path(lab))))
        nbformat.validate(notebooks[1])
        for english, chinese in zip(*(notebook.cells for notebook in notebooks), strict=True):
            assert english.id == chinese.id and english.metadata == chinese.metadata
            if english.cell_type == "code":
                with speaking("zh"):
                    printing = cells.fingerprint(with_prints(english.source))
                assert cells.fingerprint(chinese.source) == printing, (lab.name, english.id)
                assert cells.cell_hash(chinese.source) in cells.given_cells()[lab.name]


def test_the_font_has_every_character_of_the_figures():
    for name in catalogs.translated():
        (path,) = (lang.FOLDER / name).glob("*.ttf")
        has = TTFont(path).getBestCmap()
        figures = catalogs.read(catalogs.path_of(name, messages.FIGURES), name)
        letters = {*"".join(message.string for message in figures if message.id)} - {"\n"}
        assert len(letters) > 100
        assert sorted(letter for letter in letters if ord(letter) not in has) == []


def test_docstrings_keep_what_is_contract():
    code = 'def f(x):\n    """Turn it.\n\n    Shapes: x (B, T)\n    """\n    return x\n'
    with speaking("zh"):
        assert "Shapes: x (B, T)" in with_docstrings(code)


def test_the_same_work_is_worth_the_same_in_either_edition(judges):
    """The reference's answers with one stub; feedback in Chinese."""
    lab, scores = LABS[0], {}
    for name in ("en", "zh"):
        with speaking(name):
            notebook = filled(lab, read_notebook(notebook_path(lab)), solved=True)
            empty = filled(lab, read_notebook(notebook_path(lab)))
        for cell, stub in zip(notebook.cells, empty.cells, strict=True):
            if cell.id == lab.exercises[-1].answer_cell:
                cell.source = stub.source
        graded = judges[lab.name].grade(serialised(notebook))
        assert graded.language == name
        scores[name] = [(found.id, found.score, found.status) for found in graded.exercises]
        assert graded.exercises[-1].status is Status.NOT_STARTED
        with speaking(graded.language):
            assert ("正确" in str(graded.exercises[0].report)) == (name == "zh")
        cell = next(cell for cell in empty.cells if cell.id == lab.questions[0].answer_cell)
        cell.id, cell.metadata, cell.source = "lost", nbformat.from_dict({}), "MINE"
        found, _ = written_by_place(serialised(empty), judges[lab.name].released, lab)
        # the answer is below its question
        assert [answer["source"] for answer in found] == ["MINE"]
    assert scores["en"] == scores["zh"]


def test_an_unknown_language_of_a_notebook_is_english(judges):
    lab = LABS[0]
    notebook = json.loads(serialised(filled(lab, read_notebook(notebook_path(lab)))))
    notebook["cells"] = notebook["cells"][:1]
    for odd in ({"language": "xx"}, {"language": 3}, [], None, {"language": "../zh"}):
        notebook["metadata"]["tinyllm"] = odd
        assert judges[lab.name].grade(json.dumps(notebook).encode()).language == "en"


def test_columns_line_up_with_wide_characters():
    assert cell_len(pad("形状", 8)) == cell_len(pad("look", 8)) == 8
    text = "先把 x 转换为 float32，再求均方（`mean(-1)`），否则舍入误差很大。" * 3
    lines = wrap_text(text, 30)
    assert all(cell_len(line) <= 30 for line in lines)
    assert not any(line[0] in "，。）；：" for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    with speaking("zh"):
        report = Report("练习", Status.NOT_YET, [("look", "甲"), ("next", "乙")])
    _, first, second = str(report).splitlines()
    assert cell_len(first[: first.index("甲")]) == cell_len(second[: second.index("乙")])


def test_a_learners_commands_are_in_the_language_in_help_and_when_wrong():
    assert english_in("检查：Check one exercise") == ["Check one exercise"]
    chinese = {
        "env": {**os.environ, "TINYLLM_LANG": "zh", "COLUMNS": "80"},
        "capture_output": True,
        "text": True,
    }
    done = subprocess.run([sys.executable, "-c", EVERY_COMMAND], **chinese)
    assert done.returncode == 0 and done.stdout.count("tinyllm") > 20, done.stderr
    told = OURS.sub("·", done.stdout + done.stderr)
    assert english_in(told) == raw_in(re.sub("`[^`]*`", "·", told)) == []
    assert "…" not in done.stdout  # typer would cut a line of Chinese, which has no spaces
    assert all(cell_len(line) <= 80 for line in done.stdout.splitlines())
    teachers = subprocess.run(
        [sys.executable, "-m", "labkit.cli", "grade", "--help"], **chinese
    )
    assert "Options" in teachers.stdout and not re.search("[一-龥]", teachers.stdout)  # in one
