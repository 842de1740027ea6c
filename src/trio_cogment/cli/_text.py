"""Texts that somebody else has chosen, for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text on one line, in which nothing tells a terminal what to do; the rest is escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
