"""Resolves references of the API pages that Sphinx does not resolve alone; what is left then is a mistake.

Annotations name things as their module does: by an alias, by what is imported for type checkers only, by where a class
is defined and not by where it is described. So a name is looked up as the module would look it up:

- what a page describes becomes a link;
- what other libraries have, and what is in private modules of this project, stays text, as long as it exists. The site
  is built and read without a network, so it does not link to other sites;
- everything else is reported, and `nox -s docs` fails.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import TYPE_CHECKING, Any, TypeVar

import public_api
from docutils import nodes
from messages import described_message
from names import OWN, MissingNameError, meaning
from sphinx import addnodes
from sphinx.util.nodes import find_pending_xref_condition

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Resolve the references of each page when it has been read."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("doctree-read", _resolve)
    app.connect("autodoc-process-signature", _without_objects)
    return {"parallel_read_safe": True}


def _resolve(_app: Sphinx, document: nodes.document) -> None:
    for node in list(document.findall(addnodes.pending_xref)):
        if node.get("refdomain") != "py" or node.get("reftype") == "mod":
            continue
        try:
            page = _described(node["reftarget"], node)
        except MissingNameError:
            continue  # perhaps Sphinx knows it
        if page is not None:
            # Exactly this one, and none that ends with the same name.
            node["reftarget"], node["reftype"], node["refspecific"] = page, "obj", False
        else:
            short = find_pending_xref_condition(node, "resolved")
            node.replace_self(list((short or node).children))


def _described(name: str, node: nodes.Node) -> str | None:
    """Return the name under which a page describes what a reference names; None: text is enough.

    Raises:
        MissingNameError: it names nothing, or something that should be described.
    """
    if "~" in name:  # a type variable, as `typing` writes it
        return None
    if (message := described_message(name)) is not None:
        return message
    value = _meaning(name, node)
    page = public_api.described(value)
    if page is None and _should_be_described(value):
        raise MissingNameError(name)
    return page


def _should_be_described(value: object) -> bool:
    """Tell whether a value is a class or function of a public module.

    A type variable, or an alias, says nothing that is not said where it is used.
    """
    if not (inspect.isclass(value) or inspect.isroutine(value)) or isinstance(value, TypeVar):
        return False
    return public_api.is_public(value)


def _meaning(name: str, node: nodes.Node) -> Any:
    for place in _places(node):
        try:
            return meaning(name, place)
        except MissingNameError:
            continue
    # Docstrings name errors that their module does not need to import.
    return public_api.named(name)


def _places(node: nodes.Node | None) -> list[str]:
    """Return the modules whose code may have the reference: of a member, of its class and of the bases of that."""
    while node is not None and not isinstance(node, addnodes.desc):
        node = node.parent
    if node is None:
        return [OWN]
    signature = node[0]
    found = [signature.get("module") or OWN]
    value: Any = importlib.import_module(found[0])
    for part in signature.get("fullname", "").split("."):
        value = inspect.getattr_static(value, part, None)
        value = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
        if inspect.isclass(value):
            found = [base.__module__ for base in value.__mro__] + found
        elif (module := getattr(value, "__module__", None)) is not None:
            found.insert(0, module)
    return [place for place in found if place.split(".")[0] == OWN]


def _without_objects(
    _app: Sphinx, _what: str, _name: str, _value: object, _options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write defaults that have no text of their own as `...`; Sphinx could not read the signature otherwise."""
    return (re.sub(r"<[^<>]*>", "...", signature) if signature else signature), returns
