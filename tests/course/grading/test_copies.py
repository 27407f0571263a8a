"""Answers that are alike: copies are listed whatever their names, honest ones are not."""

import random
import re
import time

import nbformat
from typer.testing import CliRunner

from labkit.author.reference import reference_block
from labkit.cli import app
from labkit.core import cells
from labkit.core.paths import SOLUTIONS
from labkit.grading.class_report.copies import alike, own_answers
from labkit.grading.run.results import Results
from labkit.grading.sample_class import small_class
from tests.course.grading.samples import LAB, handed, judged, notebook

ODD = """# %% exercise 1.2: RMSNorm
class RMSNorm(nn.Module):
    def __init__(self, hidden_size: int, eps: float = 1e-6):
        super().__init__()
        start = torch.full((hidden_size,), 1.0)
        self.weight = nn.Parameter(start.clone())
        self.tiny = max(eps, 0.0)

    def forward(self, hidden_states):
        # I square, sum up and count
        kind = hidden_states.dtype
        wide = hidden_states.to(torch.float32)
        count = wide.shape[-1]
        power = torch.stack([wide * wide]).sum(0).sum(-1, True)
        root = torch.pow(power / count + self.tiny, 0.5)
        shrunk = torch.div(wide, root.expand_as(wide))
        return self.weight * shrunk.to(kind)
"""


def renamed(text, names, before=""):
    for old, new in names.items():
        text = re.sub(rf"{before}\b{old}\b", new, text)
    return text


NAMES = {"start": "ones0", "tiny": "epsilon", "kind": "d", "wide": "h32", "count": "E",
         "power": "s", "root": "r", "shrunk": "normalised"}  # fmt: skip
MINE = renamed(ODD, NAMES).replace("# I square, sum up and count", '"""My very own norm."""')
MINE = MINE.replace("self.weight * normalised.to(d)", "normalised.to(d) * self.weight")
MOVED = "        d = hidden_states.dtype\n"
DISGUISED = MINE.replace(MOVED, "").replace("shape[-1]\n", f"shape[-1]\n\n{MOVED}")
NEAR = renamed(ODD, {"shrunk": "y"}).replace("max(eps, 0.0)", "eps")
DEEP = ODD.replace("hidden_states.dtype", " + ".join("1" * 400))
RELEASED = nbformat.reads(notebook(), 4)
MISTAKES = [x.mistake for x in small_class(LAB, RELEASED) if x.mistake]
STUBS = {e.id: cells.stub(reference_block(LAB, e), e) for e in LAB.exercises}


def honest(size, seed=0):
    """A class that solves the lab in the ways we know, right and wrong, in names of its own."""
    pick, ways = random.Random(seed), own_answers(LAB, SOLUTIONS)
    ways = {key: texts * 3 for key, texts in ways.items()}
    for mistake in MISTAKES:
        ways[mistake.exercise.id] += [mistake.cell]

    def written(text):
        bound = sorted(set(re.findall(r"^ +(\w+) = ", text, re.MULTILINE)))
        names = {name: f"{name}{pick.randrange(9)}" for name in bound}
        return renamed(text, names, before=r"(?<!\.)")  # a method keeps its name

    return {
        f"s{number:03}": {key: written(pick.choice(texts)) for key, texts in ways.items()}
        for number in range(size)
    }


def found(answers):
    listed, common, _ = alike(LAB, answers, STUBS, own_answers(LAB, SOLUTIONS))
    return {(one.exercise.id, *one.learners): one for one in listed}, common


def test_where_the_honest_answer_is_nearly_forced_nobody_is_listed():
    began = time.process_time()
    listed, common = found(honest(240))
    assert listed == {} and all(one.count > 12 for one in common)
    assert time.process_time() - began < 10
    for text in ("layer_norm = lambda x, weight, bias, eps: x.sinh().cosh() * 17",
                 "def layer_norm(x, weight, bias, eps):\n    a = x + 1\n    return a",
                 "def f(:", STUBS["1.1"], "", None):  # fmt: skip
        answers = honest(30)
        for learner in ("s001", "s002"):
            answers[learner]["1.1"] = text and f"# %% exercise 1.1\n{text}"
        assert found(answers)[0] == {}, text


def test_a_copy_is_listed_beside_its_twin_and_nobody_else():
    for size in (8, 120):
        for copy in (ODD, DISGUISED, NEAR):
            answers = honest(size)
            answers["s003"]["1.2"], answers["s005"]["1.2"] = ODD, copy
            ((key, one),) = found(answers)[0].items()
            assert key == ("1.2", "s003", "s005") and one.own >= 5
            assert one.others == size - 2 and len(one.texts) == 1 + (copy is not ODD)
            marked = [line for line, own in one.sides[0][1] if own]
            assert any("torch.pow(" in line for line in marked)
            assert not any("super()" in line or "def " in line for line in marked)  # given
    for number, text in enumerate((ODD, DISGUISED, NEAR)):
        answers[f"s{number:03}"]["1.2"] = text
    ((key, _),) = found(answers)[0].items()  # a ring is one group
    assert key == ("1.2", "s000", "s001", "s002", "s003", "s005")
    for number in range(40):
        answers[f"s{number:03}"]["1.2"] = ODD
    listed, common = found(answers)
    assert not listed and ("1.2", 40) in [(one.exercise.id, one.count) for one in common]


def test_the_command_lays_them_side_by_side(released_course):
    course = released_course
    texts = {
        "ann": ODD,
        "bob": DISGUISED,
        "zoe": DEEP,
        "eve": ODD.replace("start", "<b>start"),
    }  # fmt: skip  not even Python
    for learner, text in texts.items():
        handed(course, learner).path.write_bytes(notebook(learner, ex_1_2=text))
    Results(course.root, LAB).put("x", judged())
    Results(course.root, LAB).put_class(dict.fromkeys(texts, "x"))
    done = CliRunner().invoke(app, ["copies", LAB.module, "--course", str(course.root)])
    assert done.exit_code == 0 and "1 group of answers to look at" in done.output
    page = (course.root / f"{LAB.name}_copies.html").read_text()
    for words in ("1.2 RMSNorm: ann, bob", "<mark>        power = torch.stack",
                  "<mark>        s = torch.stack", "for a person to judge",
                  "nested too deeply to be compared: 1.2 RMSNorm, zoe"):  # fmt: skip
        assert words in page, words
    assert not re.search("<b>eve|<b>start|script", page)
