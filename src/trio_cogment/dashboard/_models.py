"""Models for pages: their versions, which came of which, and what is in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.dashboard._stored import attachment
from trio_cogment.sdk import ModelRegistryClient
from trio_cogment.web.replies import Reply, Send, Streamed, json_data
from trio_cogment.web.routing import AnyRoute, Route, Visit

_MODELS = "/cogmentAPI.ModelRegistrySP/RetrieveModels"
_VERSIONS = "/cogmentAPI.ModelRegistrySP/RetrieveVersionInfos"
_DATA = "/cogmentAPI.ModelRegistrySP/RetrieveVersionData"
_MAX_MODELS = 1000
_MAX_VERSIONS = 1000
_MAX_DIGITS = 9


class ModelPages:
    """See the module.

    Args:
        registry_of: returns the registry, for the calls of a visitor.
    """

    def __init__(self, registry_of: Callable[[Visit], Awaitable[ModelRegistryClient]]) -> None:
        self._registry_of = registry_of

    def routes(self, prefix: str) -> list[AnyRoute]:
        """Return the routes.

        Args:
            prefix: of their paths.
        """
        return [
            Route("GET", f"{prefix}/models", self.models, right=_MODELS),
            Route("GET", f"{prefix}/models/{{name}}", self.versions, right=_VERSIONS),
            Route("GET", f"{prefix}/models/{{name}}/{{version}}", self.data, right=_DATA),
        ]

    async def models(self, visit: Visit) -> Reply:
        """Answer with the models."""
        found: list[dict[str, Any]] = []
        registry = await self._registry_of(visit)
        async for model in registry.list_models():
            if len(found) < _MAX_MODELS:
                found.append({"name": model.model_id, "data": dict(model.user_data)})
        return json_data({"models": found})

    async def versions(self, visit: Visit) -> Reply:
        """Answer with a model and its last versions."""
        registry, name = await self._registry_of(visit), visit.parameters["name"]
        info = await registry.model_info(name)
        found: deque[dict[str, Any]] = deque(maxlen=_MAX_VERSIONS)
        async for version in registry.list_versions(name):
            found.append(_version(version))
        return json_data({"name": name, "data": dict(info.user_data), "versions": list(found)})

    async def data(self, visit: Visit) -> Streamed:
        """Answer with the data of a version."""
        registry = await self._registry_of(visit)
        name, text = visit.parameters["name"], visit.parameters["version"]
        if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
            raise InvalidArgumentError(f"version: expected a number, got {text[:64]!r}")
        info = await registry.version_info(name, int(text))

        async def write(send: Send) -> None:
            async with aclosing(registry.stream(name, info.version_number)) as pieces:
                async for piece in pieces:
                    await send(piece)

        saved = attachment(f"{name}-{info.version_number}")
        return Streamed(200, b"application/octet-stream", write, (saved,))


def _version(info: ModelVersionInfo) -> dict[str, Any]:
    return {
        "number": info.version_number,
        "time": info.creation_timestamp / 1e9,
        "archived": info.archived,
        "hash": info.data_hash,
        "size": info.data_size,
        "data": dict(info.user_data),
    }
