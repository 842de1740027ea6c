"""The dashboard's view of a directory."""

from __future__ import annotations

import json
from typing import Any, cast

from trio_cogment.api.directory_pb2 import FullServiceData
from trio_cogment.dashboard._server_pages import ServerPages

ID = 7136970930957654897


class Registered:
    """Stands in for a directory's client."""

    async def inquire(self) -> list[FullServiceData]:
        return [FullServiceData(service_id=ID)]


async def test_an_id_is_told_with_all_its_digits() -> None:
    """JavaScript would read the number as 7136970930957655000."""
    unused = cast(Any, None)
    pages = ServerPages(unused, directory=cast(Any, Registered()), metrics=None, clock=unused, began=0.0)
    [service] = json.loads((await pages.directory(unused)).body)["services"]
    assert service["id"] == str(ID)
