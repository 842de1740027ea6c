"""The directory: services register in it, and are found in it for as long as they answer."""

from trio_cogment.directory_server.requests import Inquiry as Inquiry
from trio_cogment.directory_server.requests import Service as Service
from trio_cogment.directory_server.server import DirectoryServer as DirectoryServer
