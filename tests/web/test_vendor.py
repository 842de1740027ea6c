"""The JavaScript libraries in the package are the published ones."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.vendor_js import FOLDER, MANIFEST, complaints


def test_the_files_are_as_the_tool_writes_them() -> None:
    assert list(complaints()) == []


def test_changes_are_seen(tmp_path: Path) -> None:
    folder = tmp_path / "vendor"
    shutil.copytree(FOLDER, folder)
    (folder / "htm.js").write_bytes(b"export default 1\n")
    (folder / "other.js").write_bytes(b"")
    (folder / "uplot.css").unlink()
    assert list(complaints(folder)) == [
        "other.js: nobody knows where it is from",
        "uplot.css: it is missing",
        "htm.js: it has been changed",
    ]
    manifest = folder / MANIFEST
    manifest.write_text(manifest.read_text().replace("3.1.1", "3.1.0"))
    assert "versions.json: it is of other versions" in list(complaints(folder))
    manifest.unlink()
    assert len(list(complaints(folder))) == 1


def test_nothing_is_from_elsewhere() -> None:
    """What the policy of pages would refuse is not tried: code from text, and files of other servers."""
    for path in FOLDER.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert "eval(" not in text, path
        assert "new Function" not in text, path
        assert "import(" not in text, path
        assert "sourceMappingURL" not in text, path
