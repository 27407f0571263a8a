"""A record of verdicts, to hold the machinery against while it is rebuilt.

    python benchmarks/verdicts.py --compare    judge the recorded cases again, list what differs
    python benchmarks/verdicts.py --times      CPU seconds of the first wrong answer

verdicts/cases.json.gz holds the cases as texts that a learner hands in: {kind: {name: case}}.
Nothing in it depends on the machinery: the list of mistakes may shrink, and all of today's are
still judged. verdicts/today.json.gz holds {kind: {name: {way: verdict}}}. A way is `hidden` or
`visible` (checks in this process), `graded` (the judge in its sandbox) or `home` (a notebook).

verdict_adapter.py asks the machinery and is rewritten with it. Both files were
written before the machinery was changed (commit 09e4a68) and are not written again.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import multiprocessing
import os
import re
import resource
import sys
import time
from collections import Counter, defaultdict
from itertools import groupby
from pathlib import Path

import torch
import verdict_adapter as machinery

HERE = Path(__file__).resolve().parent
CASES, TODAY = (HERE / "verdicts" / f"{name}.json.gz" for name in ("cases", "today"))
GRADED = {"stubs", "references", "variants"}  # by the judge, too
KINDS = (
    *sorted(GRADED),
    "own",
    "mistakes",
    "nonsense",
    "forms",
    "attacks",
    "bytes",
    "assembly",
)
COUNTED = ("lose points", "own sentence", "named at all")  # of mistakes
NUMBER = re.compile(r"-?\d+\.\d+(e-?\d+)?|\d+e-?\d+")  # the last digits are the machine's


def read(path):
    return json.loads(gzip.decompress(path.read_bytes()))


# Judging


def judge_cells(cases):
    """(kind, name, way, verdict) of answers to the exercises of one lab."""
    for kind, name, case in cases:
        answer = case["lab"], case["exercise"], case["cell"]
        yield kind, name, "visible", machinery.judge_visible(*answer)
        if not case.get("practice"):
            yield kind, name, "hidden", machinery.judge_hidden(*answer)


def judge_graded(cases):
    """The same by the judge, of all labs."""
    for lab, part in groupby(cases, lambda row: row[2]["lab"]):
        with machinery.grader(lab) as grade:
            for kind, name, case in part:
                answer = case["exercise"], case["cell"]
                verdicts, _ = grade(machinery.notebook_with(lab, *answer))
                yield kind, name, "graded", verdicts[case["exercise"]]


def judge_notebooks(cases):
    """Forms, and bytes that are no notebook."""
    with machinery.grader(cases[0][2]["lab"]) as grade:
        for kind, name, case in cases:
            if "sources" in case:
                data = machinery.notebook_of(case["lab"], case["sources"])
            else:
                data = gzip.decompress(base64.b64decode(case["gzip"]))
            verdicts, _ = grade(data)
            for exercise, verdict in verdicts.items():
                yield kind, name, f"graded {exercise}", verdict


def judge_forms_at_home(cases):
    with machinery.home(cases[0][2]["lab"]) as check:
        for kind, name, case in cases:
            for exercise, verdict in check(case["sources"]).items():
                yield kind, name, f"home {exercise}", verdict


def judge_assembly(cases):
    with machinery.assembler() as assemble_graded:
        judges = {"home": machinery.assemble, "graded": assemble_graded}
        for kind, name, case in cases:
            yield kind, name, case["way"], judges[case["way"]](case["answers"])


def prepare():
    os.environ |= {"OMP_NUM_THREADS": "1", "TINYLLM_LANG": "en", "TINYLLM_NO_SANDBOX": "1"}
    torch.set_num_threads(1)


def judge_unit(unit):
    judge, cases = unit
    prepare()
    return list(judge(cases))


def units(cases):
    """The cases in parts that need a process of their own; the long ones first."""
    judges = {"attacks": [machinery.judge_attacks], "bytes": [judge_notebooks]}
    judges |= {"forms": [judge_notebooks, judge_forms_at_home], "assembly": [judge_assembly]}
    parts = defaultdict(list)
    for kind, named in cases.items():
        for name, case in named.items():
            row = kind, name, case
            for judge in judges.get(kind, ()):
                parts[judge, kind].append(row)
            if kind not in judges:
                parts[judge_cells, case["lab"]].append(row)
            if kind in GRADED and "practice" not in case:
                parts[judge_graded, kind].append(row)
    found = [(judge, rows) for (judge, _), rows in parts.items()]
    return sorted(found, key=lambda part: (part[0] != machinery.judge_attacks, -len(part[1])))


def judge_all(cases, jobs):
    """{kind: {name: {way: verdict}}}"""
    found = {kind: {name: {} for name in named} for kind, named in cases.items()}
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        for verdicts in pool.imap_unordered(judge_unit, units(cases)):
            for kind, name, way, verdict in verdicts:
                found[kind].setdefault(name, {})[way] = verdict
        pool.close()
        pool.join()
    return json.loads(json.dumps(found))  # as it is read from a file


# Comparing


def differences(before, after):
    """{kind of change: [(what, before, after)]}"""
    found = defaultdict(list)
    for kind, named in before.items():
        for name, ways in named.items():
            for way in sorted({*ways, *after[kind].get(name, {})}):
                pair = ways.get(way, {}), after[kind].get(name, {}).get(way, {})
                for field in sorted(pair[0].keys() | pair[1].keys()):
                    old, new = (verdict.get(field) for verdict in pair)
                    if blurred(old) != blurred(new):
                        row = f"{kind} {name}, {way}", old, new
                        found[change_of(field, old, new)].append(row)
    return found


def blurred(value):
    return NUMBER.sub("#", json.dumps(value)) if isinstance(value, (str, list)) else value


def change_of(field, old, new):
    if field == "why":
        return "reason lost" if not new else "reason changed" if old else "reason gained"
    return f"{'points' if field == 'of' else field} changed"


def loses(verdict):
    """Whether it costs points; where there are none to lose, whether it does not pass."""
    if verdict.get("of"):
        return verdict["points"] < verdict["of"]
    return verdict["status"] != "passed"


def shares(cases, verdicts):
    """{(way, exercise): [mistakes, and how many of them each of COUNTED is true of]}"""
    table = defaultdict(lambda: [0, 0, 0, 0])
    for name, case in cases.get("mistakes", {}).items():
        for way, verdict in verdicts["mistakes"][name].items() if case["costs"] else ():
            why, names = verdict.get("why", []), verdict.get("names", [])
            own = case["sentence"] in why or case["mistake"] in names
            for key in ((way, case["exercise"]), (way, "all")):
                facts = True, loses(verdict), own, bool(why)
                table[key] = [a + b for a, b in zip(table[key], facts, strict=True)]
    return table


def print_shares(cases, *records):
    """The table of shares: of one record, or of the later beside the earlier one."""
    tables = [shares(cases, record) for record in records]
    for way, exercise in sorted(tables[0]):
        rows = [table[way, exercise] for table in tables]
        texts = [" -> ".join(f"{row[n] / row[0]:4.0%}" for row in rows) for n in (1, 2, 3)]
        told = "  ".join(f"{label} {text}" for label, text in zip(COUNTED, texts, strict=True))
        print(f"{way:8} {exercise:4} {rows[0][0]:5} mistakes: {told}")


def print_counts(record):
    """What the record holds, kind by kind."""
    for kind, named in record.items():
        ways = defaultdict(list)
        for verdicts in named.values():
            for way, verdict in verdicts.items():
                ways[way.split()[0]].append(verdict)
        for way, verdicts in sorted(ways.items()):
            counts = Counter(verdict["status"] or "no status" for verdict in verdicts)
            counts["lose points"] = sum("of" in v and loses(v) for v in verdicts)
            counts["need a person"] = sum(bool(v.get("person")) for v in verdicts)
            counts["gain something"] = sum(bool(v.get("gained")) for v in verdicts)
            told = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()) if n)
            print(f"{kind:10} {len(named):4} cases, {way:7} {len(verdicts):4} verdicts: {told}")


def compare(cases, before, after):
    """Print what differs; whether anything does."""
    before = {kind: {n: before[kind].get(n, {}) for n in after[kind]} for kind in after}
    found = differences(before, after)
    for change in sorted(found):
        print(f"\n{change}: {len(found[change])}")
        for what, old, new in found[change]:
            print(f"  {what}\n      {json.dumps(old)}\n   -> {json.dumps(new)}")
    print()
    print_shares(cases, before, after)
    print()
    for change in sorted(found):
        by_kind = Counter(what.split()[0] for what, _, _ in found[change])
        print(f"{change:24} {len(found[change]):5}  {dict(by_kind)}")
    print(f"{sum(map(len, found.values()))} differences")
    return bool(found)


# The time of a first wrong answer


def first_answer(work):
    """CPU seconds of a wrong answer, in a process that has only judged a right one."""
    judge, right, wrong = work
    judge(*right)
    start = time.process_time()
    judge(*wrong)
    return time.process_time() - start


def print_times(cases):
    prepare()
    ways = machinery.FIRST_ANSWERS
    print("CPU seconds of the first wrong answer, which gives its input back\nexercise  "
          + "  ".join(ways))  # fmt: skip
    wrong = {case["exercise"]: case for name, case in cases["nonsense"].items()
             if name.endswith("gives its input back")}  # fmt: skip
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for case in cases["references"].values():
            right = case["lab"], case["exercise"], case["cell"]
            answers = right, (*right[:2], wrong[case["exercise"]]["cell"])
            times = [pool.apply(first_answer, ((judge, *answers),)) for judge in ways.values()]
            row = "  ".join(f"{t:{len(way)}.2f}" for way, t in zip(ways, times, strict=True))
            print(f"{case['exercise']:8}  {row}", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for action in ("compare", "times"):
        options.add_argument(f"--{action}", action="store_true")
    options.add_argument("--only", metavar="LAB", help="a part of the lab's name: rope")
    options.add_argument("--kind", choices=KINDS)
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    if HERE.parent != machinery.ROOT:
        sys.exit(f"this is the labkit of {machinery.ROOT}: set PYTHONPATH={HERE.parent}")
    cases = {
        kind: {n: case for n, case in named.items() if (given.only or "") in case["lab"]}
        for kind, named in read(CASES).items() if given.kind in (None, kind)
    }  # fmt: skip
    if given.times:
        return print_times(cases)
    start = time.monotonic()
    after = judge_all(cases, given.jobs)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print_counts(after)
    seconds = used.ru_utime + used.ru_stime
    print(f"{time.monotonic() - start:.0f} s, of the processor {seconds:.0f} s")
    return given.compare and compare(cases, read(TODAY), after)


if __name__ == "__main__":
    sys.exit(main())
