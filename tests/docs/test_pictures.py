"""Pictures that are drawn by this repository."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(name="curve", scope="module")
def _curve() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_curve", ROOT / "tools" / "draw_curve.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_point_is_the_mean_of_a_window(curve: ModuleType) -> None:
    assert curve.means([1, 3, 5, 7, 9], 2) == [2, 6]


def test_each_seed_has_a_curve(curve: ModuleType) -> None:
    root = ET.fromstring(curve.drawing({1: [0.0] * 40, 7: [500.0] * 40}, 20))
    low, high = (line.attrib["points"].split() for line in root.iter(f"{SVG}polyline"))
    assert len(low) == len(high) == 2
    assert {float(point.split(",")[1]) for point in low} == {curve.HEIGHT - curve.BOTTOM}
    assert {float(point.split(",")[1]) for point in high} == {curve.TOP}
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"seed 1", "seed 7", "episode"} <= set(texts)


def test_the_picture_names_its_command(curve: ModuleType) -> None:
    root = ET.parse(curve.TARGET).getroot()
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text is not None
    assert title.text.endswith(curve.COMMAND)
    assert len(list(root.iter(f"{SVG}polyline"))) == 3
    assert curve.COMMAND in (ROOT / "docs" / "rl.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["trial.svg", "learning-curve.svg"])
def test_pictures_load_nothing(name: str) -> None:
    for element in ET.parse(ROOT / "docs" / "images" / name).iter():
        assert not any(key.endswith("href") for key in element.attrib)
