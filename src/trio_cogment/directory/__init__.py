"""Finding services: the endpoint grammar, and (later) the directory itself and its client."""

from trio_cogment.directory.endpoints import ACTOR_CLASS as ACTOR_CLASS
from trio_cogment.directory.endpoints import IMPLEMENTATION as IMPLEMENTATION
from trio_cogment.directory.endpoints import ClientEndpoint as ClientEndpoint
from trio_cogment.directory.endpoints import DiscoverEndpoint as DiscoverEndpoint
from trio_cogment.directory.endpoints import Endpoint as Endpoint
from trio_cogment.directory.endpoints import GrpcEndpoint as GrpcEndpoint
from trio_cogment.directory.endpoints import ServiceKind as ServiceKind
from trio_cogment.directory.endpoints import parse_endpoint as parse_endpoint
