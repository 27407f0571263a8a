"""Feedback pages in zips that a learning platform hands back to its learners.

It knows whose a file is by the names in its own export, which collect has kept.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from labkit.course.files import write_whole
from labkit.grading.class_report.class_results import LabResults
from labkit.grading.nbgrader.timestamp import read_manifest
from labkit.grading.platforms import PLATFORMS, names_of, platform_of


def feedback_zips(course: Path, results: LabResults) -> tuple[list[Path], list[str]]:
    """A zip for each platform in which the lab was handed in; remarks on who is in none."""
    lab, zips, lost = results.lab.name, defaultdict(dict), []
    manifest = read_manifest(course)
    for entry in results.handed:
        page = course / "feedback" / entry.learner / lab / f"{lab}.html"
        platform, name = page_name(manifest.get(f"{entry.learner}/{lab}", {}), lab)
        if name and page.is_file():
            zips[platform][name] = page.read_bytes()
        else:
            lost.append(entry.learner if page.is_file() else f"{entry.learner} (no page)")
    written = []
    for platform, pages in sorted(zips.items()):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in sorted(pages.items()):
                archive.writestr(name, data)
        written.append(course / "export" / f"{lab}_feedback_{platform}.zip")
        write_whole(written[-1], buffer.getvalue())
    lost += [f"{entry.learner} (not graded)" for entry in results.missing if entry.ungraded]
    names = names_of([platform for platform in PLATFORMS if platform.upload])
    why = f"{lab}: in no zip, as no export of {names} names them"
    return written, [f"{why}: {', '.join(lost)}"] * bool(lost)


def page_name(entry: Mapping[str, str], lab: str) -> tuple[str, str]:
    """(platform, the page's name in its zip) for what counts, by its path in the export."""
    platform = platform_of(entry.get("claim", ""))
    if platform and platform.upload:
        for part in entry["source"].split("/"):
            if found := re.fullmatch(platform.upload, part):
                return platform.name.lower(), platform.page.format(found[1], lab=lab)
    return "", ""
