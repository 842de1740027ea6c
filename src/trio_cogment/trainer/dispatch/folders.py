"""The folders of runs: configurations, logs, and the tokens of those whose processes may be there. It blocks."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.host.files import LOCK, FileLock, Files, LockedError, replace_durably, write_whole
from trio_cogment.trainer.dispatch.command import WORKER_CONFIG, Command
from trio_cogment.trainer.run_config import RunConfig

_TOKEN = "token"
#: No run has such an id.
_ACCESS_TOKENS = ".access_tokens"
_LOGS = "logs"
_CONFIG = "config.json"
#: The files with what a worker has written.
LOG_NAMES = ("worker.stdout.log", "worker.stderr.log")


class RunFolders:
    """A folder with a folder for each run.

    The token of a run's processes is in a file from before their start until none is left: it is how a server finds
    what another one has left behind. So two servers must not share the folder. The ids of the access tokens that
    workers got are in another file, because these tokens count no longer than the runs, and last longer.

    Args:
        root: the folder; it is made if it is not there.
        files: the file system.
    """

    def __init__(self, root: str, files: Files) -> None:
        self._root = os.path.abspath(root)
        self._files = files
        self._locks: list[FileLock] = []

    def open(self) -> dict[str, str]:
        """Begin to use the folder; return the tokens that are left behind in it, by the ids of runs.

        Raises:
            FailedPreconditionError: another server uses it, or it cannot be made or read.
        """
        try:
            self._make(self._root)
            self._locks.append(self._files.lock(os.path.join(self._root, LOCK)))
            self._locks.append(self._files.claim(self._root))  # the file can be removed
            found = {run_id: self._token(run_id) for run_id in self._files.folders(self._root)}
        except LockedError as error:
            raise FailedPreconditionError(f"{self._root} is in use by another trainer{error.who}") from error
        except OSError as error:
            raise FailedPreconditionError(f"{self._root} cannot be used for the files of runs: {error}") from error
        return {run_id: token for run_id, token in found.items() if token}

    def close(self) -> None:
        """Let others use the folder."""
        while self._locks:
            self._locks.pop().release()

    def of(self, run_id: str) -> str:
        """Return the folder of a run."""
        return os.path.join(self._root, run_id)

    def log(self, run_id: str, name: str) -> str:
        """Return the path of a log file of a run."""
        return os.path.join(self.of(run_id), _LOGS, name)

    def access_tokens(self, now: float) -> dict[str, int]:
        """Return the ids of the access tokens that workers got, and when they expire; those that have are forgotten.

        Args:
            now: seconds since the epoch.

        Raises:
            FailedPreconditionError: they cannot be read or written.
        """
        path = os.path.join(self._root, _ACCESS_TOKENS)
        found = {}
        try:
            for line in self._files.read(path).decode("ascii", "replace").splitlines():
                token_id, _, expires_at = line.partition(" ")
                if expires_at.isdecimal() and int(expires_at) > now:  # else it has expired, or is half of a line
                    found[token_id] = int(expires_at)
            text = "".join(f"{token_id} {expires_at}\n" for token_id, expires_at in found.items())
            replace_durably(self._files.owner_only(), path, text.encode())
        except FileNotFoundError:
            pass
        except OSError as error:
            raise FailedPreconditionError(f"{path} cannot be used for the tokens of runs: {error}") from error
        return found

    def note_access_token(self, token_id: str, expires_at: int) -> None:
        """Keep the id of an access token, before a worker gets it. Raises OSError."""
        file = self._files.owner_only().open(os.path.join(self._root, _ACCESS_TOKENS), append=True)
        try:
            write_whole(file, f"{token_id} {expires_at}\n".encode())
            file.sync()
        finally:
            file.close()
        self._files.sync_folder(self._root)

    def prepare(self, run_id: str, config: RunConfig, command: Command, token: str) -> None:
        """Make what a worker needs, before it is started. Raises OSError."""
        folder = self.of(run_id)
        self._make(folder)
        self._make(os.path.join(folder, _LOGS))
        self._write(os.path.join(folder, _CONFIG), config.with_run_id(run_id))
        if command.worker_config is not None:
            self._write(os.path.join(folder, WORKER_CONFIG), command.worker_config)
        self._write(os.path.join(folder, _TOKEN), token)

    def forget(self, run_id: str) -> None:
        """Take note that no process of a run is left."""
        try:
            self._files.remove(os.path.join(self.of(run_id), _TOKEN))
        except OSError:
            pass  # it is not there; or it is looked for in vain at the next start

    def remove(self, run_id: str) -> None:
        """Remove the folder of a run that has ended; what its worker has put there stays, if it keeps its checkpoints.

        Raises:
            OSError: it cannot be removed, or processes of the run are left.
        """
        folder = self.of(run_id)
        if self._token(run_id):
            raise FileExistsError(f"{folder}: processes of the run are left")
        if not self._keeps_checkpoints(folder):
            # The configuration goes last: a server that is killed here does the rest at its next start.
            with os.scandir(folder) as entries:
                rest = [entry for entry in entries if entry.name != _CONFIG]
            for entry in rest:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.remove(entry.path)
        own = [os.path.join(_LOGS, name) for name in LOG_NAMES]
        for name in (*own, WORKER_CONFIG, _CONFIG):
            with suppress(FileNotFoundError):
                self._files.remove(os.path.join(folder, name))
        for name in (os.path.join(folder, _LOGS), folder):
            with suppress(FileNotFoundError):
                if not os.listdir(name):
                    self._files.remove_folder(name)

    def _keeps_checkpoints(self, folder: str) -> bool:
        try:
            found = json.loads(self._files.read(os.path.join(folder, _CONFIG)))
        except (OSError, ValueError):
            return True
        return bool(found["artifacts"]["keep_checkpoints"])

    def _token(self, run_id: str) -> str:
        try:
            return self._files.read(os.path.join(self.of(run_id), _TOKEN)).decode(errors="replace")
        except OSError:
            return ""

    def _make(self, folder: str) -> None:
        parent = os.path.dirname(folder)
        if not os.path.isdir(parent):
            self._make(parent)
        try:
            self._files.owner_only().make_folder(folder)
        except FileExistsError:
            pass

    def _write(self, path: str, text: str) -> None:
        """Write a file that only its owner may read: environments and configurations may have secrets."""
        file = self._files.owner_only().open(path)
        try:
            write_whole(file, text.encode())
        finally:
            file.close()
