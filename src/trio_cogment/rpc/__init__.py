"""gRPC on Trio: services, calls, servers and channels; the same interface over HTTP/2 and within a process.

The idea is one interface of a call (`calls`) with two implementations. Over HTTP/2 a call is a stream of a connection;
in process it is two bounded queues. Handlers and callers cannot tell them apart, so the platform runs embedded, in
tests and as servers with the same code, and one conformance kit checks both.

HTTP/2 is an engine without I/O (`_engine`): bytes in, events out, so that it can be tested and fuzzed without a socket.
A connection is Trio tasks around one engine: a reader, a writer, and a few that look after deadlines. The engine is our
own where each message passes (frames, flow control), and purerpc's and h2's where it does not (SETTINGS, HPACK).

Two things make it fast. A message can be handed to a plain function in the task that has read it (a `Consumer`), which
saves a receiving task and two task switches; and what many send in one pass of Trio's loop leaves in one system call.
Two things make it safe: everything that can wait is bounded, by the stream's window or by what the process may lend
(`trio_cogment.budget`), and whatever a peer does ends its stream or its connection and nothing else.
"""

from trio_cogment._old_places import old_names as _old_names
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.shared_message import SharedMessage
from trio_cogment.rpc._by_service import ByService
from trio_cogment.rpc._call_host import CallHost, open_channel, open_in_process
from trio_cogment.rpc._nursery import OwnNursery
from trio_cogment.rpc._observer import MethodObserver, ServerObserver
from trio_cogment.rpc._shared_channels import IDLE_CHANNEL_SECONDS, SharedChannels
from trio_cogment.rpc._standard import standard_services
from trio_cogment.rpc._with_metadata import WithMetadata
from trio_cogment.rpc.calls import (
    IN_PROCESS,
    Call,
    CallOpener,
    ClientCall,
    Consumer,
    DirectCall,
    Handler,
    MetadataLike,
    Method,
    OnReply,
    ServedAtOnce,
    ServerCall,
)
from trio_cogment.rpc.channel import Channel
from trio_cogment.rpc.details import detailed_error, details_of, find_detail
from trio_cogment.rpc.health import HealthService, ServingStatus, ask_health
from trio_cogment.rpc.inprocess import InProcessChannel
from trio_cogment.rpc.interceptors import (
    CallDetails,
    ClientCallWrapper,
    ClientInterceptor,
    ServerCallWrapper,
    intercept_channel,
    intercept_services,
)
from trio_cogment.rpc.listeners import UnixListener, open_listeners, open_unix_listener
from trio_cogment.rpc.metadata import Metadata, basic_auth
from trio_cogment.rpc.reflection import reflection_services
from trio_cogment.rpc.server import RunningServer, serve, serve_stream
from trio_cogment.rpc.service import Methods, UnknownMethodError, bind, methods_of
from trio_cogment.rpc.stubs import StreamStreamMethod, StreamUnaryMethod, UnaryStreamMethod, UnaryUnaryMethod
from trio_cogment.rpc.tls import client_tls, server_tls

__all__ = [
    "IDLE_CHANNEL_SECONDS",
    "IN_PROCESS",
    "ByService",
    "Call",
    "CallDetails",
    "CallHost",
    "CallOpener",
    "Channel",
    "ClientCall",
    "ClientCallWrapper",
    "ClientInterceptor",
    "Consumer",
    "DirectCall",
    "Handler",
    "HealthService",
    "InProcessChannel",
    "Metadata",
    "MetadataLike",
    "Method",
    "MethodObserver",
    "Methods",
    "OnReply",
    "OwnNursery",
    "RpcConfig",
    "RpcError",
    "RunningServer",
    "ServedAtOnce",
    "ServerCall",
    "ServerCallWrapper",
    "ServerObserver",
    "ServingStatus",
    "SharedChannels",
    "SharedMessage",
    "StatusCode",
    "StreamStreamMethod",
    "StreamUnaryMethod",
    "UnaryStreamMethod",
    "UnaryUnaryMethod",
    "UnixListener",
    "UnknownMethodError",
    "WithMetadata",
    "ask_health",
    "basic_auth",
    "bind",
    "client_tls",
    "detailed_error",
    "details_of",
    "find_detail",
    "intercept_channel",
    "intercept_services",
    "methods_of",
    "open_channel",
    "open_in_process",
    "open_listeners",
    "open_unix_listener",
    "reflection_services",
    "serve",
    "serve_stream",
    "server_tls",
    "standard_services",
]

__getattr__ = _old_names(__name__, {"measure_turns_by": "budget.turns.measure_turns_by"})
