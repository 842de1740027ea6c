"""The directory: services register in it, and are found in it for as long as they answer."""

from trio_cogment.directory.requests import Inquiry as Inquiry
from trio_cogment.directory.requests import Service as Service
from trio_cogment.directory.server import DirectoryServer as DirectoryServer
from trio_cogment.directory.service import directory_services as directory_services
