"""The words of the stories, from words.toml."""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_table(name: str) -> dict:
    """Read a TOML file of this folder."""
    return tomllib.loads((Path(__file__).parent / name).read_text("utf-8"))


_TABLE = read_table("words.toml")
GIRLS, BOYS, JOBS, ANIMALS, INDOORS = (
    _TABLE[name].split() for name in ("girls", "boys", "jobs", "animals", "indoors")
)
FOODS, CONTAINERS, COLOURS, EDIBLE, NUMBERS = (
    _TABLE[name].split() for name in ("foods", "containers", "colours", "edible", "numbers")
)
GENDER = dict.fromkeys(GIRLS, "f") | dict.fromkeys(BOYS, "m")
KIND_GENDER = {"girl": "f", "boy": "m"}  # all other kinds may be of either gender
KINDS = ["girl", "boy", *JOBS, *ANIMALS]
PLACES = {place: text.partition(": ")[0] for place, text in _TABLE["places"].items()}  # "in"
SPOTS = {place: text.partition(": ")[2].split("; ") for place, text in _TABLE["places"].items()}
PLACE_OF_SPOT = {spot: place for place, spots in SPOTS.items() for spot in spots}
OUTDOORS = [place for place in PLACES if place not in INDOORS]
ADJECTIVES = {"colour": COLOURS} | {k: v.split() for k, v in _TABLE["adjectives"].items()}
OPPOSITES = dict(pair.split("/") for pair in _TABLE["pairs"].split())
THINGS = {noun: text.split() for noun, text in _TABLE["things"].items()}  # [adjectives, verb]
GROUPS = {noun: group for noun, (group, _) in THINGS.items()}
GROUPS |= dict.fromkeys(FOODS, "taste") | dict.fromkeys(CONTAINERS, "colour")
VERBS = {noun: verb for noun, (_, verb) in THINGS.items()}
PLURALS, QUESTIONS = _TABLE["plurals"], _TABLE["questions"]
PREFIXES = dict.fromkeys(_TABLE["prefixes"]) | _TABLE["hours"]
