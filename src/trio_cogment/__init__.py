"""The Cogment platform on Trio."""

from trio_cogment._version import __version__ as __version__
