"""A package's own tests: which files these are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import covering


def test_the_mirror_what_names_a_module_and_faces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering, "ROOT", tmp_path)
    texts = {
        "rpc/test_own.py": "",
        "rpc/deep/test_own.py": "",
        "rpc/helpers.py": "from trio_cogment.rpc.server import serve",
        "web/test_module.py": "from trio_cogment.rpc.server import serve",
        "web/test_import.py": "def test() -> None:\n    import trio_cogment.rpc._engine",
        "web/test_front.py": "from trio_cogment.rpc import serve",
        "web/test_similar.py": "from trio_cogment.rpc_tools.server import serve",
        "interop/test_module.py": "from trio_cogment.rpc.server import serve",
        "sync/test_face.py": "",
        "servers/store/test_own.py": "",
        "servers/test_other.py": "from trio_cogment.servers.store.rows import Row",
    }
    for name, text in texts.items():
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def found(package: str) -> list[str]:
        return [path.relative_to(tmp_path / "tests").as_posix() for path in covering.own_tests(package)]

    assert found("rpc") == [
        "rpc/deep/test_own.py",
        "rpc/test_own.py",
        "web/test_import.py",
        "web/test_module.py",
    ]
    assert found("servers/store") == ["servers/store/test_own.py", "servers/test_other.py"]
    assert found("sdk") == ["sync/test_face.py"]
