"""Modules that `trio-cogment generate` writes: for this SDK, the published Python SDK and the JavaScript SDK.

The same project gives the same bytes, whenever and wherever they are made.
"""

from trio_cogment.sdk.spec.generation._files import write_files
from trio_cogment.sdk.spec.generation._grpc import grpc_modules
from trio_cogment.sdk.spec.generation._javascript import javascript_modules
from trio_cogment.sdk.spec.generation._names import pascal_case
from trio_cogment.sdk.spec.generation._python import DEFAULT_SETTINGS, TYPED_SETTINGS, python_modules

__all__ = [
    "DEFAULT_SETTINGS",
    "TYPED_SETTINGS",
    "grpc_modules",
    "javascript_modules",
    "pascal_case",
    "python_modules",
    "write_files",
]
