"""Attacks on the reader of notebooks: bytes that are not a notebook, or far too large."""

import io
import json
import zipfile
from collections.abc import Callable

DIRECTIVE = "# %% exercise 1.1: layer_norm\n"


def notebook(*sources: object) -> bytes:
    cells = [
        {"cell_type": "code", "metadata": {}, "source": text, "outputs": []} for text in sources
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}).encode()


def answer(text: str) -> Callable[[], bytes]:
    return lambda: notebook(DIRECTIVE + text)


def zip_bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../up.ipynb", bytes(10 << 20))
    return buffer.getvalue()


def odd_ids() -> bytes:
    cells = [{"id": odd, "source": DIRECTIVE, "metadata": {"nbgrader": {"grade_id": odd}}}
             for odd in ({}, [], None, 5, 1e300, True)]  # fmt: skip
    return json.dumps({"cells": cells, "nbformat": 4}).encode()


BYTES: dict[str, Callable[[], bytes]] = {
    "deep JSON": lambda: b'{"cells":' * 50_000 + b"[]" + b"}" * 50_000,
    "deep metadata": lambda: notebook(DIRECTIVE + "x").replace(
        b'"metadata": {}', b'"a":' + b"[" * 9_000 + b"]" * 9_000
    ),
    "a huge file": lambda: b'{"cells": ["' + b"x" * (40 << 20) + b'"]}',
    "20,000 cells": lambda: notebook(*["x = 1"] * 20_000),
    "20,000 answers": lambda: notebook(
        *[f"{DIRECTIVE}def layer_norm(x): return {n}" for n in range(20_000)]
    ),
    "100 huge answers": lambda: notebook(
        *[f"{DIRECTIVE}# {n}\n" + "x = 1\n" * 33_000 for n in range(100)]
    ),
    "5,000 definitions": lambda: notebook(
        *["def layer_norm(x):\n    return x\n" + "y = [1, 2, 3]\n" * 400] * 5_000
    ),
    "NaN": lambda: b'{"cells": [{"source": NaN, "id": Infinity}], "nbformat": NaN}',
    "a huge number": lambda: b'{"nbformat": ' + b"9" * 1_000_000 + b', "cells": []}',
    "keys twice": lambda: (
        b'{"cells": [], "nbformat": 4, "cells": [{"source": "# %% exercise 1.1", "source": 5}],'
        b' "cells": {}}'
    ),
    "lone surrogates": lambda: (
        b'{"cells": [{"source": "# %% exercise 1.1\\nx = \\"\\ud800\\udc00\\udfff\\""}]}'
    ),
    "a million lines": lambda: notebook(["x"] * 1_000_000),
    "odd ids": odd_ids,
    "odd worksheets": lambda: json.dumps(
        {"nbformat": 3, "worksheets": [{"cells": [{"cell_type": []}]}, 5]}
    ).encode(),
    "deep brackets": answer("(" * 90_000),
    "deep minus": answer("x = " + "-" * 90_000 + "1"),
    "deep attributes": answer("x = a" + ".b" * 90_000),
    "deep calls": answer("x = a" + "()" * 90_000),
    "a deep sum": answer("x = 1" + "+1" * 90_000),
    "deep blocks": answer("".join(" " * n + "if x:\n" for n in range(600)) + " " * 600 + "x\n"),
    "deep lambdas": answer("x = " + "lambda:" * 25_000 + "1"),
    "a deep f-string": answer("x = f'" + "{a:" * 20_000 + "}" * 20_000 + "'"),
    "doubtful brackets": answer("f(" * 95 + "a b" + ")" * 95),
    "questions and blanks": answer(("?" + " " * 50) * 3_900 + "x"),
    "a string of 190,000 lines": answer('"""\n' + "\n" * 190_000),
    "control characters": answer("\0\f\x1a\u2028x"),
    "every exercise": lambda: notebook(
        *[f"# %% exercise {lab}.{n}: x\nx = 1" for lab in range(10) for n in range(10)]
    ),
    "millions of values": lambda: b'{"cells": [' + b"{}," * 2_000_000 + b"{}]}",
    "cells of anything": lambda: (
        b'{"cells": [1, null, "x", {"source": 5}, {"metadata": [], "source": [1, "a"]}]}'
    ),
    "cells is no list": lambda: b'{"cells": 3, "nbformat": 4}',
    "a number": lambda: b"7",
    "a zip": zip_bomb,
    "a PDF": lambda: b"%PDF-1.7",
    "nothing": lambda: b"",
}
