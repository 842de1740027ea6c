"""Templates as tokens: text, the ends of actions, and what lies between them."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trio_cogment.cli.launching.template._errors import TemplateError

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
        TemplateError: an action or a comment is not closed, or holds something that is no token.
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
            raise TemplateError(f"the escape {match.group()!r} is no byte")
        return bytes([value])
    code = int(short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise TemplateError(f"the escape {match.group()!r} is no character")
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
        raise TemplateError(f"{_shown(text)} is no number") from None
    if isinstance(value, int) and value not in _INTEGERS:
        raise TemplateError(f"{_shown(text)} has more than 64 bits")
    return value
