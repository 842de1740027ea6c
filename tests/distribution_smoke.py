"""Smoke test of an installed distribution: `nox -s matrix` runs it as a program, far from the sources.

It imports every module that needs no extra, runs the demo within the process and over sockets, stores trials and reads
them back, asks a server by the command line, and loads its pages with all that belongs to them. It must not import
anything that a test needs.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import HTTPCookieProcessor, build_opener

import trio_cogment
from trio_cogment.base.errors import MissingExtraError

#: Modules that need an extra say so when they are imported; these are programs.
PROGRAMS = ("__main__", "child")
#: What a page or a script loads.
NAMED = re.compile(r"""(?:\b(?:href|src)=|\bfrom |\bimport )"((?:/|\./|[a-z]+:)[^"$]+)\"""")
#: Which packages extras bring.
OF_EXTRAS = {"numpy", "gymnasium", "pettingzoo", "dm_env", "pyspiel", "pyarrow", "minari", "h5py"}
OF_EXTRAS |= {"grpc_tools", "pytest", "hypothesis", "PIL", "httpx", "grpc"}


def run(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "trio_cogment", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def import_everything() -> int:
    count = 0
    for module in pkgutil.walk_packages(trio_cogment.__path__, "trio_cogment.", onerror=lambda name: None):
        if module.name.rpartition(".")[2] in PROGRAMS:
            continue
        try:
            importlib.import_module(module.name)
        except MissingExtraError:
            continue
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] not in OF_EXTRAS:
                raise
            continue
        count += 1
    return count


def ask_a_server(folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "trio_cogment", "serve", "--port=0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            first = server.stdout.readline()
            port = first.rsplit(":", 1)[1].strip()
            endpoint = f"--endpoint=grpc://127.0.0.1:{port}"
            assert json.loads(run("client", "trial", "list", "--json", endpoint, folder=folder)) == {"trials": []}
            assert "nb_trials" in run("status", "*", endpoint, folder=folder)
            run("client", "trial_datastore", "list", endpoint, folder=folder)
            said: dict[str, str] = {}
            while "stop" not in said:  # the last line
                name, value, *_ = server.stdout.readline().split()
                said[name] = value
            assert load_pages(said["dashboard"]) > 10
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
            assert server.stdout.read().splitlines()[-1].startswith("stopped")
        finally:
            server.kill()


def load_pages(entrance: str) -> int:
    """Load the dashboard and what it names, and what that names; return how many files it was. All are the server's."""
    browser = build_opener(HTTPCookieProcessor())
    address = entrance.partition("/enter/")[0]
    with browser.open(entrance) as answer:
        answer.read()
    left, seen = ["/dashboard"], set[str]()
    while left:
        path = left.pop()
        seen.add(path)
        with browser.open(address + path) as answer:
            text = answer.read().decode(errors="replace")
        if "/vendor/" in path:
            continue  # other people's names of other things
        named = {urljoin(path, found) for found in NAMED.findall(text)}
        assert all(one.startswith("/") and not one.startswith("//") for one in named), (path, named)
        left += sorted(named - seen - set(left))
    return len(seen)


def main() -> None:
    here = Path(trio_cogment.__file__)
    assert "site-packages" in here.parts, f"{here}: these are the sources, and no distribution"
    assert import_everything() > 200
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = json.loads(run("demo", "--ticks=200", "--json", folder=folder))
        over_sockets = json.loads(run("demo", "--ticks=200", "--json", "--grpc", folder=folder))
        assert over_sockets["curve"] == alone["curve"]
        ask_a_server(folder)
        findings = json.loads(run("doctor", "--json", "--port=0", folder=folder))
        assert findings["level"] != "fail"
    print(f"{trio_cogment.__version__} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
