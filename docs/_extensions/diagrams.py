"""Shows the diagrams of the pages, which are written in mermaid, with a copy of mermaid that the site brings along.

`nox -s docs` fetches the copy. A site that is built without it shows the text of the diagrams.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.parsers.rst import Directive

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: Where the copy is expected, within the folder of the pages.
FOLDER = Path("_build") / "mermaid"
_SCRIPT = "mermaid.min.js"


class _Diagram(Directive):
    has_content = True

    def run(self) -> list[nodes.Node]:
        text = "\n".join(self.content)
        # A literal block is what readers without JavaScript, and builders of other formats, show.
        return [nodes.literal_block(text, text, classes=["mermaid"], language="none")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Turn fences with `mermaid` into diagrams."""
    app.add_directive("mermaid", _Diagram)
    if (Path(app.srcdir) / FOLDER / _SCRIPT).exists():
        app.connect("builder-inited", lambda app: app.config.html_static_path.append(str(FOLDER)))
        app.add_js_file(_SCRIPT)
        app.add_js_file(None, body=_DRAW)
    return {"parallel_read_safe": True}


_DRAW = """
addEventListener("DOMContentLoaded", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const sources = document.querySelectorAll("div.mermaid pre");
  for (const source of sources) {
    const drawn = document.createElement("div");
    drawn.className = "drawn";
    drawn.textContent = source.textContent;
    source.closest("div.mermaid").replaceWith(drawn);
  }
  mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "default" });
  mermaid.run({ querySelector: ".drawn" });
});
"""
