"""The documentation site, built by `nox -s docs`: these pages as they stand, and the API from docstrings."""

from __future__ import annotations

import sys
from pathlib import Path

from trio_cogment import __version__

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "trio-cogment"
author = "the authors of trio-cogment"
project_copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib_trio",
    "diagrams",
    "public_api",
    "references",
]
myst_fence_as_directive = ["mermaid"]
#: Anchors of headings down to this level are those that other pages and GitHub use.
myst_heading_anchors = 4
#: A reference that leads nowhere is a warning, and so an error of `nox -s docs`.
nitpicky = True
# An enum of protobuf is a class to type checkers only: where an annotation is evaluated, there is nothing to refer to.
nitpick_ignore_regex = [("py:class", r"<google\.protobuf\.internal\.enum_type_wrapper\..*>")]
suppress_warnings = ["misc.highlighting_failure"]  # console sessions and templates in YAML blocks are shown as they are

exclude_patterns = ["_build", "_extensions", "_static"]

html_theme = "furo"
html_title = f"trio-cogment {__version__}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
html_js_files = ["narrow.js"]
html_show_sphinx = False

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_use_rtype = False
napoleon_use_ivar = True  # attributes are described once, in the docstring of their class
napoleon_attr_annotations = False
default_role = "code"
