"""Against whoever reads notebooks: bytes that are none, or too much of one."""

from __future__ import annotations

import json
from collections.abc import Callable

DIRECTIVE = "# %% exercise 1.1: layer_norm\n"
BYTES: dict[str, Callable[[], bytes]] = {}


def made(function: Callable[[], bytes]) -> Callable[[], bytes]:
    BYTES[function.__name__] = function
    return function


def notebook(*sources: object, **more: object) -> bytes:
    cells = [
        {"cell_type": "code", "metadata": {}, "source": text, "outputs": []} for text in sources
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, **more}).encode()


@made
def deep_json() -> bytes:
    return b'{"cells":' * 50_000 + b"[]" + b"}" * 50_000


@made
def deep_metadata() -> bytes:
    deep = b'"a":' + b"[" * 9_000 + b"]" * 9_000
    return notebook(DIRECTIVE + "x").replace(b'"metadata": {}', deep)


@made
def huge_file() -> bytes:
    return b'{"cells": ["' + b"x" * (40 << 20) + b'"]}'


@made
def thousands_of_cells() -> bytes:
    return notebook(*["x = 1"] * 20_000)


@made
def thousands_of_answers() -> bytes:
    return notebook(*[f"{DIRECTIVE}def layer_norm(x): return {n}" for n in range(20_000)])


@made
def a_hundred_huge_answers() -> bytes:
    return notebook(*[f"{DIRECTIVE}# {n}\n" + "x = 1\n" * 33_000 for n in range(100)])


@made
def thousands_of_definitions() -> bytes:
    body = "def layer_norm(x):\n    return x\n" + "y = [1, 2, 3]\n" * 400
    return notebook(*[body] * 5_000)


@made
def nans() -> bytes:
    return b'{"cells": [{"source": NaN, "id": Infinity}], "nbformat": NaN}'


@made
def a_number_without_end() -> bytes:
    return b'{"nbformat": ' + b"9" * 1_000_000 + b', "cells": []}'


@made
def keys_twice() -> bytes:
    honest = b'{"cells": [], "nbformat": 4'
    return honest + b', "cells": [{"source": "# %% exercise 1.1", "source": 5}], "cells": {}}'


@made
def lone_surrogates() -> bytes:
    return b'{"cells": [{"source": "# %% exercise 1.1\\nx = \\"\\ud800\\udc00\\udfff\\""}]}'


@made
def million_parts() -> bytes:
    return notebook(["x"] * 1_000_000)


@made
def ids_of_any_kind() -> bytes:
    cells = [{"id": odd, "source": DIRECTIVE, "metadata": {"nbgrader": {"grade_id": odd}}}
             for odd in ({}, [], None, 5, 1e300, True)]  # fmt: skip
    return json.dumps({"cells": cells, "nbformat": 4}).encode()


@made
def an_old_notebook_of_lies() -> bytes:
    sheets = [{"cells": [{"cell_type": []}]}, 5]
    return json.dumps({"nbformat": 3, "worksheets": sheets}).encode()


@made
def deep_brackets() -> bytes:
    return notebook(DIRECTIVE + "(" * 90_000)


@made
def deep_minus() -> bytes:
    return notebook(DIRECTIVE + "x = " + "-" * 90_000 + "1")


@made
def deep_attributes() -> bytes:
    return notebook(DIRECTIVE + "x = a" + ".b" * 90_000)


@made
def deep_calls() -> bytes:
    return notebook(DIRECTIVE + "x = a" + "()" * 90_000)


@made
def deep_sum() -> bytes:
    return notebook(DIRECTIVE + "x = 1" + "+1" * 90_000)


@made
def deep_blocks() -> bytes:
    text = "".join(" " * depth + "if x:\n" for depth in range(600))
    return notebook(DIRECTIVE + text + " " * 600 + "x\n")


@made
def deep_lambdas() -> bytes:
    return notebook(DIRECTIVE + "x = " + "lambda:" * 25_000 + "1")


@made
def deep_subscripts_in_an_fstring() -> bytes:
    return notebook(DIRECTIVE + "x = f'" + "{a:" * 20_000 + "}" * 20_000 + "'")


@made
def doubtful_brackets() -> bytes:
    return notebook(DIRECTIVE + "f(" * 95 + "a b" + ")" * 95)


@made
def questions_and_blanks() -> bytes:
    return notebook(DIRECTIVE + ("?" + " " * 50) * 3_900 + "x")


@made
def a_text_without_end() -> bytes:
    return notebook(DIRECTIVE + '"""\n' + "\n" * 190_000)


@made
def nul_and_form_feed() -> bytes:
    return notebook(DIRECTIVE + "\0\f\x1a\u2028x")


@made
def an_exercise_of_every_lab() -> bytes:
    texts = [f"# %% exercise {lab}.{n}: x\nx = 1" for lab in range(10) for n in range(10)]
    return notebook("\n".join(texts), *texts)


@made
def a_zip() -> bytes:
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../up.ipynb", bytes(10 << 20))
    return buffer.getvalue()
