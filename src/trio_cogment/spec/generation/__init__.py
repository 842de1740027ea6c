"""Modules that `trio-cogment generate` writes: for this SDK, the published Python SDK and the JavaScript SDK.

The same project gives the same bytes, whenever and wherever they are made.
"""

from trio_cogment.spec.generation._files import write_files as write_files
from trio_cogment.spec.generation._grpc import grpc_modules as grpc_modules
from trio_cogment.spec.generation._javascript import javascript_modules as javascript_modules
from trio_cogment.spec.generation._names import pascal_case as pascal_case
from trio_cogment.spec.generation._python import DEFAULT_SETTINGS as DEFAULT_SETTINGS
from trio_cogment.spec.generation._python import TYPED_SETTINGS as TYPED_SETTINGS
from trio_cogment.spec.generation._python import python_modules as python_modules
