"""The records behind the lessons' claims: each maker runs an experiment with one seed.

A maker runs the notebook's own cells, with the reference in place of a learner's code, and
returns {name of a record: a number}. `python -m tests.course.claims.makers [MAKER ...]` makes
the records again, ten seeds each; `pytest -m slow tests/course/claims` does so in a scratch
file and checks the lessons' sentences against the new records.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from labkit.course.paths import NOTEBOOKS
from storyworld import stories

RECORDS = Path(__file__).with_name("records.json")
SEEDS = range(20, 30)  # seeds that were not used when sentences and thresholds were written
MAKERS: dict[str, Callable[[int], dict[str, float]]] = {}


def maker(function):
    MAKERS[function.__name__] = function
    return function


@cache
def cells(lab: str) -> dict[str, str]:
    found = json.loads((NOTEBOOKS / f"{lab}.ipynb").read_text("utf-8"))["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in found}


@cache
def lesson(lab: str, names: str, setup: str = "") -> dict:
    """Run these cells of a notebook and return its names; `cell|x` is cut before the line with
    x."""
    found: dict = {"show": lambda *a: None, "outcome": lambda *a: None}
    exec(
        "import torch, math, time, copy, re\nfrom torch import nn, Tensor\n"
        "import torch.nn.functional as F\n"
        f"from solutions.{lab.partition('_')[2]} import *\n{setup}",
        found,
    )
    for name in names.split():
        name, _, cut = name.partition("|")
        source = cells(lab)[name].replace("from tinyllm", "from solutions")
        source = re.sub("^from labkit.learner.progress.experiment .*", "", source, flags=re.M)
        source = source.partition(f"\n{cut}")[0] if cut else source
        exec(compile(source, f"{lab} {name}", "exec"), found)
    return found


def mean(values):
    return sum(values) / len(values)


# --- labs 01 to 07


@maker
def warm_up(seed):
    names = lesson("01_rmsnorm", "warm-up-stack warm-up-train")
    return {
        f"warm_up.{place}.{steps}": names["learn"](place, steps, seed, 0.003)[-10:]
        .mean()
        .item()
        for place in ("pre", "post")
        for steps in (1, 60)
    }


@maker
def growth(seed):
    names, found = lesson("03_gqa", "train-task watch growth-train", GQA), {}
    for rate in (0.01, 0.03, 0.1):
        for normed, name in ((True, "norm"), (False, "plain")):
            scores, _, right = names["grow"](normed, rate, seed)
            found[f"growth.{name}.{rate}.score"] = scores[-1].item()
            found[f"growth.{name}.{rate}.right"] = right.item()
    return found


@maker
def race(seed):
    setup = "from solutions.config import Qwen3Config\nexperiment = lambda *a, **k: None"
    names = lesson("04_swiglu", RACE, setup)
    return {
        f"race.{kind}.{rate}": names["final_loss"](kind, seed, rate)
        for kind in ("relu", "swiglu")
        for rate in (0.005, 0.01, 0.02)
    }


@maker
def balance(seed):
    names, found = lesson("05_moe", "rows-tools task train", MOE), {}
    for coefficient in (0.0, 0.01, 1.0):
        idle, error = names["train"](coefficient, seed)
        found |= {f"balance.idle.{coefficient}": idle, f"balance.error.{coefficient}": error}
    return found


@maker
def repetition(seed):
    names = lesson("07_generation", REPEAT)
    return {
        f"repeat.{temperature}": names["mean_repeated"](temperature, seed)
        for temperature in (0.0, 0.5, 1.0)
    }


# --- lab 10

SERVE = "tools serve-code arrivals-code serve-loop preempt-code preempt-step pay-code"


@maker
def serving(seed):
    names, found = lesson("10_serving", SERVE, "from solutions.serving import *"), {}
    for name, kind in (("static", names["Static"]), ("continuous", names["Scheduler"])):
        _, waits, passes, _ = names["serve"](kind, seed)
        found |= {f"wait.{name}": mean(waits), f"passes.{name}": passes}
    for name, kind in (("promised", names["Scheduler"]), ("preempting", names["Preempting"])):
        found[f"few.{name}"] = mean(names["serve"](kind, seed, 8, 20)[1])
    target = names["load_chat_model"]("stories-moe")[0]
    shorter = names["copy"].deepcopy(names["model"])
    shorter.model.layers = shorter.model.layers[:2]
    for name, draft in (("dense", names["model"]), ("two_layers", shorter)):
        found[f"drafts.{name}"] = names["tokens_per_pass"](target, draft, 4, seed=seed)
    return found


# --- lab 12

DATA = (
    "from labkit.learner.lessons.data import Rows\nfrom solutions.config import Qwen3NextConfig"
)
SINK = "sink-code sink-train sink-open sink-measure sink-gate sink-run sink-fit"


@maker
def sink(seed):
    copying = lesson("12_hybrid", SINK, DATA)["copying"]
    even = (1 / torch.arange(9.0, 33.0)).mean().item()
    gated, opened = (copying(seed, kind) for kind in (True, False))
    return {
        "sink.gate": gated[0] / even,
        "sink.open": opened[0] / even,
        "sink.factor_idle": gated[2],
        "sink.factor_busy": gated[3],
    }


@maker
def recall(seed):
    """Four kinds of models, 250 steps and 1,000; sharper scores in those with attention."""
    names = lesson(
        "12_hybrid", SINK + " recall-code recall-train recall-run recall-sharper", DATA
    )
    found = {}
    for kind in names["KINDS"]:
        small = names["recall_model"](kind, seed)
        for facts in (4, 8):
            found[f"recall.{kind}.{facts}"] = names["recall"](small, facts, 20)
        long = names["recall_model"](kind, seed, 1000)
        for length in (20, 40, 80, 160):
            found[f"longer.{kind}.{length}"] = names["recall"](long, 4, length)
        if kind in ("full", "hybrid"):
            sharp = names["sharper"](long, 2)
            for length in (20, 160):
                found[f"sharper.{kind}.{length}"] = names["recall"](sharp, 4, length)
    return found


@maker
def window(seed):
    """The storyteller with narrow windows: six stories per seed."""
    names, found = lesson("12_hybrid", "living-run", DATA), {}
    names["texts"] = names["Rows"](names["tokenizer"].library, 160).batch(50_000 + seed, 6)
    mask, loss = names["sliding_window_mask"], names["loss_with"]
    for keys in (160, 64, 32, 16, 8):
        found[f"window.{keys}"] = loss(mask(160, 160, keys))
        found[f"window.{keys}.sinks"] = loss(mask(160, 160, keys - 4, 4))
    return found


@maker
def fits(seed):
    recalled = lesson("12_hybrid", "fits-code")["recalled"]
    return {
        f"fits.{name}.{pairs}.{changes}": recalled(pairs, changes, erases, seed=seed)
        for erases, name in ((False, "adding"), (True, "delta"))
        for pairs, changes in ((32, 1), (8, 4))
    }


# --- lab 13

CUPS = "from solutions.generation import *\nfrom labkit.learner.lessons import cups\n"
CUPS += "from labkit.learner.lessons.cups import *\nmodel = cups.trained()\n"


@maker
def thought(seed):
    """Right answers behind a thought whose fourth step is wrong, with 4 and 8 steps given."""
    names = lesson("13_thinking", "look-13-2 experiment-code experiment-with", CUPS)
    with_thought, wrong = names["with_thought"], names["one_wrong"]
    return {f"thought.{given}": with_thought(wrong, seed, given=given) for given in (4, 8)}


# --- lab 15


@maker
def evicted(seed):
    """Points of prompt tokens that giving the end of a text back first finds more."""
    names = lesson("15_server", "tools talks-code beginning-code")
    kinds, share = (names["PrefixCache"], names["BeginningFirst"]), names["share_found"]
    return {
        f"evicted.{room}": 100 * (share(kinds[0], room, seed) - share(kinds[1], room, seed))
        for room in (32, 64, 96, 128, 192)
    }


@maker
def told_again(seed):
    """Tokens per pass, four guesses: a new story, the same told again, a second model."""
    names = lesson("15_server", "tools alone-code pay-code")
    story = " ".join(next(stories(seed)).text.split()[:16])
    told = names["tokenizer"].decode(names["per_pass"](story, 0, new=60)[1])
    prompts = {"new": story, "again": f"{story}{told} {story}", "second": story}
    return {
        f"told.{name}": names["per_pass"](
            prompt, 4, names["small_model"] if name == "second" else None
        )[0]
        for name, prompt in prompts.items()
    }


# --- lab 08

SMALL = "small-code look-8-3 break-zero-run"
GQA = "from solutions.config import Qwen3Config\nfrom solutions.rope import rope_cos_sin\n"
MOE = "from solutions.config import Qwen3Config\n"
RACE = "random-weights race-text race-train race-figure"
REPEAT = "tools batch-run|short repeat-run"
LESSON = (
    "from labkit.learner.lessons import lesson\nfrom labkit.learner.lessons.data import Rows\n"
)
LESSON += "tokenizer = lesson.tokenizer()\nV = tokenizer.get_vocab_size()\n"
LESSON += "from labkit.sandbox.inside.doubles.training import WindowConfig, WindowModel\n"
LESSON += "from solutions.moe import load_balancing_loss\nMINUTES = 3\n"
TRAIN = "train-code smooth-code"


@maker
def three_minutes(seed):
    names = lesson("08_training", TRAIN, LESSON)
    model = names["lesson"].build(seed)
    losses = [step["loss"] for step in names["train"](model, 1000)]
    told = names["lesson"].tell(model, names["tokenizer"], count=16)
    found = {"story.loss.1000": mean(losses[-20:])}
    for name, share in names["lesson"].truth(told).items():
        found[f"story.{name}.1000"] = share
    return found


@maker
def peaks(seed):
    setup = LESSON + "experiment = lambda *a, **k: None\n"
    names = lesson("08_training", "small-code look-8-3 peaks-run", setup)
    return {f"peak.{peak}": names["last_loss"](peak, seed) for peak in (0.01, 0.1)}


@maker
def cleaning(seed):
    setup = LESSON + "from labkit.learner.lessons import corpus\n"
    names = lesson("08_training", "clean-code buys-code buys-run|raw_loss", setup)
    return dict(zip(("clean.raw", "clean.filtered"), names["raw_and_clean"](seed), strict=True))


@maker
def scaling(seed):
    """One of the recorded runs of lab 08 again: how far another seed falls."""
    from tests.course.claims.test_training_claims import run

    return {"scaling.64.102400": run(64, 102_400, seed)[1]}


def seeded_by_heart(seed):
    names = lesson("08_training", SMALL, LESSON)
    small = names.setdefault("small", names["small_model"])
    names["small_model"] = lambda: small(seed)
    return names


@maker
def overfit(seed):
    names = seeded_by_heart(seed)
    seen = names["by_heart"](names["adamw"])
    other, norms = ([step[name] for step in seen] for name in ("other", "grad_norm"))
    return {
        "overfit.learned": seen[-1]["loss"],
        "overfit.least": min(other),
        "overfit.other": other[-1],
        "overfit.norm": max(norms),
        "overfit.norm_end": norms[-1],
    }


@maker
def zeroing(seed):
    names, found = seeded_by_heart(seed), {}
    for make, peak in (("adamw", 0.01), ("sgd", 1.0)):
        for name, how in (
            ("zeroed", names[make]),
            ("piled", names["without_zeroing"](names[make])),
        ):
            seen = names["by_heart"](how, peak=peak, clip=1e9)
            found[f"zero.{make}.{name}"] = seen[-1]["loss"]
    return found


def make(which=(), path=RECORDS, seeds=SEEDS) -> dict[str, list[float]]:
    """{record: a number per seed}; stored in path, maker by maker."""
    torch.set_num_threads(1)
    path = Path(path)
    for name in which or MAKERS:
        began, rows = time.process_time(), []
        for seed in seeds:
            rows.append(MAKERS[name](seed))
            print(name, seed, {k: round(v, 4) for k, v in rows[-1].items()}, flush=True)
        records = json.loads(path.read_text("utf-8")) if path.exists() else {}
        records |= {key: [float(f"{row[key]:.4g}") for row in rows] for key in rows[0]}
        path.write_text(written(records), encoding="utf-8")
        print(name, f"{time.process_time() - began:.0f} s", flush=True)
    return records


def written(records):
    lines = (f"{json.dumps(key)}: {json.dumps(records[key])}" for key in sorted(records))
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    make(sys.argv[1:])
