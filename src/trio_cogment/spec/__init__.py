"""The declarations of a project: actor classes, message types, and parameter files."""

from trio_cogment.spec._params_file import load_params as load_params
from trio_cogment.spec._types import ActorClass as ActorClass
from trio_cogment.spec._types import Payload as Payload
from trio_cogment.spec._types import Spec as Spec
from trio_cogment.spec._types import decode as decode
from trio_cogment.spec._types import encode as encode
