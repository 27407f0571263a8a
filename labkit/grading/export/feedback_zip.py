"""Feedback pages in zips that Canvas and Moodle hand back to learners.

They know whose a file is by the names in their own export, which collect has kept.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from labkit.core.files import safe_id, write_whole
from labkit.grading.class_report.class_results import LabResults
from labkit.grading.collect.layouts import LAYOUTS
from labkit.grading.export.tables import PARTICIPANT, People, Table
from labkit.grading.nbgrader.gradebook.connection import RosterEntry
from labkit.lang import tr

EXPORTS = [layout for layout in LAYOUTS if layout.system in ("Canvas", "Moodle")]
PLACE = "_assignsubmission_file_"


def feedback_zips(
    course: Path, results: LabResults, people: list[RosterEntry], worksheet: Path | None
) -> tuple[list[Path], list[str]]:
    """One zip for each system in which the lab was handed in; remarks on who is in none."""
    lab, members, lost = results.lab.name, defaultdict(dict), []
    numbers = participants(people, worksheet) if worksheet else {}
    for entry in results.handed:
        page = course / "feedback" / entry.learner / lab / f"{lab}.html"
        system, name = named(came_from(course, entry.learner, lab), lab)
        if not name and entry.learner in numbers:
            system, name = "moodle", f"{numbers[entry.learner]}{PLACE}/{lab}.html"
        if name and page.is_file():
            members[system][name] = page.read_bytes()
        else:
            lost.append(
                entry.learner
                if page.is_file()
                else tr("{learner} (no page)", learner=entry.learner)
            )
    written = []
    for system, files in sorted(members.items()):
        written.append(course / "export" / f"{lab}_feedback_{system}.zip")
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in sorted(files.items()):
                archive.writestr(name, data)
        write_whole(written[-1], buffer.getvalue())
    why = tr("{lab}: in no zip, as no export of Canvas or Moodle names them", lab=lab)
    return written, [tr("{why}: {names}", why=why, names=tr(", ").join(lost))] * bool(lost)


def came_from(course: Path, learner: str, lab: str) -> Sequence[str]:
    """The path that the attempt which counts had in the export."""
    try:
        manifest = json.loads((course / "collected" / "manifest.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return ()
    return manifest.get(f"{learner}/{lab}", {}).get("source", "").split("/")


def named(parts: Sequence[str], lab: str) -> tuple[str, str]:
    """(system, the page's name in its zip) for a file that had this path in its export."""
    for part in parts:
        found = next(filter(lambda layout: layout.match(part), EXPORTS), None)
        if found and found.system == "Canvas":
            return "canvas", str(Path(part).with_suffix(".html"))
        if found:
            return "moodle", f"{part.partition(PLACE.rstrip('_'))[0]}{PLACE}/{lab}.html"
    return "", ""


def participants(people: list[RosterEntry], worksheet: Path) -> dict[str, str]:
    """{learner: name and number as Moodle's folders have them}, by its grading worksheet."""
    table, found = Table.read(worksheet), {}
    owners = People(people).owners(table, table.rows)
    for row, owner in zip(table.rows, owners, strict=True):
        number = PARTICIPANT.fullmatch(table.get(row, "Identifier"))
        if number and owner:
            found[owner] = f"{safe_id(table.get(row, 'Full name'))}_{number[1]}"
    return found
