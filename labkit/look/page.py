"""Writing the page: a folder that needs no network and no server.

    write(folder, ["stories-dense", "stories-moe"])

index.html#VIEW opens a view; VIEWS names them. The models are scripts beside the page, so that
it works from a file as well as from a server.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.course.lang import ENGLISH, language, tr
from labkit.look.export import advised, config_of, model_script
from labkit.model import hub
from labkit.model.chat import manners
from labkit.model.values import read_text

STATIC = Path(__file__).parent / "static"
WORD = re.compile(r'^    "([\w.-]+)": "(.*)",$', re.MULTILINE)
NO_SCRIPT = "The model is a program in this page: it needs JavaScript."
NAMES = {"en": "English", "zh": "中文"}  # the languages' own names
TAGS = {"zh": "zh-CN"}  # browsers' names of languages that differ from ours
VIEWS = ("overview", "tokens", "attention", "qknorm", "experts", "cache", "swap")


@dataclass(frozen=True)
class Shown:
    """A model for the page.

    name      in the page and of its file: letters, digits, "-", "_", "."
    folder    its checkpoint
    computed  numbers of the learner's code (labkit/look/learner_code.py)
    """

    name: str
    folder: Path
    computed: Mapping[str, Any] | None = None


def write(
    folder: str | Path,
    models: Sequence[str | Shown] = tuple(hub.SHIPPED),
    labs: Mapping[str, str] | None = None,
    home: str = "",
    others: Mapping[str, str] | None = None,
) -> Path:
    """Write the page into a folder, which may exist; return its index.html.

    models    shipped names, `mine`, folders of checkpoints, or Shown; the first is opened
    labs      {number: address of the lab's page}; one without is named and links nowhere
    home      address of the course's pages, if there are any
    others    {language: address} of the same page in other languages

    Errors: no model: ValueError; a model that cannot be read, or is too large for a page:
            CheckpointError, before anything is written
    """
    folder = Path(folder)
    if not models:
        raise ValueError("models is empty: the page needs one model at least")
    shown = [each if isinstance(each, Shown) else named(each) for each in models]
    scripts = {each.name: model_script(each.name, each.folder, each.computed) for each in shown}
    facts = {
        "models": [_facts(each, len(scripts[each.name])) for each in shown],
        "heard": manners.tables(),
        "labs": dict(labs or {}),
        "home": home,
        "others": [[tag(each), NAMES[each], where] for each, where in (others or {}).items()],
    }
    (folder / "models").mkdir(parents=True, exist_ok=True)
    shutil.copytree(STATIC, folder, dirs_exist_ok=True)
    for name, script in scripts.items():
        (folder / "models" / f"{name}.js").write_text(script, "utf-8")
    script = f"TinyLLM.page = {json.dumps(facts)};\n"
    index = folder / "index.html"
    if language() != ENGLISH:
        table = {key: tr(text) for key, text in words().items()}
        script += f'TinyLLM.words["{tag(language())}"] = {json.dumps(table)};\n'
        text = index.read_text("utf-8").replace('lang="en"', f'lang="{tag(language())}"')
        index.write_text(text.replace(NO_SCRIPT, tr(NO_SCRIPT)), "utf-8")
    (folder / "page-data.js").write_text(script, "utf-8")
    return index


def tag(name: str) -> str:
    """Return the name of a language in HTML."""
    return TAGS.get(name, name)


def words() -> dict[str, str]:
    """Return {key: sentence} of all texts in the page."""
    texts = [(STATIC / name).read_text("utf-8") for name in ("words.js", "terms.js")]
    return dict(found for text in texts for found in WORD.findall(text))


def terms() -> list[tuple[str, str]]:
    """Return words of the field with their meanings, for other pages that explain them."""
    found = words()
    keys = [key for key in found if key.startswith("term.") and f"{key}-is" in found]
    return [(tr(found[key]), tr(found[f"{key}-is"])) for key in keys]


def named(name: str) -> Shown:
    """Return a model by its name or folder, as in `tinyllm chat`."""
    folder = hub.resolve(name)
    return Shown(name if name in (*hub.SHIPPED, "mine") else folder.resolve().name, folder)


def _facts(shown: Shown, size: int) -> dict[str, Any]:
    """Return the facts about a model that the page shows before loading it."""
    config = config_of(shown.folder)
    return {
        "name": shown.name,
        "megabytes": round(size / 1e6, 1),
        "experts": config.num_experts,
        "knobs": advised(shown.folder),
        "world": world_of(shown.folder),
    }


def world_of(folder: Path) -> dict[str, str]:
    """The words that a model of little stories knows, {kind: words}; {} for another model."""
    if "\n- who they are: " not in (read_text(folder / "README.md") or ""):
        return {}
    return {kind: ", ".join(words) for kind, words in manners.LISTS.items()}
