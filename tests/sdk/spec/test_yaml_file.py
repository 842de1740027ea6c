"""Files of YAML with positions: what is read, and the line and key that a refusal names."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.sdk.spec import yaml_file
from trio_cogment.sdk.spec.yaml_file import YamlFile, is_blank, line_of


def opened(folder: Path, text: str) -> tuple[YamlFile, yaml.Node]:
    path = folder / "file.yaml"
    path.write_text(text)
    file = YamlFile(path)
    assert file.root is not None
    return file, file.root


def test_values_are_those_that_are_not_blank(tmp_path: Path) -> None:
    file, root = opened(tmp_path, "a: 1\nb:\nc: ''\nd: [2]\n")
    found = file.values(root, "top", ("a", "b", "c", "d", "e"))
    assert "b" not in found
    assert file.text(found["a"], "top.a") == "1"
    assert [file.text(item, name) for name, item in file.items(found["d"], "top.d")] == ["2"]
    assert file.values(None, "top", ("a",)) == {}
    blank, node = opened(tmp_path, "a:\n")
    (inner,) = [value for _, _, value in blank.entries(node, "top")]
    assert is_blank(inner)
    assert blank.values(inner, "top.a", ("x",)) == {}


def test_a_key_that_is_not_known_is_named_with_its_line(tmp_path: Path) -> None:
    file, root = opened(tmp_path, "name: 1\nnaem: 2\n")
    with pytest.raises(InvalidArgumentError, match=r"file\.yaml.*2.*naem") as caught:
        file.values(root, "top", ("name",))
    assert "name" in str(caught.value)


def test_what_is_no_mapping_or_no_list(tmp_path: Path) -> None:
    file, root = opened(tmp_path, "a: [1]\n")
    (value,) = file.values(root, "top", ("a",)).values()
    assert line_of(value) == 1
    with pytest.raises(InvalidArgumentError, match="top"):
        file.values(value, "top.a", ("x",))
    with pytest.raises(InvalidArgumentError, match="top"):
        list(file.items(root, "top"))


def test_a_file_may_be_as_large_as_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_file, "MAX_BYTES", 2**20)
    text = "a: " + "x" * (2**20 - 3)
    opened(tmp_path, text)
    with pytest.raises(InvalidArgumentError, match="larger than 1 MiB"):
        opened(tmp_path, text + "x")
