"""Putting a mutant into a process that has been forked for it: never into a file of the source.

Most mutants change functions that are there already, in a process that has imported everything. There the code of each
of these function objects is exchanged, so that whoever holds one has the mutant. A change of what runs while a module
is imported (a table, a default, a class's fields, a function that makes one of these) cannot be put in later: then the
process has to be one that has not imported the package yet, and gets the mutant instead of the module's source.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from tests.mutants.drawing import SOURCE, Mutant, nested, same_own

#: Functions of a module that are alive, by where their code is: its qualified name, and its first line.
Living = Mapping[str, Mapping[tuple[str, int], Sequence[FunctionType]]]


class ImportTimeError(Exception):
    """A mutant changes what runs when its module is imported."""


def living_functions() -> Living:
    """Return all function objects that there are of the package, by file."""
    found: dict[str, dict[tuple[str, int], list[FunctionType]]] = defaultdict(lambda: defaultdict(list))
    gc.unfreeze()  # a server of an earlier test has left out of all collections what there was
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            path = Path(one.__code__.co_filename)
            if path.is_relative_to(SOURCE):
                where = one.__code__.co_qualname, one.__code__.co_firstlineno
                found[path.relative_to(SOURCE).as_posix()][where].append(one)
    return found


def exchange(mutant: Mutant, living: Living, run_at_import: Collection[int]) -> None:
    """Give functions that are there the code that a mutant has for them.

    Args:
        mutant: the mutant.
        living: all functions of the package.
        run_at_import: lines of the module's functions that have run when it was imported.

    Raises:
        ImportTimeError: it has changed what has run already. Nothing was exchanged then.
    """
    path = SOURCE / mutant.file
    before = _codes(compile(path.read_text(), str(path), "exec", dont_inherit=True))
    after = _codes(compile(mutant.source, str(path), "exec", dont_inherit=True))
    if [code.co_qualname for code in before] != [code.co_qualname for code in after]:
        raise ImportTimeError(mutant.name)
    where = [(code.co_qualname, code.co_firstlineno) for code in before]
    for old, new in zip(before, after, strict=True):
        if same_own(old, new):
            continue
        lines = {line for _, _, line in old.co_lines() if line is not None}
        if not old.co_name.startswith("<"):  # of a definition the first line has run, which is not the body's
            lines.discard(old.co_firstlineno)
        is_function = bool(old.co_flags & 2)  # CO_NEWLOCALS, which neither modules nor classes have
        is_one_of_many = where.count((old.co_qualname, old.co_firstlineno)) > 1
        if not is_function or is_one_of_many or lines & set(run_at_import) or old.co_freevars != new.co_freevars:
            raise ImportTimeError(mutant.name)
    for old, new in zip(before, after, strict=True):
        for function in living.get(mutant.file, {}).get((old.co_qualname, old.co_firstlineno), ()):
            if function.__code__.co_freevars == new.co_freevars:
                function.__code__ = new


def _codes(code: CodeType) -> list[CodeType]:
    found = [code]
    for one in found:
        found.extend(nested(one))
    return found


def plant(mutant: Mutant, living: Living, run_at_import: Collection[int]) -> None:
    """Exchange functions as `exchange` does, or have a module that is imported only when it is needed be the mutant.

    Raises:
        ImportTimeError: see `exchange`.
    """
    if module_name(mutant) in sys.modules:
        exchange(mutant, living, run_at_import)
    else:
        import_instead(mutant)


def module_name(mutant: Mutant) -> str:
    """Return the name by which a mutant's module is imported."""
    parts = ["trio_cogment", *Path(mutant.file).with_suffix("").parts]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def import_instead(mutant: Mutant) -> None:
    """Let the module be imported from a mutant, in a process that has not imported it yet."""
    name = module_name(mutant)
    assert name not in sys.modules, f"{name} is imported already"
    sys.meta_path.insert(0, _Finder(name, mutant))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, mutant: Mutant) -> None:
        self._name = name
        self._mutant = mutant

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        path = SOURCE / self._mutant.file
        places = [str(path.parent)] if path.name == "__init__.py" else None
        loader = _Loader(fullname, str(path), self._mutant.source)
        return importlib.util.spec_from_file_location(fullname, path, loader=loader, submodule_search_locations=places)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        """Return the mutant's, and read or write no file of bytecode."""
        return compile(self._source, self.path, "exec", dont_inherit=True)
