"""The project's tasks. `nox` runs the default ones; `nox -l` lists all."""

from pathlib import Path

import nox

nox.options.sessions = ["tests", "sim", "lint", "types", "interop"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

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
]

# The programs in tests/fuzz, and the modules of which they have to reach nine tenths: engine and framing.
FUZZED = ["engine_server", "engine_client", "framing", "headers", "endpoints"]
FUZZED_MODULES = [
    f"src/trio_cogment/rpc/_{name}.py"
    for name in ("control", "engine", "floods", "frames", "hpack", "parser", "sender", "streams", "windows", "wire")
]


def install(session: nox.Session, *groups: str) -> None:
    """Install the project, editable, with some of its dependency groups."""
    session.install("-e", ".", *nox.project.dependency_groups(PROJECT, *groups))


@nox.session
def tests(session: nox.Session) -> None:
    """Every test that needs no foreign environment, and no long proof."""
    install(session, "test")
    session.run("pytest", "-m", "not interop and not soak", *session.posargs)


@nox.session
def sim(session: nox.Session) -> None:
    """The orchestrator under faults, simulated, over 300 seeds; `nox -s sim -- --seeds 20000`, or `--seed N`."""
    install(session, "test")
    session.run("python", "-m", "tests.sim", *session.posargs)


@nox.session
def mutations(session: nox.Session) -> None:
    """Bugs planted into copies of the source: the simulated suite must find each; a few minutes."""
    install(session, "test")
    session.run("python", "-m", "tests.sim.mutations", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, formatting, and the generated API's freshness."""
    install(session, "lint", "protos")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "tools/generate_api.py", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Static types, strict, of source and tests."""
    install(session, "test", "types")
    session.run("mypy")


@nox.session
def interop(session: nox.Session) -> None:
    """An application on the published SDK, in an environment of its own, against our servers."""
    install(session, "test")
    session.run("pytest", "-m", "interop and not soak", *session.posargs, env=_foreign_environment(session))


@nox.session
def soak(session: nox.Session) -> None:
    """The long proofs; minutes to hours."""
    install(session, "test")
    # A proof may take longer than what counts as a hang elsewhere.
    options = ["-m", "soak", "-o", "faulthandler_timeout=0"]
    session.run("pytest", *options, *session.posargs, env=_foreign_environment(session))


@nox.session
def fuzz(session: nox.Session) -> None:
    """A million inputs for each parser, and how much of the engine they have reached; most of an hour."""
    install(session, "fuzz")
    corpus = Path(session.create_tmp()) / "corpus"
    session.run("python", "-m", "tests.fuzz.corpus", str(corpus))
    options = session.posargs or ["-atheris_runs=1000000"]
    for program in FUZZED:
        session.run("python", "-m", f"tests.fuzz.{program}", "-max_len=240", *options, str(corpus / program))
    session.run("coverage", "run", "--branch", "-m", "tests.fuzz.replay", str(corpus))
    session.run("coverage", "report", "--show-missing", "--fail-under=90", f"--include={','.join(FUZZED_MODULES)}")


@nox.session
def protos(session: nox.Session) -> None:
    """Generate src/trio_cogment/api from protos/."""
    install(session, "protos")
    session.run("python", "tools/generate_api.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Redraw the state diagrams in docs/ from the tables, and write what `docs/reliability.md` has from elsewhere."""
    install(session)
    session.run("python", "tools/draw_states.py", *session.posargs)
    session.run("python", "tools/reliability_tables.py", *session.posargs)


@nox.session
def news(session: nox.Session) -> None:
    """Show the change log as it would be at the next release."""
    session.install(*nox.project.dependency_groups(PROJECT, "news"))
    session.run("towncrier", "build", "--draft", "--version", "next")


def _foreign_environment(session: nox.Session) -> dict[str, str]:
    """Make the published SDK's environment and tell the tests where its interpreter is."""
    folder = session.cache_dir / "published-sdk"
    python = folder / "bin" / "python"
    marker = folder / "installed"
    wanted = "\n".join([*PUBLISHED_SDK, *PUBLISHED_SDK_NEEDS])
    if not (marker.exists() and marker.read_text() == wanted):
        session.run("python", "-m", "venv", "--clear", str(folder))
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        session.run(*pip, *PUBLISHED_SDK_NEEDS, external=True)
        session.run(*pip, "--no-deps", "--ignore-requires-python", *PUBLISHED_SDK, external=True)
        marker.write_text(wanted)
    return {"TRIO_COGMENT_PUBLISHED_SDK_PYTHON": str(python.absolute())}
