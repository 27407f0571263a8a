"""Private parts of other packages that the course uses.

Tried with Python 3.11 (concurrent.futures, multiprocessing). Of nbgrader, tried with 0.9.6,
only public parts are used, except for the pages of formgrader.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

# & and ' stay: the templates also put the names into strings of JavaScript, which keep them.
AS_TEXT = str.maketrans({"<": "&lt;", ">": "&gt;", '"': "&quot;", "\\": "&#92;"})


def processes_of(executor: ProcessPoolExecutor) -> list[BaseProcess]:
    """Return the running processes of a pool; Python 3.14 can kill them by itself."""
    return list((getattr(executor, "_processes", None) or {}).values())


def at_end_of_pool_process(work: Callable[[], None]) -> None:
    """Do `work` when a process of a pool ends, which does not run atexit functions."""
    Finalize(None, work, exitpriority=10)


@cache  # once, however often nbgrader reads its configuration
def show_names_as_text() -> None:
    """Let formgrader print names as text: its templates print them as they come.

    A learner's id is a folder's name, and part of some addresses: anyone who sends an
    instructor a link decides what such a page prints. The page of a submission is made by
    nbconvert: SanitizeAnswers takes care of it.
    """
    from nbgrader.server_extensions.formgrader.base import BaseHandler

    render = BaseHandler.render

    def render_text(handler: BaseHandler, name: str, **values: Any) -> str:
        texts = {k: v.translate(AS_TEXT) for k, v in values.items() if isinstance(v, str)}
        return render(handler, name, **values | texts)

    BaseHandler.render = render_text
