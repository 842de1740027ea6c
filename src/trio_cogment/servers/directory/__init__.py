"""The directory: services register in it, and inquiries find those that pass their health checks."""

from trio_cogment.servers.directory._requests import Inquiry, Service
from trio_cogment.servers.directory._server import DirectoryServer
from trio_cogment.servers.directory._service import directory_services

__all__ = [
    "DirectoryServer",
    "Inquiry",
    "Service",
    "directory_services",
]
