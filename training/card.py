"""The model card: one page, rendered from the files beside a model and never edited by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import ModuleType

from labkit.course.files import write_whole
from labkit.model import checkpoint
from labkit.model.chat.manners import LISTS
from storyworld import LONG_REQUESTS, REQUESTS, words
from storyworld.questions import UNTOLD
from training.asking import FORMS, USUAL
from training.measure import SHARES, WAYS, visitors
from training.recipe import Recipe

LITTLE_WORLD = {  # {title in the card: list of words}
    {"beings": "who they are", "counted": "what is counted"}.get(name, name): words
    for name, words in (LISTS | {"names": sorted(LISTS["names"])}).items()
}


def write_card(folder: Path, package: ModuleType) -> None:
    write_whole(folder / "README.md", card(folder, package).encode())


def card(folder: Path, package: ModuleType) -> str:
    """Render the card of a folder with config.json, recipe.json, log.csv and scores.json.

    history.json describes the runs of a model that was made by several recipes.
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
        forms=list(FORMS),
        asked_rows=asked_rows(scores["asked"]),
        size=(folder / "model.safetensors").stat().st_size,
    )


def asked_rows(asked: dict[str, dict[str, dict]]) -> dict[str, list[str]]:
    """Return a row for each list of words: "21 of 22" for each form ("" if the form was not
    used), then the words that no story mentions, if they are less than half."""
    rows = {}
    for title, kind in zip(LITTLE_WORLD, LISTS, strict=True):
        cells = []
        for counts in map(asked[kind].get, FORMS):
            total = sum(counts[key] for key in ("granted", "told", "refused")) if counts else 0
            cells.append(f"{counts['granted']} of {total}" if total else "")
        usual = asked[kind][USUAL[kind]]
        missing = usual["missing"] if len(usual["missing"]) < usual["granted"] else []
        rows[title] = [*cells, ", ".join(missing)]
    return rows


def examples() -> dict[str, list[str]]:
    """Return an example for each kind of request and each kind of question."""
    wanted = ((REQUESTS, "Mia and a red kite"), (LONG_REQUESTS, "a fox named Felix"))
    names = {"A": "Mia", "B": "Felix", "x": "kite", "f": "apples", "v": "box"}
    return {
        "requests": [forms[0].format(about=about) for forms, about in wanted],
        "questions": [form.format(**names) for form in words.QUESTIONS.values()],
    }
