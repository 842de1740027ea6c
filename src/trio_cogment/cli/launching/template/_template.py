"""A template that is parsed once and evaluated with data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from trio_cogment.cli.launching.template._functions import call
from trio_cogment.cli.launching.template._nodes import (
    Block,
    Chain,
    Control,
    Dot,
    Function,
    Jump,
    Literal,
    Node,
    Operand,
    Output,
    Pipeline,
    Variable,
)
from trio_cogment.cli.launching.template._parser import parse
from trio_cogment.cli.launching.template._values import TemplateError, Value, described, is_true, plain

#: What is written for a variable that is not there.
NO_VALUE = "<no value>"
#: Texts are values of a launch file: an output this long is a mistake.
MAX_OUTPUT = 1_000_000
#: How often all `range`s together may go round.
MAX_ROUNDS = 100_000


class Template:
    """A template.

    Args:
        source: its text.

    Raises:
        TemplateError: it is wrong, whatever the data.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._nodes = parse(source)

    def render(self, data: Mapping[str, str], missing: set[str] | None = None) -> str:
        """Return the text for some variables.

        Args:
            data: the variables.
            missing: gets the names of the variables for which `<no value>` was written.

        Raises:
            TemplateError: a function refuses its arguments.
        """
        evaluation = _Evaluation(data, set() if missing is None else missing)
        evaluation.nodes(self._nodes, data)
        return "".join(evaluation.output)


class _Jumped(Exception):  # noqa: N818  it is not an error
    """`break` or `continue`, on the way to its `range`."""

    def __init__(self, jump: Jump) -> None:
        self.jump = jump


class _Evaluation:
    def __init__(self, data: Mapping[str, str], missing: set[str]) -> None:
        self.output: list[str] = []
        self._length = 0
        self._rounds = 0
        self._missing = missing
        #: The innermost one of a name is the last.
        self._variables: list[tuple[str, Value]] = [("$", data)]

    def nodes(self, nodes: Iterable[Node], dot: Value) -> None:
        for node in nodes:
            if isinstance(node, str):
                self._write(node)
            elif isinstance(node, Output):
                value = self._pipeline(node.pipeline, dot)
                if not node.pipeline.targets:
                    self._write(NO_VALUE if value is None else plain(value))
                    self._note(node.pipeline, value)
            elif isinstance(node, Control):
                self._control(node, dot)
            else:
                raise _Jumped(node)

    def _write(self, text: str) -> None:
        self._length += len(text)
        if self._length > MAX_OUTPUT:
            raise TemplateError(f"it makes more than {MAX_OUTPUT} characters")
        self.output.append(text)

    def _note(self, pipeline: Pipeline, value: Value) -> None:
        """Remember a variable that is written although it is not there."""
        operand = pipeline.commands[0][0]
        if value is None and len(pipeline.commands) == 1 and isinstance(operand, Dot) and operand.names:
            self._missing.add(operand.names[-1])

    # Structures

    def _control(self, control: Control, dot: Value) -> None:
        known = len(self._variables)
        value = self._pipeline(control.pipeline, dot)
        if control.block is Block.RANGE:
            self._range(control, value, dot)
        elif is_true(value):
            self.nodes(control.body, value if control.block is Block.WITH else dot)
        else:
            self.nodes(control.otherwise, dot)
        del self._variables[known:]

    def _range(self, control: Control, value: Value, dot: Value) -> None:
        targets = control.pipeline.targets
        known = len(self._variables) - len(targets) * control.pipeline.declares
        before = self._rounds
        for key, item in _items(value):
            self._rounds += 1
            if self._rounds > MAX_ROUNDS:
                raise TemplateError(f"range: more than {MAX_ROUNDS} rounds")
            del self._variables[known:]
            for name, one in zip(targets, (key, item) if len(targets) == 2 else (item,), strict=False):
                self._set(name, one, declares=control.pipeline.declares)
            try:
                self.nodes(control.body, item)
            except _Jumped as jumped:
                if jumped.jump is Jump.BREAK:
                    break
        if self._rounds == before:
            self.nodes(control.otherwise, dot)

    def _set(self, name: str, value: Value, *, declares: bool) -> None:
        if declares:
            self._variables.append((name, value))
            return
        place = next(place for place in reversed(range(len(self._variables))) if self._variables[place][0] == name)
        self._variables[place] = (name, value)

    # Values

    def _pipeline(self, pipeline: Pipeline, dot: Value) -> Value:
        value: Value = None
        for place, operands in enumerate(pipeline.commands):
            value = self._command(operands, dot, (value,) if place else ())
        for name in pipeline.targets:
            self._set(name, value, declares=pipeline.declares)
        return value

    def _command(self, operands: tuple[Operand, ...], dot: Value, piped: tuple[Value, ...]) -> Value:
        first, *others = operands
        if not isinstance(first, Function):
            return self._value(first, dot)
        if first.name in ("and", "or") and (others or piped):
            return self._shortcut(first.name, others, dot, piped)
        return call(first.name, [*(self._value(operand, dot) for operand in others), *piped])

    def _shortcut(self, name: str, operands: list[Operand], dot: Value, piped: tuple[Value, ...]) -> Value:
        """Evaluate operands up to the one that decides."""

        def values() -> Iterator[Value]:
            for operand in operands:
                yield self._value(operand, dot)
            yield from piped

        value: Value = None
        for value in values():
            if is_true(value) is (name == "or"):
                break
        return value

    def _value(self, operand: Operand, dot: Value) -> Value:
        match operand:
            case Literal(value):
                return value
            case Dot(names):
                return _fields(dot, names)
            case Variable(name, names):
                found = next(value for known, value in reversed(self._variables) if known == name)
                return _fields(found, names)
            case Function(name):
                return call(name, [])
            case Chain(pipeline, names):
                return _fields(self._pipeline(pipeline, dot), names)


def _fields(value: Value, names: tuple[str, ...]) -> Value:
    for name in names:
        if not isinstance(value, Mapping):
            raise TemplateError(f".{name}: {described(value)} has no variables in it")
        value = value.get(name)
    return value


def _items(value: Value) -> Iterator[tuple[Value, Value]]:
    if isinstance(value, Mapping):
        for name in sorted(value):
            yield name, value[name]
    elif isinstance(value, int) and not isinstance(value, bool):
        for number in range(value):
            yield number, number
    elif value is not None:
        raise TemplateError(f"range: cannot go through {described(value)}")
