"""The error of templates."""

from __future__ import annotations

from trio_cogment.base.errors import InvalidArgumentError


class TemplateError(InvalidArgumentError):
    """A template is wrong, or cannot be evaluated with these data; the text quotes the part in question."""
