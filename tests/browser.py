"""A real browser: Chromium without a window, installed when it is missing."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from slipway import apt

PACKAGE = "chromium-headless-shell"
"""Package, and the program in it. Debian has it; Ubuntu has Chromium only as a snap, which does not run everywhere."""


def dom(page: Path, then: str = "") -> str:
    """Open a page and return its document as it is after its scripts, and then another script, have run.

    Fails when the page writes an error to the console, asks for anything from elsewhere, or breaks its own policy.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(page.read_text().replace("</body>", f"<script>{then}</script></body>"))
        done = subprocess.run(
            [
                program(),
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={folder}/profile",
                "--enable-logging=stderr",
                "--timeout=20000",
                "--dump-dom",
                copy.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert done.returncode == 0, done.stderr
    assert not complaints, complaints
    return done.stdout


def program() -> str:
    """Return the browser's program."""
    if not shutil.which(PACKAGE):
        apt.install([PACKAGE])
    found = shutil.which(PACKAGE)
    assert found
    return found
