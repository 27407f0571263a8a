"""Performing calls right here, with the package that is imported at the time."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from labkit.sandboxed.call import Call, Outcome, describe, perform
from labkit.sandboxed.importer import PACKAGE, filename

Ask = Callable[[str, Call], Outcome]  # what a call gives in a module of the package


def package_in(folder: str = PACKAGE) -> Ask:
    """Asks the package; tracebacks place it in `folder`."""

    def ask(module: str, call: Call) -> Outcome:
        path = filename(module, folder)
        try:
            namespace = vars(import_module(f"{PACKAGE}.{module}"))
        except (Exception, SystemExit) as error:  # the learner's module may raise anything
            return Outcome(failure=describe(error, path))
        return perform(call, namespace, path)

    return ask
