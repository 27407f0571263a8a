"""The model card: one page, rendered from the files beside a model and never edited by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import ModuleType

from labkit.course.files import write_whole
from labkit.model import checkpoint
from storyworld import LONG_REQUESTS, REQUESTS, words
from storyworld.questions import UNTOLD
from training.measure import SHARES, WAYS, visitors
from training.recipe import Recipe

LITTLE_WORLD = {
    "names": sorted(words.GENDER),
    "who they are": words.KINDS,
    "places": list(words.PLACES),
    "things": [*words.THINGS, *words.CONTAINERS],
    "food": words.FOODS,
    "what is counted": list(words.PLURALS.values()),
}


def write_card(folder: Path, package: ModuleType) -> None:
    """Write README.md from the files beside it."""
    write_whole(folder / "README.md", card(folder, package).encode())


def card(folder: Path, package: ModuleType) -> str:
    """The card of a folder with config.json, recipe.json, log.csv and scores.json.

    history.json lists the runs of a model that no single recipe makes, and says it in words.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    read = lambda name: json.loads((folder / name).read_text("utf-8"))  # noqa: E731
    config = checkpoint.part(package, "Qwen3Config").from_file(folder)
    total, active = checkpoint.part(package, "count_parameters")(config)
    scores, accepted = read("scores.json"), visitors()
    with (folder / "log.csv").open(encoding="utf-8") as file:
        *_, last = csv.DictReader(file)
    picks = [share * len(layer) for layer in scores["experts"] for share in layer]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("card.md.jinja").render(
        name=folder.name,
        config=config,
        total=total,
        active=active,
        recipe=Recipe.from_file(folder / "recipe.json"),
        history=read("history.json")["card"] if (folder / "history.json").exists() else (),
        tokens=int(last["tokens"]),
        temperature=read("generation_config.json").get("temperature", 0),
        scores=scores,
        shares=SHARES,
        ways=WAYS,
        picked={"min": min(picks, default=0), "max": max(picks, default=0)},
        asked={
            "all": len(accepted),
            "open": sum(UNTOLD in answers for answers in accepted.values()),
        },
        examples=examples(),
        little_world=LITTLE_WORLD,
        size=(folder / "model.safetensors").stat().st_size,
    )


def examples() -> dict[str, list[str]]:
    """One example for each kind of request and each kind of question."""
    wanted = ((REQUESTS, "Mia and a red kite"), (LONG_REQUESTS, "a fox named Felix"))
    names = {"A": "Mia", "B": "Felix", "x": "kite", "f": "apples", "v": "box"}
    return {
        "requests": [forms[0].format(about=about) for forms, about in wanted],
        "questions": [form.format(**names) for form in words.QUESTIONS.values()],
    }
