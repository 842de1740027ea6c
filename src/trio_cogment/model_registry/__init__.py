"""The model registry: stores and serves versions of trained models."""

from trio_cogment.model_registry._local_blobs import LocalBlobs as LocalBlobs
from trio_cogment.model_registry._model_registry import ModelRegistry as ModelRegistry
from trio_cogment.model_registry._service import model_registry_services as model_registry_services
from trio_cogment.model_registry.blobs import Blob as Blob
from trio_cogment.model_registry.blobs import BlobStore as BlobStore
from trio_cogment.model_registry.blobs import Upload as Upload
