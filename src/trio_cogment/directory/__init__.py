"""The directory: services register in it, and inquiries find those that pass their health checks."""

from trio_cogment.directory._requests import Inquiry as Inquiry
from trio_cogment.directory._requests import Service as Service
from trio_cogment.directory._server import DirectoryServer as DirectoryServer
from trio_cogment.directory._service import directory_services as directory_services
