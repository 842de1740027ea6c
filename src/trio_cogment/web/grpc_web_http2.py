"""gRPC-Web over HTTP/2: which requests are served, and how their answers begin and end.

All else is the engine's (`rpc`): the messages are those of gRPC. Browsers mostly come by HTTP/1.1; programs and proxies
may not. The rules of `origins` hold here, too, or HTTP/2 would be a way around them.
"""

from __future__ import annotations

from dataclasses import dataclass

from trio_cogment.access import authorization
from trio_cogment.base.errors import InvalidArgumentError, StatusCode
from trio_cogment.rpc.relay import RawHeaders, RefusedRequest, WebRequest
from trio_cogment.web.frames import fields_frame
from trio_cogment.web.origins import OriginPolicy
from trio_cogment.web.replies import common_headers, of_handler
from trio_cogment.web.requests import call_fields, reply_type, token_in_path


@dataclass(frozen=True, slots=True)
class Http2Answer:
    """How a request is answered; see `rpc._grpc_web.WebAnswer`."""

    opening: RawHeaders

    def initial(self, fields: RawHeaders) -> RawHeaders:
        """Return those fields of a handler's initial metadata that may follow."""
        return of_handler(fields)

    def closing(self, trailers: RawHeaders) -> bytes:
        """Return the frame with which the body ends."""
        return fields_frame(trailers)


def judge(policy: OriginPolicy, secure: bool, path: str, authority: str, fields: RawHeaders) -> WebRequest:
    """Return what a request asks for; see `rpc._grpc_web.WebRules`.

    Args:
        policy: who may use the server.
        secure: it came over TLS.
        path: as it was sent.
        authority: stands for the `Host`, which must say the same if it is there.
        fields: the others.

    Raises:
        RefusedRequest: a browser may not send this.
    """
    hosts = {authority, *_texts(fields, b"host")} - {""}
    admitted = policy.admit(hosts=hosts, origins=_texts(fields, b"origin"), secure=secure)
    if isinstance(admitted, str):
        raise RefusedRequest(StatusCode.PERMISSION_DENIED, admitted, web=_answer(b"403"))
    answer = _answer(b"200", admitted.foreign)
    prefix = "" if policy.address is None else policy.address.prefix
    written = path.partition("?")[0]
    token, path = token_in_path(written.removeprefix(prefix) if written.startswith(f"{prefix}/") else written)
    wanted = call_fields(fields)
    if token and not any(name == b"authorization" for name, _ in wanted):
        try:
            wanted += [(name.encode(), value.encode()) for name, value in authorization(token)]
        except InvalidArgumentError as error:
            raise RefusedRequest(StatusCode.UNAUTHENTICATED, str(error), web=answer) from None
    return WebRequest(path, wanted, answer)


def _texts(fields: RawHeaders, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in fields if name == wanted]


def _answer(http_status: bytes, foreign: str = "") -> Http2Answer:
    return Http2Answer([(b":status", http_status), (b"content-type", reply_type(False)), *common_headers(foreign)])
