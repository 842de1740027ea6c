"""The section `commands` of a project file, without anything that knows protobuf."""

from trio_cogment.sdk.spec._project_file import find_file as find_file
from trio_cogment.sdk.spec._project_file import read_commands as read_commands
