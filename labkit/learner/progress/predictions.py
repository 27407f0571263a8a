"""Predictions: the learner's choice before a cell runs, compared with the outcome.

The notebook has predict("1.why", "") before a cell. After the cell, outcome("1.why") or the
figure of that name shows the outcome; from then on the choice is fixed. The right choice is in
the lab's file in labkit/course/labs.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from labkit.course.lang import tr
from labkit.course.report import Report, Status
from labkit.course.syllabus import PREDICTIONS, Lab, Prediction
from labkit.learner import record
from labkit.learner.record import remember, remembered


def predict(name: str, choice: str = "") -> None:
    """Record the learner's choice, a letter; with "" print the choices."""
    found = _called(name)
    if found is None:
        return
    letter, known = str(choice).strip().lower(), _known(name)
    letters = tr(" or ").join([tr(", ").join([*found.choices][:-1]), [*found.choices][-1]])
    if known.get("told") and letter != known["choice"]:
        print(
            tr(
                "Your prediction was {choice}, and it counts: the outcome was told.",
                choice=known["choice"],
            )
        )
    elif not letter:
        asked = tr(
            "Choose first, then run: put {letters} between the quotation marks, run this cell, "
            "and go on.",
            letters=letters,
        )
        print(asked)
    elif letter not in found.choices:
        listed = tr("; ").join(
            tr("{letter}, {text}", letter=each, text=tr(text))
            for each, text in found.choices.items()
        )
        print(
            tr(
                "There is no choice {choice!r} here. There is {listed}.",
                choice=str(choice),
                listed=listed,
            )
        )
    else:
        remember(record.PREDICTIONS, name, known | {"choice": letter})
        print(
            tr(
                "You say {letter}, {choice}. Run on and see.",
                letter=letter,
                choice=tr(found.choices[letter]),
            )
        )


def outcome(name: str, shown: object = None) -> Report | None:
    """Report the outcome beside the learner's choice, which can no longer be changed.

    shown    an object to display first
    """
    if shown is not None:
        show_now(shown)
    found = _called(name)
    if found is None:
        return None
    known = _known(name)
    rows = [("was", f"{found.right}, {tr(found.choices[found.right])}"), ("why", tr(found.why))]
    heading = tr("Prediction {name}", name=name)
    if not known:
        return Report(heading, Status.HELP, rows, tr("you made none"))
    remember(record.PREDICTIONS, name, known | {"told": True})
    if known["choice"] == found.right:
        return Report(heading, Status.PASSED, rows, tr("as you said"))
    choice = ("said", f"{known['choice']}, {tr(found.choices[known['choice']])}")
    return Report(heading, Status.HELP, [choice, *rows], tr("otherwise than you said"))


def show_now(thing: object) -> None:
    from IPython.display import display

    display(thing)


def tally(lab: Lab) -> str:
    """Summarize the lab's predictions in a line; "" for a lab without any."""
    if not lab.predictions:
        return ""
    if not any(map(_known, lab.predictions)):
        return tr("none made")
    ended = {name: known for name in lab.predictions if (known := _known(name)).get("told")}
    right = [name for name in ended if ended[name]["choice"] == lab.predictions[name].right]
    return tr("{count} of {values} as you said", count=len(right), values=len(lab.predictions))


def _called(name: str) -> Prediction | None:
    if name not in PREDICTIONS:
        near = get_close_matches(str(name), PREDICTIONS, 1)
        meant = tr("; is it {near}?", near=near[0]) if near else ""
        print(tr("There is no prediction {name!r}{meant}", name=name, meant=meant))
    return PREDICTIONS.get(name)


def _known(name: str) -> dict[str, Any]:
    """{"choice": letter, "told": whether the outcome was shown}, or {}"""
    found = remembered(record.PREDICTIONS).get(name)
    usable = isinstance(found, dict) and found.get("choice") in PREDICTIONS[name].choices
    return found if usable else {}
