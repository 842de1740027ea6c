"""Tables that a tool writes into pages: they are fresh, and a table of flags keeps what people have written in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import tables
from tools.tables import PAGES, TOOL, flags, stale, with_tables


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_as_the_tool_writes_them(page: str) -> None:
    assert stale(page) is None, f"run python {TOOL}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_without_a_place_for_it_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="expected the lines <!-- "):
        with_tables("# A page\n", PAGES[page])


def test_a_table_of_flags_follows_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = """<!-- flags of legacy_gateway: written by tools/tables.py -->
| `--port` | `COGMENT_OLD_PORT` | 12: its port | where `it` listens |
| `--gone` | - | none | nothing any more |
| `--prometheus_port` | - | 0: off | port of the metrics |
<!-- end of flags of legacy_gateway -->
"""
    (tmp_path / "configuration.md").write_text(page)
    monkeypatch.setattr(tables, "DOCS", tmp_path)
    rows = list(flags("legacy_gateway"))
    assert rows[2] == "| `--port` | `COGMENT_LEGACY_GATEWAY_PORT` | 9011 | where `it` listens |"
    assert rows[3].endswith(" | 0: off | port of the metrics |")
    assert "--gone" not in "".join(rows)
    [new] = [row for row in rows if row.startswith("| `--profile` ")]
    assert new.startswith("| `--profile` | `COGMENT_LEGACY_GATEWAY_PROFILE` | cogment.yaml | the project of the old ")


def test_the_flag_of_a_setting_means_what_the_setting_means() -> None:
    [row] = [row for row in flags("serve") if row.startswith("| `--keep_trials` ")]
    assert "`serve` only: how many ended trials are kept" in row
    assert row.endswith(" (`datastore.keep_trials`) |")


def test_a_flag_of_one_of_the_servers_in_a_table_says_of_which() -> None:
    others = tables.options_of("services", "orchestrator").keys(), tables.options_of("serve").keys()
    for row in list(flags("serve"))[2:]:
        name, _, _, meaning = row.strip("| ").split(" | ", 3)
        for only, other in zip(("`serve` only: ", "`services orchestrator` only: "), others, strict=True):
            assert meaning.startswith(only) is (name.strip("`") not in other), row
