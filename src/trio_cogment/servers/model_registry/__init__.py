"""The model registry: stores and serves versions of trained models."""

from trio_cogment.servers.model_registry._local_blobs import LocalBlobs
from trio_cogment.servers.model_registry._model_registry import ModelRegistry
from trio_cogment.servers.model_registry._service import model_registry_services
from trio_cogment.servers.model_registry.blobs import Blob, BlobStore, Upload

__all__ = [
    "Blob",
    "BlobStore",
    "LocalBlobs",
    "ModelRegistry",
    "Upload",
    "model_registry_services",
]
