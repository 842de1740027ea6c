"""Finding services: a directory's client, and keeping this server's own services registered there."""

from trio_cogment.discovery._directory_channel import directory_endpoint as directory_endpoint
from trio_cogment.discovery._directory_channel import open_directory as open_directory
from trio_cogment.discovery._messages import Found as Found
from trio_cogment.discovery.client import DirectoryClient as DirectoryClient
from trio_cogment.discovery.client import Registration as Registration
from trio_cogment.discovery.registration import SDK as SDK
from trio_cogment.discovery.registration import Offer as Offer
from trio_cogment.discovery.registration import Registrations as Registrations
from trio_cogment.discovery.registration import host_finder as host_finder
from trio_cogment.discovery.registration import keep_registered as keep_registered
from trio_cogment.discovery.registration import own_address as own_address
