"""A headless browser, and Gradio apps that run in a process of their own, for tests of pages.

The browser is the one that the variable `CHROMIUM` names, or `chromium`, `chromium-browser` or `google-chrome` on the
path, or what `playwright install chromium` left. Without any, a test that asks for `browser` is skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

# Seconds; a machine that is busy with other work is slow, and no test asserts a time.
_PATIENCE = 300
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# Runs an app as if some packages were not installed; those that look for them find nothing, as on a bare machine.
_RUN = """
import runpy, sys

class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)

hidden = set(sys.argv[1:])
sys.meta_path[:] = map(Without, sys.meta_path)
sys.argv[:] = ["app.py"]
runpy.run_path("app.py", run_name="__main__")
"""


def find_browser(playwright) -> str | None:
    """The browser's executable, or `None`; `playwright` is what `sync_playwright` yields."""
    if named := os.environ.get("CHROMIUM"):
        return shutil.which(named)
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    return found or shutil.which(playwright.chromium.executable_path)


# Not for the session: as long as playwright runs, nothing else in this thread can start an event loop.
@pytest.fixture(scope="module")
def browser():
    """A running browser (`playwright.sync_api.Browser`)."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[test]'")
    with api.sync_playwright() as playwright:
        executable = find_browser(playwright)
        if executable is None:
            pytest.skip("no browser: install chromium, or name one in the environment variable CHROMIUM")
        running = playwright.chromium.launch(executable_path=executable, args=list(_OPTIONS), headless=True)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def open_page(browser, url: str, **options) -> Iterator:
    """Opens a page of a local server, and fails at the end if it was not sound.

    A page is sound if it asks no other host for anything (such requests are cut off), logs no error and raises none.

    Args:
        browser: the fixture of this name.
        url (`str`): what to open.
        **options: of `browser.new_context`, such as `viewport`.

    Yields:
        `playwright.sync_api.Page`: its `problems` (`list[str]`) are what was found so far; a test that provokes some
        takes them out.
    """
    context, problems = browser.new_context(**options), []
    host = urlsplit(url).netloc

    def foreign(address: str) -> bool:
        return urlsplit(address).scheme in ("http", "https", "ws", "wss") and urlsplit(address).netloc != host

    def cut_off(route):
        problems.append(f"asked for {route.request.url}")
        route.abort()

    try:
        context.set_default_timeout(1000 * _PATIENCE)
        context.route(foreign, cut_off)
        page = context.new_page()
        page.problems = problems
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(url)
        yield page
        assert not problems, "\n".join(problems)
    finally:
        context.close()


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serve(
    folder: str | Path, env: Mapping[str, str] | None = None, without: Sequence[str] = (), timeout: float = 600
) -> Iterator[str]:
    """Runs `app.py` of a folder as a Space would, offline, and stops it at the end.

    Args:
        folder (`str` or `Path`): holds `app.py`, and is the process's working folder.
        env (mapping, *optional*): environment variables besides those of this process.
        without (sequence of `str`): packages that the app is not to find, such as ours.
        timeout (`float`): seconds to wait for the first answer.

    Yields:
        `str`: the address, `"http://127.0.0.1:PORT"`.

    Raises:
        AssertionError: the app ended, did not answer in time, or printed an error that nobody caught; what it printed
            is shown.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    fixed = {
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _RUN, *without],
            cwd=folder,
            env={**os.environ, **fixed, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(url, process, timeout)
            yield url
            log.seek(0)
            assert b"Traceback (most recent call last)" not in log.read(), "app.py printed an error"
        except BaseException:
            log.seek(0)
            print(f"--- {Path(folder, 'app.py')} printed\n{log.read().decode(errors='replace')}", file=sys.stderr)
            raise
        finally:
            _stop(process)


def _wait(url: str, process: subprocess.Popen, timeout: float) -> None:
    end = time.monotonic() + timeout
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        assert process.poll() is None, f"app.py ended with status {process.returncode}"
        try:
            with direct.open(url, timeout=10):
                return
        except OSError as error:
            assert time.monotonic() < end, f"app.py did not answer within {timeout:g} s: {error}"
        time.sleep(0.2)


def _stop(process: subprocess.Popen) -> None:
    """Ends the process and whatever it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
