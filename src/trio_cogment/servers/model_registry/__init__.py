"""The model registry: stores and serves versions of trained models.

A version never changes. So the promise to keep is about one moment: when does a version exist? An archived one exists
when its bytes have got their name in the store of blobs, which is the last of the steps (`_archive`). Whatever is
interrupted before leaves nothing that a reader could see; a start removes it.

A number is never given twice, also not after a crash, because a learner that has seen version 7 must not see another 7.
It is given under the model's lock, and is durable before anybody can learn of it.

Transient versions are only in memory, in a cache with limits, in which the newest version of a model goes last
(`_version_cache`): a learner that publishes each step must not push out the models of others. The store of blobs asks
for no more than object stores have (`blobs`): a folder is one implementation (`LocalBlobs`), and the prefix of a bucket
another one (`ObjectBlobs`), with which nothing of a registry is on the disk of its machine.
"""

from trio_cogment.servers.model_registry._local_blobs import LocalBlobs
from trio_cogment.servers.model_registry._model_registry import ModelRegistry
from trio_cogment.servers.model_registry._object_blobs import ObjectBlobs
from trio_cogment.servers.model_registry._service import model_registry_services
from trio_cogment.servers.model_registry.blobs import Blob, BlobStore, Upload

__all__ = [
    "Blob",
    "BlobStore",
    "LocalBlobs",
    "ModelRegistry",
    "ObjectBlobs",
    "Upload",
    "model_registry_services",
]
