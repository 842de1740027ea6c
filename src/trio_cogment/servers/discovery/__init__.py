"""Finding services: a directory's client, and keeping this server's own services registered there.

A directory is another process: it may start later than a server, be away for a while, or forget. Nothing may fail
because of that. So inquiries are made when something is needed, and nothing is cached between them; and a registration
is not an act but a state that is kept up: registered, verified from time to time, and made again when it is gone
(`registration`).

At the end a server should deregister although everything around it is being cancelled. The channel to the directory
therefore stays open for as long as that may take (`_directory_channel`), and whoever opens it owns it.
"""

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
