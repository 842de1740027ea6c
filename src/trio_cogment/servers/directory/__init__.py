"""The directory: services register in it, and inquiries find those that pass their health checks.

A registration is kept in a file and confirmed when it is written, so a restart forgets nobody. Health is not kept:
after a restart it is found out again by asking. Both together decide what an inquiry shows (`_monitored_entries`), and
the rules of both are pure: `_entries`, and a table of four states in `_health`.

The file is a document: read once, and replaced only if nobody else has. So it may be an object in a bucket as well, and
the directory starts again on another machine (`_documents`).

A change is made to a copy of the registrations, the copy is written, and only then takes the original's place
(`_changes`): an inquiry never shows what could still be lost, and a disk that fails refuses changes without disturbing
answers. Changes that come during a write share the next one.

Services are asked whether they live as long as they are registered. One that does not answer is hidden at once and
removed much later, because one that only restarts should not be used meanwhile, and should not be forgotten either.
"""

from trio_cogment.servers.directory._requests import Inquiry, Service
from trio_cogment.servers.directory._server import DirectoryServer
from trio_cogment.servers.directory._service import directory_services

__all__ = [
    "DirectoryServer",
    "Inquiry",
    "Service",
    "directory_services",
]
