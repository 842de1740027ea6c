"""Messages of the trainer service, made by protoc from `protos/`.

Their descriptors live in `POOL` and not in the pool of the process: the published client declares the same names there,
and protobuf refuses a second declaration that differs.
"""

from __future__ import annotations

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
POOL.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
