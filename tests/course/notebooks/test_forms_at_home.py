"""check() at home gives the verdict of grading on unusual forms of a notebook."""

from itertools import zip_longest

import pytest
from forms import FORMS, LAB
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from labkit.author.owned_cells import setup_cell
from labkit.learner import notebook


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    config = Config({"HistoryManager": {"enabled": False}})
    folder = str(tmp_path_factory.mktemp("ipython"))
    yield InteractiveShell.instance(config=config, ipython_dir=folder)
    InteractiveShell.clear_instance()


@pytest.fixture
def at_home(shell, imported_package, monkeypatch):
    """Runs the cells of a notebook; returns the report on each exercise, and the output."""
    monkeypatch.setattr(notebook, "_session", None)

    def ran(sources, ids=()):
        with capture_output() as shown:
            shell.run_cell(setup_cell(LAB))
            for source, cell_id in zip_longest(sources, ids):
                shell.run_cell(source, cell_id=cell_id)
            reports = {each.id: notebook.check(each.id) for each in LAB.exercises}
        shell.events.unregister("pre_run_cell", notebook._session.before_cell)
        shell.events.unregister("post_run_cell", notebook._session.after_cell)
        notebook._session = None  # the next notebook has a kernel of its own
        return reports, " ".join(shown.stdout.split())

    return ran


# A few of the forms: grading has the same rule, and tries all.
AT_HOME = (
    "wrong in its cell, right in a new one",
    "what is not allowed, in the answer",
    "a helper in a merged cell",
    "a global config dict",
    "setattr in a cell below",
)


def test_check_gives_the_verdict_of_grading(at_home):
    for name in AT_HOME:
        form = FORMS[name]
        reports, said = at_home(form.sources)
        lost = {key for key, report in reports.items() if not report.passed}
        assert lost == set(form.lost), (name, said, reports)


def test_what_comes_from_other_cells_is_said_and_follows_them(at_home, package):
    sources = FORMS["a helper"].sources
    ids = [f"cell {number}" for number, _ in enumerate(sources)]
    _, said = at_home(sources)
    assert "saved to tinyllm/rmsnorm.py, with mean_of of other cells" in said
    wrong = sources[0].replace("mean(", "sum(")
    reports, said = at_home([*sources, wrong], ids=[*ids, ids[0]])
    assert not reports["1.1"].passed and "exercise 1.1 uses this cell: saved" in said, said
    reports, _ = at_home([*sources, wrong, sources[0]], ids=[*ids, ids[0], ids[0]])
    assert reports["1.1"].passed


def test_a_cell_of_its_own_never_replaces_the_exercises_cell(at_home, package):
    _, said = at_home(FORMS["right, then a wrong experiment without directive"].sources)
    assert "not saved: the answer to 1.1 is the cell with the line" in said


def test_a_line_above_the_directive_leaves_with_its_cell(at_home, package):
    for name, line in {"future annotations below the directive": "from __future__",
                       "import above the directive": "import math"}.items():  # fmt: skip
        at_home(FORMS[name].sources)
        assert f"\n{line}" in (package / "rmsnorm.py").read_text()
        at_home(FORMS["no annotations"].sources[:1])
        assert f"\n{line}" not in (package / "rmsnorm.py").read_text().split("# %%", 1)[1]
