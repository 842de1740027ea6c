"""Go's template language, as values of launch files have it: `{{.PORT}}`, `{{if}}`, `{{printf}}`, pipelines.

Source: the documentation of Go's packages `text/template` and `fmt`. The data of a template are names and texts. What
has no use in a single value (`define`, `block`, `template`, `call`) is refused.
"""

from trio_cogment.cli.launching.template._template import Template
from trio_cogment.cli.launching.template._values import TemplateError, plain

__all__ = [
    "Template",
    "TemplateError",
    "plain",
]
