"""The unmodified JavaScript SDK in Chromium, on a page of another port than the server's.

`python -m tests.interop.browser.chromium FOLDER PORT WHAT ARGUMENT [RUNS]` serves the page, and prints what
`scenario.js` has seen in each run, as a line of JSON. FOLDER has the SDK's package in it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, Error, Playwright, sync_playwright

HERE = Path(__file__).resolve().parent
PAGE = b"""<!doctype html><meta charset="utf-8"><title>scenario</title>
<script src="/sdk/cogment.umd.js"></script><script src="/scenario.js"></script>"""
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Pages(SimpleHTTPRequestHandler):
    """The page, the SDK and the scenario."""

    sdk: Path

    def do_GET(self) -> None:
        files = {"/sdk/cogment.umd.js": self.sdk / "cogment.umd.js", "/scenario.js": HERE / "scenario.js"}
        known = self.path == "/" or self.path in files
        body = PAGE if self.path == "/" else files[self.path].read_bytes() if known else b""
        self.send_response(200 if known else 404)
        self.send_header("content-type", "text/html" if self.path == "/" else "text/javascript")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


def launched(playwright: Playwright) -> Browser:
    """Return a browser: the one that is named, one on PATH, or Playwright's own."""
    path = os.environ.get("TRIO_COGMENT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    # Root has no sandbox, and containers little shared memory.
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])


def _note(complaints: list[str], error: Error) -> None:
    complaints.append(str(error))


def main() -> None:
    folder, port, what, argument, *more = sys.argv[1:]
    pages = partial(type("OurPages", (Pages,), {"sdk": Path(folder) / "package" / "dist"}))
    server = ThreadingHTTPServer(("127.0.0.1", 0), pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync_playwright() as playwright:
            browser = launched(playwright)
            for _ in range(int(more[0]) if more else 1):
                page = browser.new_page()
                complaints: list[str] = []
                page.on("pageerror", partial(_note, complaints))
                page.goto(f"http://localhost:{server.server_port}/")
                call = f"scenario.{what}(window, 'http://127.0.0.1:{port}', {argument})"
                seen = page.evaluate(f"async () => await {call}.catch((error) => ({{error: error.message}}))")
                print(json.dumps({**seen, "complaints": complaints}), flush=True)
                page.close()
            browser.close()
    finally:
        server.shutdown()


if __name__ == "__main__":
    main()
