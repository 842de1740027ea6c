"""Templates as tokens, and tokens as a tree. Whatever is wrong for all data is found here."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
from trio_cogment.cli.launching.template._values import TemplateError

# Templates as tokens: text, the ends of actions, and what lies between them.

_BLANKS = " \t\r\n"
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'"}
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\\"'])|([0-7]{3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
#: An integer of a template has 64 bits.
_INTEGERS = range(-(2**63), 2**63)


class Kind(enum.Enum):
    """What a token is; the patterns are tried in this order."""

    SPACE = r"[ \t\r\n]+"
    STRING = r'"(?:\\.|[^"\\\n])*"'
    RAW = r"`[^`]*`"
    CHARACTER = r"'(?:\\.|[^'\\\n])+'"
    VARIABLE = r"\$\w*"
    NUMBER = r"[+-]?\.?[0-9](?:[eEpP][+-]|[\w.])*"
    FIELD = r"\.\w+"
    DOT = r"\."
    WORD = r"[^\W\d]\w*"
    DECLARE = r":="
    ASSIGN = r"="
    PIPE = r"\|"
    COMMA = r","
    LEFT = r"\("
    RIGHT = r"\)"
    # Not within actions.
    TEXT = r"(?!)text"
    OPEN = r"(?!)open"
    CLOSE = r"(?!)close"


_TOKEN = re.compile("|".join(f"(?P<{kind.name}>{kind.value})" for kind in Kind))
#: What may follow a name or a number directly.
_TERMINATORS = frozenset(f"{_BLANKS}.,|:=()}}")
_TERMINATED = frozenset({Kind.VARIABLE, Kind.NUMBER, Kind.FIELD, Kind.WORD, Kind.CHARACTER})


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a template.

    Attributes:
        kind: what it is.
        text: as it was written; of TEXT, what is left of it by the trim markers beside it.
    """

    kind: Kind
    text: str


def tokens_of(template: str) -> Iterator[Token]:
    """Yield the tokens of a template; comments are left out.

    Raises:
        TemplateError: an action or a comment is not closed, or holds something that is not a token.
    """
    position = 0
    trim = False
    while True:
        start = template.find("{{", position)
        text = template[position:] if start < 0 else template[position:start]
        if trim:
            text = text.lstrip(_BLANKS)
        if start < 0:
            if text:
                yield Token(Kind.TEXT, text)
            return
        position = start + 2
        if template.startswith("-", position) and template[position + 1 : position + 2] in tuple(_BLANKS):
            text = text.rstrip(_BLANKS)
            position += 2
        if text:
            yield Token(Kind.TEXT, text)
        if template.startswith("/*", _after_blanks(template, position)):
            position, trim = _after_comment(template, start, _after_blanks(template, position))
        else:
            found: list[Token] = []
            position, trim = _action(template, start, position, found)
            yield Token(Kind.OPEN, "{{")
            yield from found
            yield Token(Kind.CLOSE, "}}")


def _after_blanks(template: str, position: int) -> int:
    return len(template) - len(template[position:].lstrip(_BLANKS))


def _after_comment(template: str, start: int, position: int) -> tuple[int, bool]:
    """Return where the text after a comment begins, and whether it is trimmed."""
    end = template.find("*/", position + 2)
    if end < 0:
        raise TemplateError(f"a comment is not closed: {_shown(template[start:])}")
    end += 2
    for close in ("}}", *(f"{blank}-}}}}" for blank in _BLANKS)):
        if template.startswith(close, end):
            return end + len(close), len(close) > 2
    raise TemplateError(f"expected }}}} right after a comment: {_shown(template[start:])}")


def _action(template: str, start: int, position: int, found: list[Token]) -> tuple[int, bool]:
    """Collect the tokens of an action; return where the text after it begins, and whether it is trimmed."""
    while True:
        if template.startswith("}}", position):
            return position + 2, False
        if template.startswith("-}}", position) and template[position - 1] in _BLANKS:
            return position + 3, True
        match = _TOKEN.match(template, position)
        if match is None or match.lastgroup is None:
            raise _problem(template, start, position)
        kind = Kind[match.lastgroup]
        position = match.end()
        if kind in _TERMINATED and template[position : position + 1] not in _TERMINATORS:
            raise _problem(template, start, position)
        found.append(Token(kind, match.group()))


def _problem(template: str, start: int, position: int) -> TemplateError:
    rest = template[position:]
    if not rest:
        return TemplateError(f"an action is not closed by }}}}: {_shown(template[start:])}")
    if rest[0] in "\"'`":
        return TemplateError(f"a quote is not closed: {_shown(rest)}")
    return TemplateError(f"unexpected {rest[0]!r} in {_shown(template[start:])}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


# The values of literals


def unquoted(token: Token) -> str:
    """Return the text of a STRING, a RAW or a CHARACTER.

    Raises:
        TemplateError: it has an escape that means nothing.
    """
    inner = token.text[1:-1]
    if token.kind is Kind.RAW:
        return inner
    # Escapes may stand for single bytes, which need not be UTF-8.
    parts: list[bytes] = []
    position = 0
    while position < len(inner):
        if inner[position] != "\\":
            end = inner.find("\\", position)
            end = len(inner) if end < 0 else end
            parts.append(inner[position:end].encode(errors="surrogateescape"))
            position = end
            continue
        match = _ESCAPE.match(inner, position)
        if match is None:
            raise TemplateError(f"unknown escape {_shown(inner[position : position + 2])} in {_shown(token.text)}")
        parts.append(_escaped(match))
        position = match.end()
    return b"".join(parts).decode(errors="surrogateescape")


def _escaped(match: re.Match[str]) -> bytes:
    name, octal, byte, short, long = match.groups()
    if name:
        return _ESCAPES[name].encode()
    if octal or byte:
        value = int(octal, 8) if octal else int(byte, 16)
        if value > 255:
            raise TemplateError(f"the escape {match.group()!r} is not a byte")
        return bytes([value])
    code = int(short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise TemplateError(f"the escape {match.group()!r} is not a character")
    return chr(code).encode()


def number(token: Token) -> int | float:
    """Return the value of a NUMBER.

    Raises:
        TemplateError: it is none, or has more than 64 bits.
    """
    text = token.text
    # A leading zero alone makes it octal.
    legacy = re.fullmatch(r"([+-]?)0_?([0-7][0-7_]*)", text)
    value: int | float
    try:
        if re.match(r"[+-]?0[xX]", text) and "p" in text.lower():
            value = float.fromhex(text)
        elif re.search(r"[.eEpP]", text) and not re.match(r"[+-]?0[xX]", text):
            value = float(text)
        else:
            value = int(f"{legacy[1]}0o{legacy[2]}" if legacy else text, 0)
    except (ValueError, OverflowError):
        raise TemplateError(f"expected a number, got {_shown(text)}") from None
    if isinstance(value, int) and value not in _INTEGERS:
        raise TemplateError(f"{_shown(text)} has more than 64 bits")
    return value


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
                raise TemplateError("nil is not a command")
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
