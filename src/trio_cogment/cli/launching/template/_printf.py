"""`printf`, with the verbs and flags of Go's package `fmt`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trio_cogment.cli.launching.template._values import Value, encoded, plain, quoted, shortest, type_name

#: Wider columns and higher precisions are refused, as in Go.
MAX_WIDTH = 1_000_000

_VERB = re.compile(
    r"%(?P<flags>[-+# 0]*)"
    r"(?:(?P<width_at>\[\d+\])?(?P<width>\*)|(?P<columns>\d+))?"
    r"(?P<precision>\.(?:(?P<digits_at>\[\d+\])?(?P<star>\*)|(?P<digits>\d*)))?"
    r"(?P<at>\[\d+\])?(?P<verb>[^\d\[\]*])?",
    re.DOTALL,
)
_BASES = {"b": ("b", "0b"), "o": ("o", "0"), "O": ("o", ""), "x": ("x", "0x"), "X": ("X", "0X"), "d": ("d", "")}


@dataclass(frozen=True, slots=True)
class Form:
    """How one argument is written: `%` with flags, width and precision."""

    verb: str
    flags: frozenset[str] = frozenset()
    width: int = 0
    precision: int | None = None

    def padded(self, text: str, *, zeros: bool = False) -> str:
        """Return a text as wide as is wanted; zeros are put between the sign and the digits."""
        if "-" in self.flags:
            return text.ljust(self.width)
        if zeros and "0" in self.flags:
            sign = text[:1] if text[:1] in ("+", "-", " ") else ""
            return sign + text[len(sign) :].rjust(self.width - len(sign), "0")
        return text.rjust(self.width)

    def signed(self, negative: bool, text: str) -> str:
        """Return the digits of a number with their sign."""
        if negative:
            return f"-{text}"
        return f"+{text}" if "+" in self.flags else f" {text}" if " " in self.flags else text


def sprintf(template: str, arguments: Sequence[Value]) -> str:
    """Return a text with each verb replaced by its argument.

    What is wrong shows in the text, as in Go: `%!d(string=x)`, `%!d(MISSING)`, `%!(EXTRA int=1)`.
    """
    return _Format(arguments).text(template)


class _Format:
    def __init__(self, arguments: Sequence[Value]) -> None:
        self._arguments = arguments
        self._next = 0
        self._reordered = False

    def text(self, template: str) -> str:
        parts = []
        position = 0
        while (start := template.find("%", position)) >= 0:
            parts.append(template[position:start])
            match = _VERB.match(template, start)
            assert match is not None  # it may be the percent sign alone
            parts.append(self._one(match))
            position = match.end()
        parts.append(template[position:])
        rest = self._arguments[self._next :]
        if rest and not self._reordered:
            extra = ", ".join(f"{type_name(one)}={plain(one)}" if one is not None else "<nil>" for one in rest)
            parts.append(f"%!(EXTRA {extra})")
        return "".join(parts)

    def _one(self, match: re.Match[str]) -> str:
        wrong = ""
        flags = set(match["flags"])
        width: int | None = int(match["columns"]) if match["columns"] else 0
        if match["width"]:
            width = self._star(match["width_at"])
            if width is not None and width < 0:
                flags.add("-")
                width = -width
        if width is None or width > MAX_WIDTH:
            wrong, width = f"{wrong}%!(BADWIDTH)", 0
        precision: int | None = None
        if match["precision"]:
            precision = self._star(match["digits_at"]) if match["star"] else int(match["digits"] or 0)
            if match["star"] and precision is not None and precision < 0:
                precision = None
            elif precision is None or precision > MAX_WIDTH:
                wrong, precision = f"{wrong}%!(BADPREC)", None
        verb = match["verb"]
        if verb is None:
            return f"{wrong}%!(NOVERB)"
        if verb == "%":
            return f"{wrong}%"
        if not self._go_to(match["at"]):
            return f"{wrong}%!{verb}(BADINDEX)"
        if self._next >= len(self._arguments):
            return f"{wrong}%!{verb}(MISSING)"
        self._next += 1
        return wrong + _written(self._arguments[self._next - 1], Form(verb, frozenset(flags), width, precision))

    def _star(self, at: str | None) -> int | None:
        """Return a width that is an argument itself; None if it is not a number."""
        if not self._go_to(at) or self._next >= len(self._arguments):
            return None
        self._next += 1
        value = self._arguments[self._next - 1]
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_WIDTH:
            return None
        return value

    def _go_to(self, at: str | None) -> bool:
        """Go to the argument that is named by its number, if one is."""
        if at is None:
            return True
        self._reordered = True
        if not 1 <= int(at[1:-1]) <= len(self._arguments):
            return False
        self._next = int(at[1:-1]) - 1
        return True


def _written(value: Value, form: Form) -> str:
    if form.verb == "T":
        return form.padded(type_name(value))
    written: str | None = None
    if value is None or isinstance(value, Mapping):
        written = form.padded(plain(value)) if form.verb == "v" else None
    elif isinstance(value, bool):
        written = form.padded(plain(value)) if form.verb in "tv" else None
    elif isinstance(value, int):
        written = _integer(value, form)
    elif isinstance(value, float):
        written = _float(value, form)
    else:
        written = _string(value, form)
    if written is not None:
        return written
    return f"%!{form.verb}({'<nil>' if value is None else f'{type_name(value)}={plain(value)}'})"


def _integer(value: int, form: Form) -> str | None:
    verb = "d" if form.verb == "v" else form.verb
    if verb in ("c", "q", "U"):
        valid = 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000
        one = chr(value) if valid else "\ufffd"
        if verb == "U":
            return form.padded(f"U+{value:04X}" + (f" '{one}'" if "#" in form.flags and one.isprintable() else ""))
        # Within single quotes it is the other quote that needs its escape.
        inner = "\\'" if one == "'" else '"' if one == '"' else quoted(one)[1:-1]
        return form.padded(one if verb == "c" else f"'{inner}'")
    if verb not in _BASES:
        return None
    base, prefix = _BASES[verb]
    digits = format(abs(value), base)
    if form.precision is not None:
        digits = "" if form.precision == 0 and not value else digits.rjust(form.precision, "0")
    shown = "0o" if verb == "O" else prefix if "#" in form.flags else ""
    text = form.signed(value < 0, digits)
    sign = text[: len(text) - len(digits)]
    if "0" in form.flags and "-" not in form.flags and form.precision is None:
        digits = digits.rjust(form.width - len(sign), "0")
    return form.padded(f"{sign}{shown}{digits}")


def _float(value: float, form: Form) -> str | None:
    verb = "g" if form.verb == "v" else form.verb
    if verb not in ("e", "E", "f", "F", "g", "G"):
        return None
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Inf"
        sign = "-" if value < 0 else "+" if "+" in form.flags or name == "Inf" else ""
        return Form(verb, form.flags - {"0"}, form.width).padded(f"{sign}{name}")
    if verb in ("g", "G") and form.precision is None:
        digits = shortest(abs(value))
        digits = digits.upper() if verb == "G" else digits
    else:
        digits = f"%.{6 if form.precision is None else form.precision}{verb}" % abs(value)
    return form.padded(form.signed(math.copysign(1, value) < 0, digits), zeros=True)


def _string(value: str, form: Form) -> str | None:
    text = value if form.precision is None else value[: form.precision]
    match form.verb:
        case "s":
            pass
        case "v":
            text = quoted(text) if "#" in form.flags else text
        case "q":
            text = f"`{text}`" if "#" in form.flags and "`" not in text and text.isprintable() else quoted(text)
        case "x" | "X":
            data = encoded(value)[: form.precision]
            text = data.hex(" ") if " " in form.flags else data.hex()
            text = f"0x{text}" if "#" in form.flags and text else text
            text = text.upper() if form.verb == "X" else text
        case _:
            return None
    return form.padded(text)
