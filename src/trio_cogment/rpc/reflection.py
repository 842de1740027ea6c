"""Server reflection, v1 and v1alpha: what services a server has, and their `.proto` files, for clients without them.

The two versions are alike but for the names of their packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import Default as DefaultPool
from google.protobuf.descriptor_pool import DescriptorPool
from purerpc import Service

from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc._protos import reflection_v1_pb2, reflection_v1alpha_pb2
from trio_cogment.rpc.calls import ServerCall
from trio_cogment.rpc.service import bind

_VERSIONS: tuple[Any, ...] = (reflection_v1_pb2, reflection_v1alpha_pb2)


def reflection_services(services: Iterable[Service]) -> list[Service]:
    """Return the services that describe `services` and themselves, one for each version of the protocol.

    Of a service that was not made from a descriptor only the name can be told.
    """
    described = list(services)
    names: list[str] = []
    pools: list[DescriptorPool] = []
    reflections = [
        bind(version.DESCRIPTOR.services_by_name["ServerReflection"], _Reflection(version, names, pools))
        for version in _VERSIONS
    ]
    for service in [*described, *reflections]:
        names.append(service.name)
        for method in service.methods.values():
            pool = method.signature.request_type.DESCRIPTOR.file.pool
            if pool not in pools:
                pools.append(pool)
    if DefaultPool() not in pools:
        pools.append(DefaultPool())  # it may know what is inside of an Any
    return reflections


class _Reflection:
    """Answers the questions of one version.

    Args:
        version: the module with its messages.
        names: the services, filled in later.
        pools: where to look, in order; filled in later.
    """

    def __init__(self, version: Any, names: Sequence[str], pools: Sequence[DescriptorPool]) -> None:
        self._messages = version
        self._names = names
        self._pools = pools
        self._answers: dict[str, Callable[[Any, Any], None]] = {
            "file_by_filename": self._file_by_filename,
            "file_containing_symbol": self._file_containing_symbol,
            "file_containing_extension": self._file_containing_extension,
            "all_extension_numbers_of_type": self._all_extension_numbers_of_type,
            "list_services": self._list_services,
        }

    async def ServerReflectionInfo(self, call: ServerCall) -> None:
        async for request in call:
            await call.send(self._answer(request))

    def _answer(self, request: Any) -> Any:
        response = self._messages.ServerReflectionResponse(valid_host=request.host, original_request=request)
        kind = request.WhichOneof("message_request")
        if kind is None:
            self._refuse(response, StatusCode.INVALID_ARGUMENT, "the request asks nothing")
            return response
        try:
            self._answers[kind](getattr(request, kind), response)
        except KeyError:
            self._refuse(response, StatusCode.NOT_FOUND, "not known here")
        return response

    def _refuse(self, response: Any, code: StatusCode, message: str) -> None:
        response.error_response.error_code = code
        response.error_response.error_message = message

    def _find(self, find: Callable[[DescriptorPool], Any]) -> Any:
        """Return what the first pool gives that has it; KeyError if none has."""
        for pool in self._pools:
            try:
                return find(pool)
            except KeyError:
                continue
        raise KeyError

    def _file_by_filename(self, name: str, response: Any) -> None:
        self._describe(self._find(lambda pool: pool.FindFileByName(name)), response)

    def _file_containing_symbol(self, symbol: str, response: Any) -> None:
        def find(name: str) -> Any:
            return self._find(lambda pool: pool.FindFileContainingSymbol(name))

        try:
            found = find(symbol)
        except KeyError:
            parent, _, last = symbol.rpartition(".")
            found = find(parent)
            if not _has_member(found, parent, last):
                raise
        self._describe(found, response)

    def _file_containing_extension(self, wanted: Any, response: Any) -> None:
        def find(pool: DescriptorPool) -> Any:
            extended = pool.FindMessageTypeByName(wanted.containing_type)
            return pool.FindExtensionByNumber(extended, wanted.extension_number)

        self._describe(self._find(find).file, response)

    def _all_extension_numbers_of_type(self, name: str, response: Any) -> None:
        def find(pool: DescriptorPool) -> Any:
            return pool.FindAllExtensions(pool.FindMessageTypeByName(name))

        answer = response.all_extension_numbers_response
        answer.base_type_name = name
        answer.extension_number.extend(sorted(extension.number for extension in self._find(find)))

    def _list_services(self, _: str, response: Any) -> None:
        for name in sorted(self._names):
            response.list_services_response.service.add(name=name)

    def _describe(self, file: FileDescriptor, response: Any) -> None:
        files = {found.name: found.serialized_pb for found in _with_dependencies(file, set())}
        response.file_descriptor_response.file_descriptor_proto.extend(files.values())


def _has_member(file: FileDescriptor, parent: str, name: str) -> bool:
    """Whether a service has this method: not every implementation of protobuf finds methods by name."""
    service = file.services_by_name.get(parent.rpartition(".")[2])
    return service is not None and service.full_name == parent and name in service.methods_by_name


def _with_dependencies(file: FileDescriptor, seen: set[str]) -> Iterator[FileDescriptor]:
    """Yield a file and whatever it imports, itself first."""
    if file.name not in seen:
        seen.add(file.name)
        yield file
        for dependency in file.dependencies:
            yield from _with_dependencies(dependency, seen)
