"""A hand at the directory: `python finder.py --records FOLDER --name NAME --directory URL`.

It takes orders, see orders.py.
"""

import argparse
import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import cog_settings
import cogment
from cogment.directory import ServiceType
from connecting import add_options, connecting, endpoint
from orders import Servant, serve_orders


class Finder(Servant):
    """Registers services, and looks for others."""

    def __init__(self, directory: Any, endpoint: Callable[[str], Any]) -> None:
        super().__init__()
        self._directory = directory
        self._endpoint = endpoint

    async def register(self, kind: str, port: int, properties: dict[str, str], ssl: bool = False) -> Any:
        return await self._directory.register_host(ServiceType[kind], "127.0.0.1", port, ssl, properties)

    async def deregister(self, service: int, secret: str) -> None:
        await self._directory.deregister_service(service, secret)

    async def by_id(self, service: int) -> Any:
        return await self._directory.inquire_by_id(service)

    async def by_type(self, kind: str, properties: dict[str, str] | None = None) -> Any:
        return await self._directory.inquire_by_type(ServiceType[kind], properties or {})

    async def resolve(self, url: str, kind: str | None = None) -> str:
        wanted = None if kind is None else ServiceType[kind]
        return (await self._directory.get_inquired_endpoint(self._endpoint(url), wanted)).url


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--name", required=True)
    add_options(parser)
    args = parser.parse_args()

    context = cogment.Context(user_id=args.name, cog_settings=cog_settings, **connecting(args))
    await serve_orders(Finder(context.get_context_directory(), partial(endpoint, args)), args.records, args.name)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
