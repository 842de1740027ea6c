"""Finding services: a directory's client, and keeping this server's own services registered there."""

from trio_cogment.servers.discovery._directory_channel import directory_endpoint, open_directory
from trio_cogment.servers.discovery._messages import Found
from trio_cogment.servers.discovery.client import DirectoryClient, Registration
from trio_cogment.servers.discovery.registration import (
    SDK,
    Offer,
    Registrations,
    host_finder,
    keep_registered,
    own_address,
)

__all__ = [
    "SDK",
    "DirectoryClient",
    "Found",
    "Offer",
    "Registration",
    "Registrations",
    "directory_endpoint",
    "host_finder",
    "keep_registered",
    "open_directory",
    "own_address",
]
