"""Arrays, spaces and values of spaces: as messages, as Minari's JSON, and as Gymnasium has them.

A payload of a trial is bytes. For reinforcement learning both ends have to agree on what they mean, without a library
that both have installed: an actor may be written in another language, and stored trials outlive versions. So a space is
a message, and so is a value of one; an observation comes with reward, end, mask and information as a step of Gymnasium
returns them (`envelopes`).

Every space can do the same things (`base.Space`): check a value, write it to a message and read it back, say it as
JSON, and give its leaves as columns or tensors. Checks are strict, because a value that is silently rounded or reshaped
spoils a training run without anybody noticing. Reading is safe for bytes from anywhere: sizes are compared before
memory is taken.

Values that consist of arrays have the same bytes around their elements each time. `forms` writes and reads them by
joining and cutting bytes, which gives what protobuf would at a fraction of the time.

Needs NumPy: `pip install 'trio-cogment[arrays]'`. Nothing here knows Trio. Every error is a `SpaceError` that names the
place of the mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_cogment.base.lazy_names import lazy_names as _lazy_names
from trio_cogment.spaces.arrays import decode_array, encode_array
from trio_cogment.spaces.base import ArraySpace, Space
from trio_cogment.spaces.box import Box
from trio_cogment.spaces.columns import column_names, values_of_columns
from trio_cogment.spaces.composite import Dict, Graph, GraphValue, OneOf, Sequence, Tuple
from trio_cogment.spaces.elementary import Discrete, MultiBinary, MultiDiscrete, Text
from trio_cogment.spaces.envelopes import (
    Frame,
    Observation,
    check_action,
    decode_action,
    decode_observation,
    encode_action,
    encode_observation,
)
from trio_cogment.spaces.errors import SpaceError
from trio_cogment.spaces.gymnasium import from_gymnasium, to_gymnasium
from trio_cogment.spaces.messages import decode_space, encode_space
from trio_cogment.spaces.minari_json import from_json, from_jsonable, to_json, to_jsonable
from trio_cogment.spaces.values import decode_value, encode_value

if TYPE_CHECKING:
    from trio_cogment.spaces.space_tensors import SpaceTensors as SpaceTensors

_HOMES = {"SpaceTensors": "space_tensors"}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES)
__all__ = [
    "ArraySpace",
    "Box",
    "Dict",
    "Discrete",
    "Frame",
    "Graph",
    "GraphValue",
    "MultiBinary",
    "MultiDiscrete",
    "Observation",
    "OneOf",
    "Sequence",
    "Space",
    "SpaceError",
    "SpaceTensors",
    "Text",
    "Tuple",
    "check_action",
    "column_names",
    "decode_action",
    "decode_array",
    "decode_observation",
    "decode_space",
    "decode_value",
    "encode_action",
    "encode_array",
    "encode_observation",
    "encode_space",
    "encode_value",
    "from_gymnasium",
    "from_json",
    "from_jsonable",
    "to_gymnasium",
    "to_json",
    "to_jsonable",
    "values_of_columns",
]
