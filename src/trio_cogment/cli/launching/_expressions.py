r"""Regular expressions as launch files have them, in the syntax of RE2, for Python's `re`.

Source: RE2's page "Syntax". What Python has no word for (`\pL`, `\C`, the flag `U`) is refused. Python has some more
than RE2, such as looking ahead, and that works.
"""

from __future__ import annotations

import re
import warnings

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|(?P<end>\\z)"
    r"|\\x\{(?P<code>[0-9A-Fa-f]{1,8})\}"
    r"|(?P<escape>\\.)"
    r"|\(\?(?P<flags>[a-zA-Z]*-?[a-zA-Z]*)\)"
    r"|\(\?<(?P<name>[^=!>]\w*)>"
    r"|(?P<open>\()"
    r"|(?P<close>\))"
    r"|(?P<or>\|)"
    r"|(?P<set>\[\^?\]?)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_IN_SET = re.compile(
    r"\[:(?P<not>\^?)(?P<class>\w+):\]"
    r"|\\x\{(?P<code>[0-9A-Fa-f]{1,8})\}"
    r"|(?P<escape>\\.)"
    r"|(?P<end>\])"
    r"|(?P<other>.)",
    re.DOTALL,
)
#: Python keeps them for sets of sets.
_RESERVED_IN_SETS = frozenset("[&~|")


def compiled(expression: str) -> re.Pattern[str]:
    r"""Return an expression of RE2 as one of Python.

    As in RE2, `\d`, `\s`, `\w` and `\b` know ASCII only.

    Raises:
        ValueError: it is none, or Python cannot express it.
    """
    translated = _translated(expression)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        what = error.msg if isinstance(error, re.error) else str(error)  # positions are those of the translation
        raise ValueError(what) from None


def _translated(expression: str) -> str:
    parts: list[str] = []
    #: For each group that is open, the flags that were set within it.
    flags: list[list[str]] = [[]]
    position = 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        assert match is not None  # the last alternative takes anything
        position = match.end()
        kind, text = match.lastgroup, match.group()
        if kind == "set":
            position = _set(expression, position, text, parts)
        elif kind == "flags":
            # They count up to the end of the group; Python has them at the begin of one only.
            flags[-1].append(f"(?{match['flags']}:")
            parts.append(flags[-1][-1])
        elif kind == "close":
            parts.append(")" * (len(flags.pop()) + 1))
            if not flags:
                raise ValueError("unbalanced parenthesis")
        elif kind == "or":
            parts += [")" * len(flags[-1]), "|", *flags[-1]]
        else:
            parts.append(_single(match))
            if kind in ("open", "name"):
                flags.append([])
    if len(flags) > 1:
        raise ValueError("missing ), unterminated subpattern")
    return "".join([*parts, ")" * len(flags[0])])


def _single(match: re.Match[str]) -> str:
    match match.lastgroup:
        case "quoted":
            return re.escape(match["quoted"])
        case "end":
            return r"\Z"
        case "code":
            return _character(match["code"])
        case "name":
            return f"(?P<{match['name']}>"
        case _:
            return match.group()


def _set(expression: str, position: int, start: str, parts: list[str]) -> int:
    """Translate a set from behind its start; return where it ends."""
    parts.append(start)
    while (match := _IN_SET.match(expression, position)) is not None:
        position = match.end()
        match match.lastgroup:
            case "class":
                name = match["class"]
                if match["not"] or name not in _CLASSES:
                    raise ValueError(f"unknown class {match.group()!r}")
                parts.append(_CLASSES[name])
            case "code":
                parts.append(_character(match["code"]))
            case "other" if match.group() in _RESERVED_IN_SETS:
                parts.append(f"\\{match.group()}")
            case kind:
                parts.append(match.group())
                if kind == "end":
                    return position
    raise ValueError("unterminated character set")


def _character(code: str) -> str:
    if int(code, 16) > 0x10FFFF:
        raise ValueError(f"there is no character {code}")
    return f"\\U{int(code, 16):08x}"
