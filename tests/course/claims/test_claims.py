"""Sentences of the lessons are bound to recorded numbers.

`claims.toml` holds sentences of the lessons (prose, captions, predictions, rubrics, model
answers), with their numbers as expressions over `records.json`: ten seeds per record, none of
which chose the sentence. Filled in, a sentence must be in its lab word for word, and its
statements without a number (`holds`) must be true of the records. So a number that is changed,
a
sentence turned around, and a record that says something else all fail here. `pytest -m slow
tests/course/claims` makes all records again.
"""

import json
import re
from functools import cache
from statistics import median

import nbformat
import pytest

from labkit.course.lang import Catalog
from labkit.course.paths import LABKIT, NOTEBOOKS, SOLUTIONS
from labkit.course.syllabus import LABS, find_lab, tomllib
from labkit.learner.lessons import cups, kernels, rewards
from tests.course.claims import posttraining_runs
from tests.course.claims.makers import MAKERS, RECORDS, SEEDS, make

CLAIMS = [
    (module, claim)
    for module, claims in tomllib.loads(
        RECORDS.with_name("claims.toml").read_text("utf-8")
    ).items()
    for claim in claims
]
WORDS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
SEEDED = re.compile(  # matches a sentence that reports seeds
    r"\b(in|of|all|over|from) (the |our |these )?(five|six|seven|eight|nine|ten) (recorded )?"
    r"(seeds|sets|random starts|starts|runs)\b(?! or more)", re.I,
)  # fmt: skip


def count(truths) -> str:
    """Write a count of up to ten as a word."""
    return WORDS[sum(truths)]


def zipped(*records):
    return list(zip(*records, strict=True))


def flat(text: str) -> str:
    return " ".join(text.replace("\n> ", " ").split())


@cache
def places(module: str) -> list[str]:
    """Every text of a lab that can contain a claim: prose, predictions, captions, answers."""
    lab = find_lab(module)
    notebook = nbformat.read(NOTEBOOKS / f"{lab.name}.ipynb", as_version=4)
    syllabus = tomllib.loads(
        (LABKIT / "course" / "labs" / f"{lab.name}.toml").read_text("utf-8")
    )
    answers = (SOLUTIONS / "answers" / f"{module}.md").read_text("utf-8")
    predictions = [why["why"] for why in syllabus["predictions"].values() if "why" in why]
    return [
        *(cell.source for cell in notebook.cells if cell.cell_type == "markdown"),
        *predictions,
        *syllabus.get("captions", {}).values(),
        *re.split(r"(?m)^#{2,3} .*$", answers),
    ]


def names_of(records: dict) -> dict:
    records = {re.sub(r"\W+", "_", name): row for name, row in records.items()}
    return {**records, "median": median, "count": count, "zipped": zipped, "WORDS": WORDS}


def filled(claim: dict, records: dict) -> str:
    return flat(eval(f"f'''{claim['says']}'''", names_of(records)))


def untrue(claim: dict, records: dict) -> bool:
    return not eval(claim.get("holds", "True"), names_of(records))


RECORDED = json.loads(RECORDS.read_text("utf-8"))
RECORDED |= posttraining_runs.flat(rewards.recorded())
H200 = [kernels.H200_OPERATIONS, kernels.H200_BYTES]
RECORDED |= {"kernel_h200": H200, "kernel_ridge": [H200[0] / H200[1]]}
for row in kernels.recorded():  # two runs on a GPU
    RECORDED[f"kernel_{row['kernel']} intensity"] = [row["flops"] / row["bytes"]]
    for way, pair in row["times"].items():
        RECORDED[f"kernel_{row['kernel']} {way}"] = list(pair)
    reached = [row["flops"] / ms * 1000 / H200[0] for ms in row["times"]["ours"]]
    RECORDED[f"kernel_{row['kernel']} share"] = reached

for layers, rows in cups.recorded_by_layers().items():  # at two swaps; at most from four on
    RECORDED[f"cups_two_{layers}"] = [row["fast"][1] for row in rows]
    RECORDED[f"cups_more_{layers}"] = [max(row["fast"][3:]) for row in rows]
    RECORDED[f"cups_thought_{layers}"] = [row["slow"][-1] for row in rows]
MAIN = cups.recorded("main")
RECORDED["cups_slow_least"] = [min(row["slow"]) for row in MAIN]
for mode in ("slow", "fast"):  # shares for one draw and for sixteen
    drawn = [row[f"draws {mode}"] for row in MAIN]
    RECORDED[f"cups_{mode}_one"] = [row["one"] for row in drawn]
    for way in ("vote", "pass"):
        RECORDED[f"cups_{mode}_{way}"] = [row[way][-1] for row in drawn]
for place, budget in enumerate(range(0, 26, 4)):
    RECORDED[f"cups_budget_{budget}"] = [row["budget"][place] for row in MAIN]


@pytest.mark.parametrize("module, claim", CLAIMS, ids=lambda x: x if isinstance(x, str) else "")
def test_a_sentence_says_what_its_record_says(module, claim):
    sentence = filled(claim, RECORDED)
    whole = re.compile(rf"(?<!\d){re.escape(sentence)}(?!\.?\d)")  # 85 is not in 850
    found = [text for text in places(module) if whole.search(flat(text))]
    assert found, f"{module} has no sentence: {sentence}"
    assert not untrue(claim, RECORDED), f"not true of the records: {sentence}"
    digits = re.findall(r"\d+(?:\.\d+)?", sentence)
    chinese = [chinese_catalog().one(text) for text in found]
    missing = [n for text in chinese for n in digits if n not in text]
    assert not missing, f"the Chinese of this lacks {missing}: {sentence}"


@cache
def chinese_catalog():
    return Catalog("zh")


def test_a_record_has_ten_seeds():
    few = {name: len(row) for name, row in RECORDED.items() if len(row) != len(SEEDS)}
    known = {"rl", "story", "kernel", "cups", "scaling"}
    assert {name.partition("_")[0].partition(".")[0] for name in few} <= known


def test_a_result_over_seeds_is_bound_to_a_record():
    """A sentence of the lessons that reports seeds is in claims.toml."""
    free = []
    for module in sorted(lab.module for lab in LABS):
        bound = [filled(claim, RECORDED) for where, claim in CLAIMS if where == module]
        for text in map(flat, places(module)):
            spans = [(at, at + len(b)) for b in bound if (at := text.find(b)) >= 0]
            free += [
                f"{module}: ...{text[max(0, found.start() - 80) : found.end() + 40]}..."
                for found in SEEDED.finditer(text)
                if not any(low <= found.start() < high for low, high in spans)
            ]
    assert free == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_the_claims_hold_when_a_record_is_made_again(name, tmp_path):
    again = make([name], tmp_path / "records.json")
    for module, claim in CLAIMS:
        words = set(re.findall(r"\w+", claim["says"] + claim.get("holds", "")))
        used = words & ({*names_of(again)} - {*names_of({})})
        if used:
            print(module, "|", filled(claim, RECORDED), "|", filled(claim, RECORDED | again))
            assert not untrue(claim, RECORDED | again), claim


@pytest.mark.slow
def test_the_claims_of_lab_11_hold_when_all_is_trained_again():
    again = RECORDED | posttraining_runs.flat(posttraining_runs.train_again(rewards.recorded()))
    for module, claim in CLAIMS:
        if "rl_" in claim["says"] + claim.get("holds", ""):
            print(module, "|", filled(claim, again))
            assert not untrue(claim, again), claim
