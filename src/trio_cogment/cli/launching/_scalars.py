"""Values of environment variables, as the reference writes them.

It reads them as YAML 1.1 with types (Go's package `yaml.v2`) and writes them as Go does: `yes` is `true`, `0x10` is
`16`, `1e3` is `1000`, and nothing is the empty text. What is in quotes stays as it is.
"""

from __future__ import annotations

import re

import yaml

from trio_cogment.cli.launching.template import plain
from trio_cogment.sdk.spec.yaml_file import is_blank

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_SPECIAL = {
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), "+Inf"),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), "-Inf"),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), "NaN"),
}
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(r"[+-]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?")
#: Larger numbers are floats.
_INTEGERS = range(-(2**63), 2**64)


def environment_text(node: yaml.ScalarNode) -> str:
    """Return the text of a scalar that is the value of an environment variable."""
    text = str(node.value)
    if node.style is not None:
        return text
    if is_blank(node):
        return ""
    if text in _TRUE or text in _FALSE:
        return "true" if text in _TRUE else "false"
    return _SPECIAL.get(text) or _number(text) or text


def quiet_value(node: yaml.ScalarNode) -> bool | None:
    """Return the boolean of a scalar, None if it is none."""
    text = str(node.value)
    return True if text in _TRUE else False if text in _FALSE else None


def _number(text: str) -> str | None:
    if text.startswith("_"):
        return None
    digits = text.replace("_", "")
    match = _INTEGER.fullmatch(digits)
    if match is not None:
        sign, *groups = match.groups()
        base, found = next((base, group) for base, group in zip((16, 2, 8, 10), groups, strict=True) if group)
        if (value := int(f"{sign}{found}", base)) in _INTEGERS:
            return str(value)
    return plain(float(digits)) if _FLOAT.fullmatch(digits) else None
