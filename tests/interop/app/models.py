"""A user of the model registry: `python models.py --records FOLDER --name NAME [--registry URL]`.

It takes orders, see orders.py; without a URL the registry is discovered. A model in an order is a text and how many
times that is repeated; in an answer it is a size and a digest. Orders that begin with `old_` go by the older of the
SDK's two clients.
"""

import argparse
import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import cog_settings
import cogment
from connecting import add_options, connecting, endpoint
from orders import Servant, serve_orders


def told_model(model: bytes | None) -> Any:
    return None if model is None else [len(model), hashlib.sha256(model).hexdigest()]


def told_info(info: Any) -> dict[str, Any]:
    return {
        "model": info.model_name,
        "iteration": info.iteration,
        "timestamp": info.timestamp,
        "hash": info.hash,
        "size": info.size,
        "stored": info.stored,
        "properties": dict(info.properties),
    }


def told_version(info: Any) -> dict[str, Any]:
    return {
        "iteration": info.version_number,
        "timestamp": info.creation_timestamp,
        "hash": info.data_hash,
        "size": info.data_size,
        "stored": info.archived,
    }


class Models(Servant):
    """Sends, fetches and follows models."""

    def __init__(self, registry: Any, old: Any) -> None:
        super().__init__()
        self._registry = registry
        self._old = old
        self._tracked: dict[str, Any] = {}

    async def send(
        self, model: str, stored: bool, text: str = "", times: int = 1, properties: dict[str, str] | None = None
    ) -> Any:
        """Send a version, or with an empty text only see to it that the model is there."""
        content = text.encode() * times if text else None
        send = self._registry.store_model if stored else self._registry.publish_model
        info = await send(model, content, properties)
        return None if info is None else told_info(info)

    async def retrieve(self, model: str, **iteration: int) -> Any:
        return told_model(await self._registry.retrieve_model(model, **iteration))

    async def remove(self, model: str) -> None:
        await self._registry.remove_model(model)

    async def update(self, model: str, properties: dict[str, str]) -> None:
        await self._registry.update_model_info(model, properties)

    async def models(self) -> Any:
        return {info.name: dict(info.properties) for info in await self._registry.list_models()}

    async def model(self, model: str) -> Any:
        info = await self._registry.get_model_info(model)
        return None if info is None else {info.name: dict(info.properties)}

    async def iterations(self, model: str) -> Any:
        return [told_info(info) for info in await self._registry.list_iterations(model)]

    async def iteration(self, model: str, iteration: int) -> Any:
        info = await self._registry.get_iteration_info(model, iteration)
        return None if info is None else told_info(info)

    async def follow(self, model: str) -> None:
        """Follow its versions in the background; see `followed`."""
        updates = self._registry.iteration_updates(model)

        async def entries() -> AsyncIterator[Any]:
            async for info in updates:
                yield told_info(info)

        self._follow(model, entries())

    async def track(self, model: str, wait_seconds: int = 0) -> None:
        """Keep its latest version at hand, as a text; see `tracked`."""
        self._tracked[model] = await self._registry.track_latest_model(model, _length_of, wait_seconds)

    async def tracked(self, model: str, newer_than: int = 0) -> Any:
        """Wait for a version newer than this, and return it."""
        latest = self._tracked[model]
        await latest.wait_for_newer(newer_than)
        length, info = await latest.get()
        return {"length": length, **told_info(info)}

    async def old_send(
        self, model: str, text: str, first: bool = False, archived: bool = False, **data: dict[str, Any]
    ) -> Any:
        version = cogment.Model(model, text.encode(), **data)
        if first:
            return told_version(await self._old.store_initial_version(version))
        return told_version(await self._old.store_version(version, archived=archived))

    async def old_retrieve(self, model: str, **version: int) -> Any:
        found = await self._old.retrieve_version(model, **version)
        if found is None:
            return None
        return {
            "model": found.id,
            "user_data": dict(found.user_data),
            "version_user_data": dict(found.version_user_data),
            "text": found.serialized_model.decode(),
            "version": told_version(found.stored_version_info),
        }

    async def old_info(self, model: str) -> Any:
        found = await self._old.retrieve_model_info(model)
        return None if found is None else {found.id: dict(found.user_data)}


def _length_of(model: bytes) -> int:
    return len(model)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--registry")
    add_options(parser)
    args = parser.parse_args()

    context = cogment.Context(user_id=args.name, cog_settings=cog_settings, **connecting(args))
    where = endpoint(args, *([args.registry] if args.registry else []))
    registry = await context.get_model_registry_v2(where)
    old = await context.get_model_registry(where)
    await serve_orders(Models(registry, old), args.records, args.name)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
