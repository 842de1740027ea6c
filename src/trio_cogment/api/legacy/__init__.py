"""Messages of the legacy Cogment API, generation 0.3, made by protoc from `protos/cogment_legacy`.

Their descriptors live in `POOL` and not in the pool of the process: their files are called as those of the present API,
and the published package of that time declares the same names.
"""

from __future__ import annotations

from google.protobuf import any_pb2
from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
POOL.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
