"""Uses of what a module has made at import: a constant, a field's default, a table.

A test reaches nearly every module that it imports, so that nothing is learnt from which tests reach a constant's line.
What is looked for is its name, in the functions of its package: those lines, and those of what is made of it in turn.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.mutants.drawing import SOURCE

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Uses:
    """The names of some modules.

    Args:
        sources: the modules' texts, by file.
    """

    def __init__(self, sources: dict[str, str]) -> None:
        self._trees = {file: ast.parse(source) for file, source in sources.items()}
        #: Lines of functions, by the names in them.
        self._lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
        #: What is bound at import, by the names that it is made of.
        self._made: dict[str, set[str]] = defaultdict(set)
        for file, tree in self._trees.items():
            for statement in _at_import(tree):
                self._note(file, statement)

    def _note(self, file: str, statement: ast.stmt) -> None:
        bound = set(_bound(statement))
        for node in ast.walk(statement):
            if isinstance(node, _FUNCTIONS):
                for inner in node.body:
                    for name, line in _names(inner):
                        self._lines[name].add((file, line))
        for part in _evaluated(statement):
            for name, _ in _names(part):
                self._made[name] |= bound

    def of(self, file: str, lines: range) -> set[tuple[str, int]]:
        """Return the lines, with their files, that use what is evaluated at import in some lines of a module."""
        found: set[tuple[str, int]] = set()
        names: list[str] = []
        for statement in _at_import(self._trees[file]):
            if any(part.lineno <= lines.start <= (part.end_lineno or 0) for part in _evaluated(statement)):
                names += _bound(statement)
                if isinstance(statement, _FUNCTIONS):
                    found.update((file, line) for inner in statement.body for line in _own_lines(inner))
        for name in names:
            names += self._made[name].difference(names)
        return found.union(*(self._lines[name] for name in names))


def _at_import(node: ast.Module | ast.stmt | ast.excepthandler) -> Iterator[ast.stmt]:
    """Yield the statements that run at import, without those that only have others in them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS):
            yield child
        elif isinstance(child, ast.ClassDef | ast.If | ast.Try | ast.With | ast.For | ast.ExceptHandler):
            yield from _at_import(child)
        elif isinstance(child, ast.stmt):
            yield child


def _bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, _FUNCTIONS):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [name for target in targets if target is not None for name, _ in _names(target)]


def _evaluated(statement: ast.stmt) -> list[ast.expr]:
    """Return what of a statement is evaluated at import."""
    if isinstance(statement, _FUNCTIONS):
        defaults = [*statement.args.defaults, *statement.args.kw_defaults]
        return [*statement.decorator_list, *(default for default in defaults if default is not None)]
    value = getattr(statement, "value", None)
    return [] if value is None else [value]


def _names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.end_lineno or node.lineno


def _own_lines(tree: ast.stmt) -> Iterator[int]:
    return (node.lineno for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt))


@cache
def uses_in(package: str) -> Uses:
    """Return the names in the modules of a package."""
    files = sorted((SOURCE / package).rglob("*.py"))
    return Uses({file.relative_to(SOURCE).as_posix(): Path(file).read_text() for file in files})
