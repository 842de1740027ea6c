"""The model registry: stores and serves versions of trained models."""

from trio_cogment.model_registry.blobs import Blob as Blob
from trio_cogment.model_registry.blobs import BlobStore as BlobStore
from trio_cogment.model_registry.blobs import Upload as Upload
from trio_cogment.model_registry.local import LocalBlobs as LocalBlobs
from trio_cogment.model_registry.registry import ModelRegistry as ModelRegistry
from trio_cogment.model_registry.service import model_registry_services as model_registry_services
