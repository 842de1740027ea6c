"""The project's tasks. `nox` runs the default ones; `nox -l` lists all.

The sessions share environments, in `.nox/`: one for all checks, one for each published library that is a peer, one for
the fuzzer. Each is made when it is first needed, and made again when what it has to contain changes.
"""

import os
import re
import shlex
import shutil
import sys
import tarfile
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.options.sessions = ["static", "tests", "sim", "interop", "browser", "engines"]
nox.options.default_venv_backend = "none"

PROJECT = nox.project.load_toml("pyproject.toml")
# The published SDK's own requirements only resolve to gRPC of 2022; on these it runs unmodified.
PUBLISHED_SDK = ["cogment==2.10.1"]
PUBLISHED_SDK_NEEDS = [
    "grpcio>=1.76,<2",
    "grpcio-tools>=1.76,<2",
    "protobuf>=6.31.1,<8",
    "prometheus-client<0.9",
    "typing_extensions",
    "psutil",
    "PyYAML",
    "click",
    "setuptools<81",
    # With which the published SDK takes part in traces; the SDK knows nothing of it.
    *("opentelemetry-sdk==1.45.2", "opentelemetry-exporter-otlp-proto-http==1.45.2"),
]
#: cogment-lab, with what its client and its environments import: its own requirements are of 2023.
COGMENT_LAB = ["cogment-lab==0.1.5"]
COGMENT_LAB_NEEDS = ["gymnasium>=0.29,<1", "pettingzoo>=1.23.1,<1.24", "fastapi", "jinja2", "pillow", "tqdm", "uvicorn"]

#: The published library of dm_env_rpc.
PUBLISHED_DM_ENV_RPC = ["dm-env-rpc==1.1.7", "grpcio>=1.76,<2"]

#: The published SDK of the legacy API. Its own requirements are of 2020; with these it runs unmodified.
PUBLISHED_LEGACY_SDK = ["cogment==0.3.0a8"]
PUBLISHED_LEGACY_SDK_NEEDS = [
    "grpcio>=1.76,<2",
    "grpcio-reflection",
    "protobuf",
    "prometheus-client",
    "setuptools<81",
    "wheel",
]

#: Peers of calls: a library of gRPC, and one of HTTP/2 alone. In Node.js there are two more, and nghttp is a program.
GRPC_PEERS = ["grpcio==1.85.3", "h2==4.4.1"]

#: A server of S3.
S3_SERVER = ["moto[server]==5.2.5"]

#: Libraries of reinforcement learning that have to work with views of trials. RLlib pins an older Gymnasium than the
#: others have, so it has an environment and a cluster of its own (`rllib`).
RL_PEERS = [
    *("torch==2.13.0", "stable-baselines3==2.9.2", "sb3-contrib==2.9.2", "supersuit==3.11.0", "torchrl==0.14.1"),
    *("openenv==0.10.0", "tensorboard", "datasets==5.2.0", "vmas==1.5.2"),
    *("trl==1.16.0", "transformers==5.24.0", "accelerate==1.15.0", "jinja2", "textarena==0.7.4"),
    *("pyarrow==26.0.1", "pandas==3.1.1", "polars==2.1.0", "duckdb==2.0.1"),  # readers of an export
]
#: Environments of the field's packages. dm_control of today asks MuJoCo 4 for what it has no more.
WORLDS = [
    *("textarena==0.7.4", "envpool==1.2.5", "dm-control==1.0.49", "mujoco<4", "minigrid==3.2.0"),
    *("mo-gymnasium==1.3.2", "highway-env==1.12.1", "popgym==1.0.7", "flappy-bird-gymnasium==0.4.0"),
    *("ale-py==0.12.1", "mpe2==1.1.1", "lbforaging==2.0.0", "rware==2.0.0"),
    # Wrappers of which the log says what to expect. Beside dm_control, Shimmy imports Gymnasium's drawing of MuJoCo.
    *("shimmy==2.0.1", "supersuit==3.11.0", "imageio"),
]
#: Of Melting Pot's substrates; in one process with the others it is aborted.
LAB2D = [
    *("dmlab2d==1.0.2", "chex", "dm-tree", "immutabledict", "ml-collections", "networkx"),
    *("opencv-python-headless", "pandas==3.1.1", "reactivex"),
]
#: Its build fetches models of bots, of which the substrates need none; so it is built with an empty folder of them.
MELTING_POT = "dm-meltingpot==2.4.1"
MELTING_POT_ASSETS = "meltingpot-assets-2.3.0.tar.gz"
#: LeRobot with what its data sets import; the rest of it takes 4 GB more. It is for older packages than the others.
LEROBOT = [
    *(
        "torch==2.13.0",
        "torchvision",
        "numpy<2.3",
        "datasets>=4.8,<5",
        "pandas<3",
        "pyarrow<27",
        "jsonlines",
        "av>=15,<16",
    ),
    *(
        "einops",
        "draccus<0.12",
        "huggingface-hub>=1.6,<2",
        "pillow",
        "packaging<26",
        "termcolor",
        "tqdm",
        "safetensors",
    ),
    *("opencv-python-headless<4.14", "requests", "deepdiff"),
]
#: Not beside OpenEnv: they need different versions of mcp.
VERIFIERS = ["verifiers==0.4.0", "textarena==0.7.4"]
RL_PEERS_TEST = [
    *("pytest>=9.0", "pytest-trio>=0.8.0", "pytest-timeout>=2.3", "hypothesis>=6.100", "pygame>=2.5"),
    *("hypercorn[trio]>=0.17.3,<0.18", "starlette>=1,<2", "trio-websocket>=0.12"),  # peers of OpenEnv in small
]

RAY = [
    "ray[data,tune]==2.60.0",
    *("pytest>=9.0", "pytest-trio>=0.8.0", "pytest-timeout>=2.3", "hypothesis>=6.100", "pygame>=2.5"),
]

#: Beside that: with PyTorch it takes gigabytes, too much for the default run.
RLLIB = ["ray[rllib]==2.60.0", "torch==2.13.0"]

EXTRAS_PYTHONS = ["3.11", "3.12", "3.13"]

#: What is tested on each of them: the core, over sockets and in process, and the command line; no test needs an extra.
MATRIX_TESTS = [
    *("tests/test_platform.py", "tests/base/test_endpoints.py", "tests/base/test_errors.py", "tests/trial"),
    "--ignore=tests/trial/test_drawing.py",  # of a page
    *("tests/cli/client/test_trial.py", "tests/cli/services/test_start.py", "tests/cli/services/test_welcome.py"),
]
#: Draws the diagrams of the documentation site.
MERMAID = "mermaid@11.17.2"

JAVASCRIPT_SDK = "@cogment/cogment-js-sdk@2.0.1"
JAVASCRIPT_NEEDS = [
    "protobufjs@7",
    "typescript@5",
    "grpc-web@2.1.1",
    "@grpc/grpc-js@1.14.7",
    *("@connectrpc/connect@2.1.2", "@connectrpc/connect-node@2.1.2", "@bufbuild/protobuf@2.17.0"),
    "axe-core@4.14.1",
    "google-protobuf@3",
    "xhr2@0.2",
]
#: Names of a Chromium on PATH; one without windows takes a quarter less time.
CHROMIUM = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
#: Debian's packages: the second is tried where the first is missing.
DEBIAN_CHROMIUM = ["chromium-headless-shell", "chromium"]

#: Programs of PostgreSQL, and its pooler; and Debian's packages.
POSTGRESQL = ["initdb", "pg_ctl", "psql", "pgbouncer"]
DEBIAN_POSTGRESQL = ["postgresql", "pgbouncer"]

#: Programs of Prometheus, which Debian's package of that name has.
PROMETHEUS = ["prometheus", "promtool"]

#: What completion is tested in.
SHELLS = ["bash", "zsh", "fish"]

# The programs in tests/fuzz, and the modules of which they have to reach nine tenths: engine and framing.
FUZZED = [
    *("engine_server", "engine_client", "framing", "headers", "endpoints"),
    *("web_http1", "web_socket", "web_frames"),
]
FUZZED_MODULES = [
    f"src/trio_cogment/rpc/_{name}.py"
    for name in (
        "control",
        "engine",
        "floods",
        "frame_handler",
        "frame_parser",
        "frames",
        "grpc_headers",
        "header_blocks",
        "hpack",
        "receive_window",
        "send_queue",
        "stream_table",
        "streams",
    )
]


#: Under faults, simulated: `nox -s soak` runs 300 seeds of these, `nox -s tests` three to eight, or more where they are
#: short.
SIMULATED = [
    "tests/gateways/dm_env_rpc/test_simulated.py",
    "tests/play/test_simulated.py",
    "tests/sim/test_memory_pool.py",
    "tests/sim/test_quotas.py",
    "tests/trainer/test_simulated.py",
    "tests/test_resuming_simulated.py",
]

#: What needs no foreign environment, and is no long proof.
UNIT_TESTS = (
    "not interop and not javascript and not browser and not soak and not rl_peers and not shells and not stores"
    " and not prometheus"
)

#: Where all tests are that have these marks: to look for them elsewhere, too, takes longer than most of them.
FOLDERS = {
    "interop": "tests/interop",
    "browser": "tests/interop",
    "javascript": "tests/interop",
    "shells": "tests/cli",
    "stores": "tests/stores",
}

#: Held while an environment is made, by its name: sessions that run side by side may need the same one.
MADE = defaultdict[str, threading.Lock](threading.Lock)


def parallel(each: float) -> list[str]:
    """Return the options that run tests side by side: who is done takes over tests of the others.

    Args:
        each: how many processes each processor has. One waits for peers and processes that it has started, and for
            files, while another one computes.
    """
    return ["-n", str(round(each * (os.cpu_count() or 1))), "--dist", "worksteal"]


PARALLEL = parallel(2)


def environment(
    session: nox.Session, name: str, *requirements: list[str], python: str = sys.executable
) -> dict[str, str]:
    """Make an environment, unless it is there with the same content.

    Args:
        session: what asks for it.
        name: of its folder in `.nox`.
        requirements: arguments of `pip install`, one list for each call.
        python: the interpreter that it has.

    Returns:
        The variables with which a command runs in it.
    """
    folder = (Path(session.cache_dir).parent / name).absolute()
    version = sys.version if python == sys.executable else python
    wanted = "\n".join([version, Path("pyproject.toml").read_text(), *map(" ".join, requirements)])
    marker = folder / "installed"
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # The tests start hundreds of processes. Each would compile the sources where bytecode is not to be written. The
    # project's files are in UTF-8, whatever the caller's locale says of files.
    env = {"VIRTUAL_ENV": str(folder), "PATH": path, "PYTHONDONTWRITEBYTECODE": "", "PYTHONUTF8": "1"}
    with MADE[name]:
        if not (marker.exists() and marker.read_text() == wanted):
            session.run(python, "-m", "venv", "--clear", "--without-pip", str(folder), external=True)
            for arguments in requirements:
                install(session, python_of(env), arguments)
            marker.write_text(wanted)
    return env


def python_of(env: dict[str, str]) -> Path:
    """Return the interpreter of an environment."""
    return Path(env["VIRTUAL_ENV"]) / "bin" / "python"


def install(session: nox.Session, python: Path, arguments: list[str]) -> None:
    """Install into an environment with uv, in a tenth of pip's time; with pip where there is no uv, or where it fails.

    uv has no option for requirements of another Python, and does not read pip's settings, such as an index.
    """
    # Where nox has been called by its path, what was installed beside it is not on PATH.
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is not None and "--ignore-requires-python" not in arguments:
        try:
            session.run(uv, "pip", "install", "--quiet", "--python", str(python), *arguments, external=True)
        except CommandFailed:
            session.warn("uv has failed: pip is tried")
        else:
            return
    # Much of what is installed is never imported, and is not compiled.
    pip(session, python, "install", "--no-compile", *arguments)


def pip(session: nox.Session, python: Path, command: str, *arguments: str, **variables: str) -> None:
    """Run the pip that is installed beside nox for another environment: to give each its own takes seconds."""
    for_it = [sys.executable, "-m", "pip", "--quiet", "--python", str(python)]
    session.run(*for_it, command, *arguments, env=variables, external=True)


def tools() -> list[str]:
    """Return all that tests, lints and generates."""
    return nox.project.dependency_groups(PROJECT, "test", "browser", "lint", "types", "protos", "news", "docs")


def checks(session: nox.Session) -> dict[str, str]:
    """Make the environment of the checks: the project, editable, and its tools."""
    return environment(session, "checks", ["-e", ".", *tools()])


def published_sdk(session: nox.Session) -> dict[str, str]:
    """Make the environment of the published SDK, and tell the tests where it is."""
    foreign = environment(
        session, "published-sdk", PUBLISHED_SDK_NEEDS, ["--no-deps", "--ignore-requires-python", *PUBLISHED_SDK]
    )
    return {"TRIO_COGMENT_PUBLISHED_SDK_PYTHON": str(python_of(foreign))}


def cogment_lab(session: nox.Session) -> dict[str, str]:
    """Make the environment of cogment-lab, and tell the tests where it is."""
    without_its_needs = ["--no-deps", "--ignore-requires-python", *PUBLISHED_SDK, *COGMENT_LAB]
    foreign = environment(session, "cogment-lab", [*PUBLISHED_SDK_NEEDS, *COGMENT_LAB_NEEDS], without_its_needs)
    return {"TRIO_COGMENT_LAB_PYTHON": str(python_of(foreign))}


def published_dm_env_rpc(session: nox.Session) -> dict[str, str]:
    """Make the environment of the published library of dm_env_rpc, and tell the tests where it is."""
    foreign = environment(session, "dm-env-rpc", PUBLISHED_DM_ENV_RPC)
    return {"TRIO_COGMENT_DM_ENV_RPC_PYTHON": str(python_of(foreign))}


def published_legacy_sdk(session: nox.Session) -> dict[str, str]:
    """Make the environment of the published SDK of the legacy API, and tell the tests where it is."""
    without_its_needs = ["--no-deps", "--no-build-isolation", "--ignore-requires-python", *PUBLISHED_LEGACY_SDK]
    foreign = environment(session, "legacy-sdk", PUBLISHED_LEGACY_SDK_NEEDS, without_its_needs)
    return {"TRIO_COGMENT_LEGACY_SDK_PYTHON": str(python_of(foreign))}


def run(
    session: nox.Session, env: dict[str, str], *command: str, silent: bool = False, codes: list[int] | None = None
) -> None:
    """Run a command of an environment; `silent` shows what it prints only if it fails.

    Args:
        session: of whom.
        env: the environment.
        command: with its arguments.
        silent: see above.
        codes: with which it has not failed; None: 0.
    """
    program = Path(env["VIRTUAL_ENV"]) / "bin" / command[0]
    session.run(str(program), *command[1:], env=env, external=True, silent=silent, success_codes=codes)


@nox.session
def tests(session: nox.Session) -> None:
    """Every test that needs no foreign environment, and no long proof."""
    run(session, checks(session), "pytest", "-m", UNIT_TESTS, *PARALLEL, *session.posargs)


@nox.session
def sim(session: nox.Session) -> None:
    """The orchestrator under faults, simulated, over 300 seeds; `nox -s sim -- --seeds 20000`, or `--seed N`."""
    run(session, checks(session), "python", "-m", "tests.sim", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """The conformance kit, with the servers of this project and with servers that have a bug planted."""
    kit = ["tests/conformance", "tests/cli/test_conformance.py"]
    run(session, checks(session), "pytest", *PARALLEL, *(session.posargs or kit))


@nox.session
def compiled(session: nox.Session) -> None:
    """The suite and 300 seeds on a wheel whose hot modules mypyc has compiled; `-- tests/trial` for some tests.

    The wheel is in dist/compiled/. Building it takes minutes, so it is built anew only when a source has changed.
    """
    env = environment(session, "compiled", [".", *tools()])
    wheel = compiled_wheel(session, env)
    install(session, python_of(env), ["--force-reinstall", "--no-deps", str(wheel)])
    env["TRIO_COGMENT_COMPILED"] = "1"  # see tests/test_compiled.py
    run(session, env, "pytest", "-m", f"{UNIT_TESTS} and not sources", *PARALLEL, *(session.posargs or ["tests"]))
    if not session.posargs:
        run(session, env, "python", "-m", "tests.sim")


def compiled_wheel(session: nox.Session, env: dict[str, str]) -> Path:
    """Build the compiled wheel, unless it is there and younger than all that it is made of."""
    folder = Path("dist", "compiled").absolute()
    sources = [Path("pyproject.toml"), Path("tools/compiled_wheel.py"), *Path("src").rglob("*.py")]
    newest = max(path.stat().st_mtime for path in sources)
    built = [path for path in folder.glob("*.whl") if path.stat().st_mtime > newest]
    if not built:
        shutil.rmtree(folder, ignore_errors=True)
        pip(session, python_of(env), "wheel", "--no-deps", "-w", str(folder), ".", HATCH_BUILD_HOOK_ENABLE_CUSTOM="1")
        built = list(folder.glob("*.whl"))
    [wheel] = built
    return wheel


@nox.session
def mutations(session: nox.Session) -> None:
    """Bugs planted into copies of the source: the simulated suite must find each; a few minutes."""
    run(session, checks(session), "python", "-m", "tests.sim.mutations", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Bugs made by a tool, drawn by the day: which do tests, and which do simulations notice; hours for all of them."""
    run(session, checks(session), "python", "-m", "tests.mutants", *session.posargs)


@nox.session
def static(session: nox.Session) -> None:
    """The sessions lint, types and docs side by side; meanwhile, what the sessions after this one need is made."""
    # The longest comes first; with more at a time it would still be running, alone, when the others are done.
    with ThreadPoolExecutor(3) as threads:
        tasks = [threads.submit(task, session) for task in (docs, types, peers, lint, collected)]
    for task in tasks:
        task.result()


@nox.session
def peers(session: nox.Session) -> None:
    """Install what the sessions interop, browser, shells, stores and ray need beside the project."""
    published_sdk(session)
    published_legacy_sdk(session)
    published_dm_env_rpc(session)
    grpc_peers(session)
    nghttp_missing(session)
    shells_missing(session)
    s3_server(session)
    cogment_lab(session)
    cluster(session)
    postgresql_missing(session)
    if shutil.which("npm") is not None:
        published_javascript(session)
        has_chromium(session, checks(session))


def collected(session: nox.Session) -> None:
    """Collect the tests, so that their bytecode is there for the processes that run them."""
    run(session, checks(session), "pytest", "--collect-only", "-qq", "-m", UNIT_TESTS, silent=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, formatting, titles, the generated API's freshness, and the JavaScript of pages: its origin, its types."""
    env = checks(session)
    run(session, env, "ruff", "check", ".")
    run(session, env, "ruff", "format", "--check", ".")
    run(session, env, "python", "tools/check_titles.py")
    run(session, env, "python", "tools/generate_api.py", "--check")
    run(session, env, "python", "tools/vendor_js.py", "--check")
    if shutil.which("npm") is None or shutil.which("node") is None:
        untested(session, "there is no Node.js", "of the types of the JavaScript")
        return
    folder = (Path(session.cache_dir).parent / "javascript-types").absolute()
    run(session, env, "python", "tools/check_js.py", str(folder))


@nox.session
def types(session: nox.Session) -> None:
    """Static types, strict, of source and tests."""
    run(session, checks(session), "mypy")


@nox.session
def interop(session: nox.Session) -> None:
    """The published SDKs, dm_env_rpc's library and peers of gRPC, in environments of their own, with the project."""
    foreign = {**published_sdk(session), **published_legacy_sdk(session), **published_dm_env_rpc(session)}
    env = {**checks(session), **foreign}
    selection = session.posargs or [FOLDERS["interop"]]
    if shutil.which("npm") is None or nghttp_missing(session):
        untested(session, "npm or nghttp (apt-get install nghttp2-client) is missing", "with peers of gRPC")
        selection = [*selection, "--ignore=tests/interop/test_grpc_peers.py"]
    else:
        env |= {**grpc_peers(session), **published_javascript(session)}
    run(session, env, "pytest", "-m", "interop and not soak", *parallel(2), *selection)


def grpc_peers(session: nox.Session) -> dict[str, str]:
    """Make the environment of peers of calls, and tell the tests where it is."""
    return {"TRIO_COGMENT_GRPC_PEERS_PYTHON": str(python_of(environment(session, "grpc-peers", GRPC_PEERS)))}


def nghttp_missing(session: nox.Session) -> bool:
    """Return whether there is no nghttp, after trying to install it."""
    if shutil.which("nghttp") is None:
        try_each(session, debian("nghttp2-client"))
    return shutil.which("nghttp") is None


def published_javascript(session: nox.Session) -> dict[str, str]:
    """Make the folder of the published JavaScript SDK and of what is tested with it, and tell the tests where it is."""
    folder = (Path(session.cache_dir).parent / "javascript").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    wanted, marker = " ".join([JAVASCRIPT_SDK, *JAVASCRIPT_NEEDS]), folder / "installed"
    if not (marker.exists() and marker.read_text() == wanted):
        npm = ["npm", "--prefix", str(folder), "--no-fund", "--no-audit"]
        session.run(*npm, "install", *JAVASCRIPT_NEEDS, external=True)
        # Its own requirements include one from a git server; what it consists of needs none of them.
        session.run("npm", "pack", "--pack-destination", str(folder), JAVASCRIPT_SDK, external=True, silent=True)
        (archive,) = folder.glob("*.tgz")
        session.run("tar", "-xzf", str(archive), "-C", str(folder), external=True)
        marker.write_text(wanted)
    return {"TRIO_COGMENT_JAVASCRIPT": str(folder)}


@nox.session
def javascript(session: nox.Session) -> None:
    """Generated JavaScript on the JavaScript SDK, that SDK and grpc-web against a server; needs Node.js and npm."""
    env = {**checks(session), **published_javascript(session)}
    run(session, env, "pytest", FOLDERS["javascript"], "-m", "javascript", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """JavaScript clients in Node.js and Chromium, and pages: a Chromium on PATH, Playwright's own, or Debian's.

    It needs npm. The long proofs in Chromium are part of `nox -s soak`.
    """
    if shutil.which("npm") is None:
        untested(session, "there is no npm", "in a browser")
        return
    env = {**checks(session), **published_javascript(session)}
    env["TRIO_COGMENT_SCREENSHOTS"] = str(Path("docs", "images").absolute())  # those of the documents
    marks = "(browser or javascript) and not soak"
    if not has_chromium(session, env):
        untested(session, "there is no Chromium, and none could be installed", "in a browser")
        marks = "javascript"
    # One of them watches for a minute, which would count as a hang elsewhere.
    patient = ["-o", "faulthandler_timeout=180"]
    if session.posargs:
        run(session, env, "pytest", *patient, FOLDERS["browser"], "-m", marks, *session.posargs)
        return
    run(session, env, "pytest", *patient, FOLDERS["browser"], "-m", f"{marks} and not alone", *parallel(2.5))
    if "browser" in marks:
        run(session, env, "pytest", *patient, FOLDERS["browser"], "-m", f"{marks} and alone")


def untested(session: nox.Session, why: str, where: str) -> None:
    """Say why nothing was tested somewhere; with CI set, the run fails."""
    text = f"{why}: nothing was tested {where}"
    if os.environ.get("CI"):
        session.error(text)
    session.warn(text)


def has_chromium(session: nox.Session, env: dict[str, str]) -> bool:
    """Return whether there is a Chromium, after trying to install one."""
    if any(map(shutil.which, CHROMIUM)):
        return True
    python = str(python_of(env))
    try_each(session, [[python, "-m", "playwright", "install", "--only-shell", "chromium"]])
    for package in DEBIAN_CHROMIUM:
        if not any(map(shutil.which, CHROMIUM)):
            try_each(session, debian(package))
    own = session.run(
        python,
        "-c",
        "import pathlib, playwright.sync_api as p\nwith p.sync_playwright() as x: "
        "print(pathlib.Path(x.chromium.executable_path).exists())",
        external=True,
        silent=True,
    )
    return any(map(shutil.which, CHROMIUM)) or "True" in str(own)


def debian(*packages: str) -> list[list[str]]:
    """Return the commands that install packages of Debian; none if that is not possible."""
    if not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get")):
        return []
    return [["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages]]


def try_each(session: nox.Session, commands: list[list[str]]) -> None:
    """Run commands that may fail."""
    for command in commands:
        done = session.run(*command, external=True, silent=True, success_codes=range(256))
        session.log("%s: %s", " ".join(command), "done" if done is not None else "failed")


@nox.session
def engines(session: nox.Session) -> None:
    """The sessions ray, stores and shells side by side: much of each waits for other processes."""
    with ThreadPoolExecutor(2) as threads:
        tasks = [threads.submit(task, session) for task in (ray, stores, shells)]
    for task in tasks:
        task.result()


@nox.session
def shells(session: nox.Session) -> None:
    """Completion in bash, zsh and fish: those on PATH, or Debian's packages."""
    if missing := shells_missing(session):
        untested(session, f"{', '.join(missing)} could not be installed", "in shells")
        return
    run(session, checks(session), "pytest", "-m", "shells", *parallel(1), *(session.posargs or [FOLDERS["shells"]]))


def shells_missing(session: nox.Session) -> list[str]:
    """Return which shells are not there, after trying to install them."""
    if not all(map(shutil.which, SHELLS)):
        try_each(session, debian(*SHELLS))
    return [name for name in SHELLS if shutil.which(name) is None]


@nox.session
def operations(session: nox.Session) -> None:
    """The dashboard and the alerts of examples/operations, with a real Prometheus: Debian's, or the one on PATH."""
    if not all(map(shutil.which, PROMETHEUS)):
        try_each(session, debian("prometheus"))
    if missing := [name for name in PROMETHEUS if shutil.which(name) is None]:
        untested(session, f"there is no {', '.join(missing)} (apt-get install prometheus)", "with Prometheus")
        return
    where = session.posargs or ["tests/test_operations_example.py"]
    run(session, checks(session), "pytest", "-m", "prometheus", *where)


@nox.session
def stores(session: nox.Session) -> None:
    """Stores on other machines, beside a real PostgreSQL (on PATH, or Debian's packages) and a real server of S3."""
    env = {**checks(session), **s3_server(session), **published_sdk(session), **cogment_lab(session)}
    marks = "stores and not soak"
    if missing := postgresql_missing(session):
        install_it = f"apt-get install {' '.join(DEBIAN_POSTGRESQL)}"
        untested(session, f"there is no {', '.join(missing)} ({install_it})", "in PostgreSQL")
        marks = f"{marks} and not postgresql"
    # More at a time than processors: much of it waits, for a second or more.
    run(session, env, "pytest", "-m", marks, *parallel(2), *(session.posargs or [FOLDERS["stores"]]))


def postgresql_missing(session: nox.Session) -> list[str]:
    """Return which programs of PostgreSQL are not there, after trying to install them."""

    def missing() -> list[str]:
        # Debian has most of them where they are not on PATH, which the tests know.
        path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))])
        return [name for name in POSTGRESQL if shutil.which(name, path=path) is None]

    if missing():
        try_each(session, debian(*DEBIAN_POSTGRESQL))
    return missing()


def s3_server(session: nox.Session) -> dict[str, str]:
    """Make the environment of a server of S3, and tell the tests where it is."""
    return {"TRIO_COGMENT_S3_SERVER_PYTHON": str(python_of(environment(session, "s3-server", S3_SERVER)))}


@nox.session
def soak(session: nox.Session) -> None:
    """The long proofs; minutes to hours."""
    # A proof may take longer than what counts as a hang elsewhere.
    options = ["-o", "faulthandler_timeout=0"]
    env = {**checks(session), **published_sdk(session), **s3_server(session)}
    marks = "soak and not browser"
    if missing := postgresql_missing(session):
        untested(session, f"there is no {', '.join(missing)}", "in PostgreSQL")
        marks = f"{marks} and not postgresql"
    run(session, env, "pytest", *options, "-m", marks, *session.posargs)
    if session.posargs:
        return
    run(session, cluster(session), "pytest", *options, "-m", "rl_peers and soak", "--timeout=900", "tests/ray")
    run(session, env, "pytest", "--sim-seeds", "300", *PARALLEL, *SIMULATED)
    if shutil.which("npm") is None:
        untested(session, "there is no npm", "in a browser")
        return
    env |= published_javascript(session)
    if has_chromium(session, env):
        run(session, env, "pytest", *options, FOLDERS["browser"], "-m", "soak and browser")
    else:
        untested(session, "there is no Chromium, and none could be installed", "in a browser")


@nox.session
def extras(session: nox.Session) -> None:
    """Each extra alone, and all together, on each version of Python; `nox -s extras -- 3.12 gym` for some of them."""
    names = list(PROJECT["project"]["optional-dependencies"])
    versions = [argument for argument in session.posargs if argument in EXTRAS_PYTHONS] or EXTRAS_PYTHONS
    chosen = [argument for argument in session.posargs if argument not in EXTRAS_PYTHONS] or ["none", *names, "all"]
    for version in versions:
        python = interpreter(session, version)
        for name in chosen:
            installed = {"none": [], "all": names}.get(name, [name])
            package = f".[{','.join(installed)}]" if installed else "."
            env = environment(session, f"extras/{version}-{name}", ["-e", package], python=python)
            run(session, env, "python", "-W", "error", "tests/extras_smoke.py", *installed)


def interpreter(session: nox.Session, version: str) -> str:
    """Return the path of a version of Python: on PATH, or among those of pyenv."""
    homes = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*"))
    found = [str(home / "bin" / "python") for home in homes] + [shutil.which(f"python{version}") or ""]
    if not found[0]:
        session.error(f"there is no Python {version}; nox -s extras -- {' '.join(EXTRAS_PYTHONS[:1])} for another one")
    return found[0]


@nox.session(name="rl-peers")
def rl_peers(session: nox.Session) -> None:
    """Stable-Baselines3, TorchRL, RLlib, OpenEnv, Hugging Face, verifiers, a PPO in one file and others' worlds.

    `nox -s rl-peers -- -k NAME` runs some of them, `nox -s rllib` only those with RLlib.
    """
    worlds, substrates = "tests/rl_peers/test_worlds.py", "tests/rl_peers/test_melting_pot.py"
    verifiers = "tests/rl_peers/test_verifiers.py"
    elsewhere = [f"--ignore={file}" for file in [worlds, substrates, verifiers, ON_LEROBOT]]
    selections: dict[str, tuple[list[str], list[list[str]], list[str]]] = {
        "rl-peers-verifiers": (VERIFIERS, [], [verifiers]),
        "rl-peers": (RL_PEERS, [], ["tests/rl_peers", *elsewhere]),
        "rl-peers-worlds": (WORLDS, [], [worlds]),
        "rl-peers-melting-pot": (LAB2D, [["--no-deps", melting_pot(session)]], [substrates]),
    }
    beside: dict[str, str] = {}
    for name, (packages, more, selection) in selections.items():
        extras = ".[gym,pettingzoo,openenv,openspiel,export,minari,dm-env]"
        env = {
            **environment(session, name, ["-e", extras, *RL_PEERS_TEST, *packages], *more),
            "TRIO_COGMENT_RL_PEERS": "1",
            "HF_HUB_OFFLINE": "1",
            "SDL_VIDEODRIVER": "dummy",
            "MUJOCO_GL": "disabled",  # without a display: nothing is drawn
            **beside,
        }
        if name == "rl-peers-verifiers":
            beside["TRIO_COGMENT_VERIFIERS_PYTHON"] = str(python_of(env))
        run(session, env, "pytest", "-m", "rl_peers", *selection, *session.posargs, codes=chosen(session))
    rllib(session)


@nox.session
def rllib(session: nox.Session) -> None:
    """RLlib and PyTorch on trials, over a cluster of Ray on this machine: a part of rl-peers."""
    env = cluster(session, "rl-peers-ray", *RLLIB)
    run(session, env, "pytest", *ON_RAY, ON_RLLIB, *session.posargs, codes=chosen(session))


def chosen(session: nox.Session) -> list[int]:
    """Return pytest's codes for success; 5 says that arguments have chosen none, for another environment has them."""
    return [0, 5] if session.posargs else [0]


@nox.session
def lerobot(session: nox.Session) -> None:
    """LeRobot's own reader on what an export has, on Python 3.12; 5 GB."""
    needs = ["-e", ".[gym,export]", *RL_PEERS_TEST, *LEROBOT]
    python = interpreter(session, "3.12")
    env = environment(session, "lerobot", needs, ["--no-deps", "lerobot==0.6.1"], python=python)
    env |= {"TRIO_COGMENT_RL_PEERS": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(Path(env["VIRTUAL_ENV"]) / "hub")}
    run(session, env, "pytest", "-m", "rl_peers", ON_LEROBOT, *session.posargs)


ON_LEROBOT = "tests/rl_peers/test_lerobot.py"


def melting_pot(session: nox.Session) -> str:
    """Build a wheel of Melting Pot without its bots, unless it is there; return its path.

    The build takes the models of bots from an archive in the folder for temporary files, and fetches it otherwise.
    """
    folder = (Path(session.cache_dir).parent / "melting-pot").absolute()
    if not list(folder.glob("*.whl")):
        (folder / "assets").mkdir(parents=True, exist_ok=True)
        with tarfile.open(folder / MELTING_POT_ASSETS, "w:gz") as archive:
            archive.add(folder / "assets", "assets")
        pip(
            session,
            Path(sys.executable),
            "wheel",
            "--no-deps",
            "--wheel-dir",
            str(folder),
            MELTING_POT,
            TMPDIR=str(folder),
        )
    return str(next(folder.glob("*.whl")))


@nox.session
def ray(session: nox.Session) -> None:
    """Runs over a cluster of Ray on this machine that loses workers and nodes; Tune and Data on trials."""
    missing = postgresql_missing(session)
    if missing:
        untested(session, f"there is no {', '.join(missing)}", "of trials of Ray in PostgreSQL")
    selection = ["-m", "rl_peers and not soak and not postgresql"] if missing else []
    run(session, cluster(session), "pytest", *ON_RAY, *selection, "tests/ray", f"--ignore={ON_RLLIB}", *session.posargs)


#: A test that waits for processes of a cluster is no hang yet, where others use the machine, too.
ON_RAY = ["-m", "rl_peers and not soak", "--timeout=300", "-o", "faulthandler_timeout=330"]
ON_RLLIB = "tests/ray/test_rllib.py"


def cluster(session: nox.Session, name: str = "ray", *packages: str) -> dict[str, str]:
    """Make the environment with Ray; its processes stay on loopback."""
    env = environment(session, name, ["-e", ".[ray,gym,pettingzoo,export,postgresql]", *RAY, *packages])
    return {**env, "TRIO_COGMENT_RAY": "1", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled"}


@nox.session
def findings(session: nox.Session) -> None:
    """Surprises of other packages, each shown by a script of its own: whether they still are; `-- NAME` for some."""
    chosen = session.posargs or [path.stem for path in sorted(Path("findings").glob("*.sh"))]
    for name in chosen:
        # 77: what the script needs cannot be had here, and it has said so.
        session.run("bash", f"findings/{name}.sh", external=True, success_codes=[0, 77])


@nox.session
def fuzz(session: nox.Session) -> None:
    """A million inputs for each parser, and how much of the engine they have reached; most of an hour."""
    env = environment(session, "fuzz", ["-e", ".", *nox.project.dependency_groups(PROJECT, "fuzz")])
    corpus = Path(session.create_tmp()) / "corpus"
    run(session, env, "python", "-m", "tests.fuzz.corpus", str(corpus))
    options = session.posargs or ["-atheris_runs=1000000"]
    for program in FUZZED:
        run(session, env, "python", "-m", f"tests.fuzz.{program}", "-max_len=240", *options, str(corpus / program))
    run(session, env, "coverage", "run", "--branch", "-m", "tests.fuzz.replay", str(corpus))
    report = ["--show-missing", "--fail-under=90", f"--include={','.join(FUZZED_MODULES)}"]
    run(session, env, "coverage", "report", *report)


@nox.session
def protos(session: nox.Session) -> None:
    """Generate src/trio_cogment/api from protos/."""
    run(session, checks(session), "python", "tools/generate_api.py", *session.posargs)


@nox.session
def drawings(session: nox.Session) -> None:
    """Redraw in docs/ what is drawn from the code, and write what `docs/reliability.md` has from elsewhere."""
    for tool in ("draw_states", "rooms", "tables", "reliability_tables"):
        run(session, checks(session), "python", f"tools/{tool}.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site in docs/_build/html; warnings, broken links and loads from elsewhere are errors."""
    build = Path("docs", "_build").absolute()
    fetch_mermaid(session, build / "mermaid")
    command = ["python", "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(build / "html")]
    run(session, checks(session), *command)
    run(session, checks(session), "python", "tools/check_site.py", str(build / "html"))


def fetch_mermaid(session: nox.Session, folder: Path) -> None:
    """Fetch what draws the diagrams; without npm the site shows their text."""
    if (folder / "mermaid.min.js").exists():
        return
    if shutil.which("npm") is None:
        session.warn("there is no npm: the site will show the diagrams as text")
        return
    folder.mkdir(parents=True, exist_ok=True)
    archive = session.run(
        "npm", "pack", "--silent", "--pack-destination", str(folder), MERMAID, external=True, silent=True
    )
    assert isinstance(archive, str)
    with tarfile.open(folder / archive.split()[-1]) as files, (folder / "mermaid.min.js").open("wb") as target:
        source = files.extractfile("package/dist/mermaid.min.js")
        assert source is not None
        shutil.copyfileobj(source, target)


@nox.session
def audit(session: nox.Session) -> None:
    """Known advisories of what is installed with the package and its extras, but for those of docs/security.md."""
    extras = ",".join(PROJECT["project"]["optional-dependencies"])
    # Anew each time: it is about what somebody gets who installs it today.
    shutil.rmtree(Path(session.cache_dir).parent / "audited", ignore_errors=True)
    audited = environment(session, "audited", [f".[{extras}]"])
    env = environment(session, "audit", nox.project.dependency_groups(PROJECT, "audit"))
    [packages] = Path(audited["VIRTUAL_ENV"]).glob("lib/python*/site-packages")
    command = [str(python_of(env)), "tools/audit.py", str(packages)]
    said = str(session.run(*command, env=env, external=True, success_codes=[0, 3], silent=True))
    session.log(said.strip())
    if said.startswith("no advisory could be looked up"):
        untested(session, "no source of advisories can be reached", "for known advisories")


@nox.session
def news(session: nox.Session) -> None:
    """Show the change log as it would be at the next release."""
    run(session, checks(session), "towncrier", "build", "--draft", "--version", "next")


@nox.session
def changelog(session: nox.Session) -> None:
    """Make a section of CHANGELOG.md of the fragments, which are removed: `nox -s changelog -- 0.3.0`."""
    [version] = session.posargs or [PROJECT["project"]["version"]]
    run(session, checks(session), "towncrier", "build", "--yes", "--version", version)


@nox.session
def release(session: nox.Session) -> None:
    """Wheel and source distribution in dist/, checked by twine, and for what is in them."""
    distributions(session)


def distributions(session: nox.Session) -> tuple[Path, Path]:
    """Build the wheel and the source distribution, check them, and return their paths."""
    folder = Path("dist").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    env = environment(session, "release", nox.project.dependency_groups(PROJECT, "release"))
    run(session, env, "python", "-m", "build", "--outdir", str(folder))
    run(session, env, "twine", "check", "--strict", *map(str, sorted(folder.iterdir())))
    run(session, env, "python", "tools/check_distributions.py", str(folder))
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@nox.session
def matrix(session: nox.Session) -> None:
    """Wheel and sdist on each Python, with the oldest and the newest needs; `-- 3.12 oldest sdist` for some of them."""
    wheel, sdist = distributions(session)
    kinds = {"wheel": wheel, "sdist": sdist}
    chosen = {
        name: [argument for argument in session.posargs if argument in names] or names
        for name, names in (("python", EXTRAS_PYTHONS), ("needs", ["oldest", "newest"]), ("kind", list(kinds)))
    }
    away = Path(session.create_tmp()).absolute()
    program = shutil.copy("tests/distribution_smoke.py", away)
    tests = Path(shutil.copytree("tests", away / "checks" / "tests", dirs_exist_ok=True)).parent
    shutil.copy("pyproject.toml", tests)
    group = nox.project.dependency_groups(PROJECT, "matrix")
    for version in chosen["python"]:
        python = interpreter(session, version)
        for needs in chosen["needs"]:
            for kind in chosen["kind"]:
                installed = [str(kinds[kind]), *(oldest() if needs == "oldest" else [])]
                env = environment(session, f"distributions/{version}-{needs}-{kind}", installed, group, python=python)
                # The same name may be another build; what it needs is there already.
                install(session, python_of(env), ["--force-reinstall", "--no-deps", str(kinds[kind])])
                with session.chdir(tests):
                    run(session, env, "python", "-W", "error", program)
                    run(session, env, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:anyio", *MATRIX_TESTS)


def oldest() -> list[str]:
    """Return the requirements of the package with the lowest versions that they allow."""
    return [
        re.sub(r">=([\w.]+).*", r"==\1", requirement)
        for requirement in PROJECT["project"]["dependencies"]
        if ">=" in requirement
    ]


@nox.session
def newcomer(session: nox.Session) -> None:
    """The wheel in a fresh environment: README and tutorial as they are written, and what they print."""
    wheel, sdist = distributions(session)
    away = Path(session.create_tmp()).absolute()
    with tarfile.open(sdist) as files:
        files.extractall(away, filter="data")
    # The first command of the README, as it is written, in the sources that somebody has unpacked.
    first = next(line.strip() for line in Path("README.md").read_text().splitlines() if line.startswith("    "))
    with session.chdir(away / sdist.name.removesuffix(".tar.gz")):
        session.run("sh", "-c", first, external=True)
        session.run(".venv/bin/trio-cogment", "init", "--yes", str(away / "project"), external=True)
    folder = Path(session.cache_dir).parent / "newcomer"
    shutil.rmtree(folder, ignore_errors=True)
    # The chapters of the tutorial go on with what those before them have written.
    stories = [["README.md"], sorted(map(str, Path("docs/tutorial").glob("*.md")))]
    env = environment(session, "newcomer", told_to_install(wheel, [page for story in stories for page in story]))
    programs = ["--programs", str(Path(env["VIRTUAL_ENV"]) / "bin")]
    for story in stories:
        run(session, checks(session), "python", "-m", "tests.docs", *programs, *story)


def told_to_install(wheel: Path, pages: list[str]) -> list[str]:
    """Return what pages tell their readers to install, with a wheel in place of the package."""
    extras, others = set[str](), set[str]()
    for page in pages:
        for words in re.findall(r"`pip install ([^`]+)`", Path(page).read_text()):
            for word in shlex.split(words.removeprefix("-e ")):
                own = re.fullmatch(r"(?:\.|trio-cogment)\[([\w,-]+)\]", word)
                extras |= set(own[1].split(",")) if own else set()
                others |= set() if own else {word}
    return [f"{wheel}[{','.join(sorted(extras))}]" if extras else str(wheel), *sorted(others)]
