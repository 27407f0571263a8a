"""The package under test, imported from memory: {"rmsnorm": source, ...} becomes `tinyllm`.

So grading lays one learner's exercise over the reference, and a check in the notebook lays the
learner's module of one lab over it. Of the reference only compiled code is here, not its text.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, ModuleType

PACKAGE = "tinyllm"
Source = str | CodeType | BaseException  # an exception raised by compiling it


class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads the modules of PACKAGE.

    folder    their folder in tracebacks
    texts     sources, for inspect, of modules that come compiled
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        folder: str = PACKAGE,
        texts: Mapping[str, str] = {},
    ):
        self.sources, self.folder, self.texts = sources, folder, texts
        self.names: list[str] = []  # names of the loaded modules

    def find_spec(self, name: str, path: object = None, target: object = None):
        if name == PACKAGE:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if not name.startswith(PACKAGE + "."):
            return None
        if (
            name.removeprefix(PACKAGE + ".") not in self.sources
        ):  # other finders must not find it either
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return importlib.machinery.ModuleSpec(name, self)

    def get_source(self, name: str) -> str:
        """Return the source, for inspect and torch.jit.script."""
        short = name.removeprefix(PACKAGE).lstrip(".")
        source = self.sources.get(short)
        return source if isinstance(source, str) else self.texts.get(short, "")

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self.names.append(module.__name__)
        short = module.__name__.removeprefix(PACKAGE).lstrip(".")
        if not short:
            return
        module.__file__ = filename(short, self.folder)
        exec(compile_module(self.sources[short], module.__file__), module.__dict__)


def compile_module(source: Source, name: str) -> CodeType:
    if isinstance(source, BaseException):
        raise source
    if isinstance(source, CodeType):
        return source
    return compile(source, name, "exec", dont_inherit=True)


def filename(module: str, folder: str = PACKAGE) -> str:
    """Return the file name of a module in tracebacks."""
    return f"{folder}/{module}.py"


@contextmanager
def imported(
    sources: Mapping[str, Source], folder: str = PACKAGE, texts: Mapping[str, str] = {}
) -> Iterator[None]:
    """While open, PACKAGE consists of `sources`; then all is as it was before."""
    modules = _remove_modules(sys.modules) if PACKAGE in sys.modules else {}
    finder = Sources(sources, folder, texts)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _remove_modules(finder.names)
        sys.modules.update(modules)


def _remove_modules(names: Iterable[str]) -> dict[str, ModuleType]:
    """Return the modules of PACKAGE among these, and let Python forget them."""
    modules = [name for name in names if name.split(".")[0] == PACKAGE and name in sys.modules]
    return {name: sys.modules.pop(name) for name in modules}
