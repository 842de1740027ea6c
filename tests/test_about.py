"""Versions and statuses."""

from __future__ import annotations

import os

import pytest

from trio_cogment import about


def test_load_is_percent_of_the_processors_within_what_a_directory_understands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for average, expected in ((0.0, 0), (1.0, 25), (4.0, 100), (100.0, 254)):
        monkeypatch.setattr(os, "getloadavg", lambda average=average: (average, 0.0, 0.0))
        assert about.overall_load() == expected


def test_a_system_without_load_averages_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", missing)
    assert about.overall_load() == 0


def test_star_means_all_and_unknown_names_are_passed_over() -> None:
    statuses = {"a": lambda: "1", "b": lambda: "2"}
    assert dict(about.status_reply(["*", "bogus"], statuses).statuses) == {"a": "1", "b": "2"}
    assert dict(about.status_reply(["b", "bogus"], statuses).statuses) == {"b": "2"}
    assert not about.status_reply([], statuses).statuses
