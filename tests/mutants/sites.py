"""Sites of a module that can be changed so that it matters: the walk over its tree, and what it leaves out.

Left out is what nobody could notice by what the program does: docstrings, annotations, imports, what is for type
checkers, texts for people (what is logged, sentences, what errors say), `__repr__`, `recount` (which only simulations
call), `__all__`, `__slots__`, homes of lazy names, decorators and assertions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from tests.mutants.operators import OPERATORS, Operator

_LOGS = frozenset({"log", "_log", "logger", "_logger", "logging", "warnings"})
#: Methods by which the pure code has something logged, and functions that are for type checkers.
_NOTES = frozenset({"note"})
_TYPING = frozenset({"cast", "TypeVar", "NewType", "ParamSpec", "getLogger", "assert_never", "overload"})
#: Functions for people, and for tests alone.
_NOT_IN_USE = frozenset({"__repr__", "__str__", "recount"})
#: Also the homes of lazy names, which `tests/test_public_names.py` compares with what type checkers are told.
_NAMES_FOR_TOOLS = frozenset({"__all__", "__slots__", "__hash__", "_HOMES"})
_NOT_RUN = frozenset({"overload", "abstractmethod"})


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A node of a module that has operators.

    Attributes:
        node: the node.
        scope: the function or class it is in, as `__qualname__` has it but for `<locals>`; empty in the module itself.
        lines: where it is evaluated: of a statement with a body its head, of a function the beginning of its body.
        statement: the lines of the statement that it is in.
        operators: what can change it.
    """

    node: cst.CSTNode
    scope: str
    lines: range
    statement: range
    operators: tuple[Operator, ...]


def sites(source: str) -> tuple[cst.Module, list[Site]]:
    """Return a module's tree, and where it can be changed."""
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    walk = _Walk()
    wrapper.visit(walk)
    return wrapper.module, walk.found


def variants(site: Site) -> Iterator[tuple[str, cst.CSTNode]]:
    """Yield what may stand at a site, with the name of the operator."""
    for operator in site.operators:
        for node in operator(site.node):
            yield operator.__name__, node


@dataclass
class _Walk(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    found: list[Site] = field(default_factory=list)
    _scopes: list[str] = field(default_factory=list)
    _statement: range = range(0)
    _in_errors: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _left_out(node):
            return False
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            self._statement = self._lines(_head(node))
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._scopes.append(node.name.value)
        operators = OPERATORS.get(type(node), ())
        if operators and not self._means_nothing(node):
            lines = self._lines(_head(node))
            self.found.append(Site(node, ".".join(self._scopes), lines, self._statement, operators))
        self._in_errors += isinstance(node, cst.Raise)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if _left_out(original_node):
            return
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._scopes.pop()
        self._in_errors -= isinstance(original_node, cst.Raise)

    def _lines(self, node: cst.CSTNode) -> range:
        position = self.get_metadata(PositionProvider, node)
        return range(position.start.line, position.end.line + 1)

    def _means_nothing(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.SimpleString):
            return self._in_errors > 0
        # Of types, at the level of the module: `A | B`.
        return not self._scopes and isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitOr)


def _head(node: cst.CSTNode) -> cst.CSTNode:
    """Return what of a node is evaluated when it is reached."""
    if isinstance(node, cst.If | cst.While | cst.IfExp | cst.CompIf):
        return node.test
    if isinstance(node, cst.For):
        return node.iter
    if isinstance(node, cst.ExceptHandler) and node.type is not None:
        return node.type
    if isinstance(node, cst.FunctionDef) and isinstance(node.body, cst.IndentedBlock):
        return _head(node.body.body[1 if node.get_docstring() is not None and len(node.body.body) > 1 else 0])
    if isinstance(node, cst.With):
        return node.items[0]
    if isinstance(node, cst.Try) and isinstance(node.body, cst.IndentedBlock):
        return _head(node.body.body[0])
    return node


def _left_out(node: cst.CSTNode) -> bool:
    """Tell whether nothing is changed in a node, nor in what it has in it."""
    if isinstance(
        node,
        cst.Annotation
        | cst.Decorator
        | cst.Import
        | cst.ImportFrom
        | cst.Assert
        | cst.FormattedString
        | cst.ConcatenatedString,
    ):
        return True
    if isinstance(node, cst.Expr):
        return isinstance(node.value, cst.SimpleString | cst.ConcatenatedString) or _only_logs(node.value)
    if isinstance(node, cst.Call):
        return _only_logs(node) or _called(node) in _TYPING
    if isinstance(node, cst.Arg):  # of a task; and of `zip` an assertion
        name = "" if node.keyword is None else node.keyword.value
        return name == "name" or (name == "strict" and _last_name(node.value) == "True")
    if isinstance(node, cst.If):
        return isinstance(node.test, cst.Name) and node.test.value == "TYPE_CHECKING"
    if isinstance(node, cst.FunctionDef):
        decorators = {_last_name(one.decorator) for one in node.decorators}
        return node.name.value in _NOT_IN_USE or bool(decorators & _NOT_RUN)
    if isinstance(node, cst.ClassDef):
        return any(_last_name(base.value) in ("Protocol", "TypedDict", "NamedTuple") for base in node.bases)
    if isinstance(node, cst.Assign):
        return any(isinstance(one.target, cst.Name) and one.target.value in _NAMES_FOR_TOOLS for one in node.targets)
    if isinstance(node, cst.AnnAssign):
        return _last_name(node.annotation.annotation) == "TypeAlias"
    return False


def _only_logs(node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    logger = node.func.value
    return node.func.attr.value in _NOTES or (isinstance(logger, cst.Name) and logger.value in _LOGS)


def _called(call: cst.Call) -> str:
    return _last_name(call.func)


def _last_name(node: cst.BaseExpression) -> str:
    """Return the name that a dotted, subscripted or called expression ends with."""
    if isinstance(node, cst.Call):
        return _last_name(node.func)
    if isinstance(node, cst.Subscript):
        return _last_name(node.value)
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""
