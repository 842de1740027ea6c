"""The table of rights in the documents is that of the code."""

from __future__ import annotations

from tools.tables import DOCS

from trio_cogment.access.rights import RIGHTS
from trio_cogment.access.roles import Role


def test_every_call_and_every_role_is_there() -> None:
    table = (DOCS / "security.md").read_text().partition("<!-- rights: ")[2].partition("<!-- end of rights -->")[0]
    for service, methods in RIGHTS.items():
        rows = [line for line in table.splitlines() if line.startswith(f"| {service} |")]
        listed = [call.strip() for row in rows for call in row.split("|")[2].split(",")]
        assert sorted(listed) == sorted(methods)
    assert all(f"- **{role.value}** " in table for role in Role)
