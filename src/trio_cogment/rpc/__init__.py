"""gRPC on Trio: services, calls, servers and channels; the same interface over HTTP/2 and within a process."""

from trio_cogment.errors import RpcError as RpcError
from trio_cogment.errors import StatusCode as StatusCode
from trio_cogment.rpc._nursery import OwnNursery as OwnNursery
from trio_cogment.rpc.calls import Call as Call
from trio_cogment.rpc.calls import CallOpener as CallOpener
from trio_cogment.rpc.calls import ClientCall as ClientCall
from trio_cogment.rpc.calls import Consumer as Consumer
from trio_cogment.rpc.calls import Handler as Handler
from trio_cogment.rpc.calls import MetadataLike as MetadataLike
from trio_cogment.rpc.calls import Method as Method
from trio_cogment.rpc.calls import ServerCall as ServerCall
from trio_cogment.rpc.channel import Channel as Channel
from trio_cogment.rpc.inprocess import InProcessChannel as InProcessChannel
from trio_cogment.rpc.metadata import Metadata as Metadata
from trio_cogment.rpc.server import Serving as Serving
from trio_cogment.rpc.server import open_listeners as open_listeners
from trio_cogment.rpc.server import serve as serve
from trio_cogment.rpc.server import serve_stream as serve_stream
from trio_cogment.rpc.service import bind as bind
from trio_cogment.rpc.service import methods_of as methods_of
