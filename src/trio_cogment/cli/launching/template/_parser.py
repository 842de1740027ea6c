"""Tokens as a tree. Everything that can be wrong whatever the data are is found here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trio_cogment.cli.launching.template._errors import TemplateError
from trio_cogment.cli.launching.template._functions import FUNCTIONS
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
from trio_cogment.cli.launching.template._tokens import Kind, Token, number, tokens_of, unquoted

#: How deep parentheses and control structures may be nested.
MAX_DEPTH = 50

_CONSTANTS = {"true": True, "false": False, "nil": None}
_BLOCKS = {block.value: block for block in Block}
_JUMPS = {jump.value: jump for jump in Jump}
#: Of no use in a value of a launch file.
_REFUSED = frozenset({"define", "block", "template"})
_KEYWORDS = frozenset({*_BLOCKS, *_JUMPS, *_REFUSED, "else", "end"})


def parse(template: str) -> list[Node]:
    """Return the nodes of a template.

    Raises:
        TemplateError: it is wrong.
    """
    return _Parser(template).template()


class _Parser:
    def __init__(self, template: str) -> None:
        self._tokens = list(tokens_of(template))
        self._position = 0
        self._depth = 0
        self._loops = 0
        #: The variables that are known, those of inner structures last.
        self._variables = ["$"]

    def template(self) -> list[Node]:
        nodes, ended_by = self._nodes()
        if ended_by:
            raise TemplateError(f"{{{{{ended_by}}}}} without a structure that it belongs to")
        return nodes

    # Structures

    def _nodes(self) -> tuple[list[Node], str]:
        """Parse up to `else` or `end`; return which one it was, or "" at the end of the template."""
        nodes: list[Node] = []
        while self._position < len(self._tokens):
            token = self._take()
            if token.kind is Kind.TEXT:
                nodes.append(token.text)
                continue
            self._skip_blanks()
            keyword = self._peek()
            if keyword.kind is not Kind.WORD or keyword.text not in _KEYWORDS:
                nodes.append(Output(self._pipeline(Kind.CLOSE)))
                continue
            self._take()
            if keyword.text == "end":
                self._close("end")
            if keyword.text in ("else", "end"):
                return nodes, keyword.text  # what follows `else` is left to its structure
            if keyword.text in _JUMPS:
                nodes.append(self._jump(keyword.text))
            elif keyword.text in _BLOCKS:
                nodes.append(self._control(_BLOCKS[keyword.text]))
            else:
                raise TemplateError(f"{keyword.text!r} is not supported in launch files")
        return nodes, ""

    def _jump(self, keyword: str) -> Jump:
        self._close(keyword)
        if not self._loops:
            raise TemplateError(f"{{{{{keyword}}}}} outside of {{{{range}}}}")
        return _JUMPS[keyword]

    def _control(self, block: Block) -> Control:
        with self._nested(), self._scope():
            control = Control(block, self._pipeline(Kind.CLOSE, targets=2 if block is Block.RANGE else 1))
            self._loops += block is Block.RANGE
            with self._scope():
                control.body, ended_by = self._nodes()
            self._loops -= block is Block.RANGE
            if ended_by == "else":
                control.otherwise, ended_by = self._otherwise(block)
            if ended_by != "end":
                raise TemplateError(
                    f"{{{{{block.value}}}}} without {{{{end}}}}"
                    if not ended_by
                    else f"{{{{{block.value}}}}} has a second {{{{else}}}}"
                )
        return control

    def _otherwise(self, block: Block) -> tuple[list[Node], str]:
        self._skip_blanks()
        again = self._peek()
        if again.kind is Kind.WORD and again.text == block.value and block is not Block.RANGE:
            # `{{else if}}` needs no `{{end}}` of its own: that of the inner structure ends both.
            self._take()
            return [self._control(block)], "end"
        self._close("else")
        with self._scope():
            return self._nodes()

    @contextmanager
    def _scope(self) -> Iterator[None]:
        known = len(self._variables)
        yield
        del self._variables[known:]

    @contextmanager
    def _nested(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TemplateError(f"more than {MAX_DEPTH} structures within each other")
        yield
        self._depth -= 1

    # Pipelines

    def _pipeline(self, end: Kind, targets: int = 1) -> Pipeline:
        names, declares = self._targets(targets)
        commands: list[tuple[Operand, ...]] = []
        while True:
            operands = self._operands()
            if not operands:
                raise TemplateError(f"expected a value before {self._peek().text!r}")
            commands.append(operands)
            token = self._take()
            if token.kind is end:
                break
            if token.kind is not Kind.PIPE:
                raise TemplateError(f"unexpected {token.text!r}")
        for place, operands in enumerate(commands):
            if (place or len(operands) > 1) and not isinstance(operands[0], Function):
                raise TemplateError("only a function takes arguments")
        if declares:
            self._variables += names
        return Pipeline(tuple(commands), names, declares)

    def _targets(self, most: int) -> tuple[tuple[str, ...], bool]:
        """Parse `$x :=`, `$x =` or `$i, $x :=`, if it is there."""
        start = self._position
        names: list[str] = []
        self._skip_blanks()
        while self._peek().kind is Kind.VARIABLE and len(names) < most:
            names.append(self._take().text)
            self._skip_blanks()
            token = self._take()
            if token.kind is Kind.COMMA:
                self._skip_blanks()
            elif token.kind in (Kind.DECLARE, Kind.ASSIGN):
                if token.kind is Kind.ASSIGN:
                    for name in names:
                        self._check_variable(name)
                return tuple(names), token.kind is Kind.DECLARE
            else:
                break
        self._position = start
        return (), False

    def _operands(self) -> tuple[Operand, ...]:
        """Parse the operands of one command; between two of them there is a blank."""
        found: list[Operand] = []
        self._skip_blanks()
        while (operand := self._operand(first=not found)) is not None:
            found.append(operand)
            if not self._skip_blanks():
                break
        return tuple(found)

    def _operand(self, *, first: bool) -> Operand | None:
        token = self._peek()
        match token.kind:
            case Kind.STRING | Kind.RAW:
                self._take()
                return Literal(unquoted(token))
            case Kind.CHARACTER:
                self._take()
                text = unquoted(token)
                if len(text) != 1:
                    raise TemplateError(f"expected one character, got {token.text}")
                return Literal(ord(text))
            case Kind.NUMBER:
                self._take()
                return Literal(number(token))
            case Kind.DOT | Kind.FIELD:
                if token.kind is Kind.DOT:
                    self._take()
                return Dot(self._fields())
            case Kind.VARIABLE:
                self._take()
                self._check_variable(token.text)
                return Variable(token.text, self._fields())
            case Kind.LEFT:
                self._take()
                with self._nested():
                    return Chain(self._pipeline(Kind.RIGHT), self._fields())
            case Kind.WORD:
                self._take()
                return self._word(token.text, first=first)
            case _:
                return None

    def _word(self, word: str, *, first: bool) -> Operand:
        if word in _CONSTANTS:
            if word == "nil" and first:
                raise TemplateError("nil is no command")
            return Literal(_CONSTANTS[word])
        if word in _KEYWORDS:
            raise TemplateError(f"unexpected {word!r}")
        if word not in FUNCTIONS:
            raise TemplateError(f"unknown function {word!r}; a variable is written .{word}")
        return Function(word)

    def _fields(self) -> tuple[str, ...]:
        names = []
        while self._peek().kind is Kind.FIELD:
            names.append(self._take().text[1:])
        return tuple(names)

    def _check_variable(self, name: str) -> None:
        if name not in self._variables:
            raise TemplateError(f"unknown variable {name}; a variable of the environment is written .{name[1:]}")

    # Tokens

    def _peek(self) -> Token:
        return self._tokens[self._position]  # an action always ends with CLOSE

    def _take(self) -> Token:
        token = self._tokens[self._position]
        self._position += 1
        return token

    def _skip_blanks(self) -> bool:
        skipped = False
        while self._peek().kind is Kind.SPACE:
            self._position += 1
            skipped = True
        return skipped

    def _close(self, keyword: str) -> None:
        self._skip_blanks()
        token = self._take()
        if token.kind is not Kind.CLOSE:
            raise TemplateError(f"unexpected {token.text!r} after {keyword!r}")
