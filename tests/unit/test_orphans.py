"""What a killed pulumi leaves behind is found and ended; what a living one runs is left alone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipway import orphans


@pytest.fixture
def backend(tmp_path: Path) -> str:
    return f"file://{tmp_path}/state"


@pytest.fixture
def run(tmp_path: Path, backend: str) -> Iterator[Callable[..., int]]:
    """Start a stand-in for pulumi with a provider below it; returns the provider's process number."""
    started: list[subprocess.Popen[bytes]] = []
    providers: list[int] = []

    def start(trap: str = "", url: str = backend) -> tuple[subprocess.Popen[bytes], int]:
        number = tmp_path / f"pid{len(started)}"
        provider = tmp_path / "pulumi-resource-x"
        # Both wait in the shell itself, so that nothing is left below them.
        provider.write_text(
            f"#!/bin/sh\n{trap}\necho $$ >'{number}.new'; mv '{number}.new' '{number}'\nwhile :; do sleep 0.1; done\n"
        )
        provider.chmod(0o755)
        pulumi = tmp_path / "pulumi"
        if not pulumi.exists():
            pulumi.symlink_to("/bin/sh")
        process = subprocess.Popen(
            [str(pulumi), "-c", f"'{provider}' & wait"], env={**os.environ, "PULUMI_BACKEND_URL": url}
        )
        started.append(process)
        while not number.exists():
            time.sleep(0.01)
        providers.append(int(number.read_text()))
        return process, providers[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
    orphans.end(providers, patience=0.1)


def test_of_a_living_run_nothing_is_found(
    run: Callable[..., tuple[subprocess.Popen[bytes], int]], backend: str
) -> None:
    process, _ = run()
    assert orphans.is_pulumi(process.pid)
    assert orphans.find(backend) == []


def test_of_a_killed_run_the_provider_is_ended(
    run: Callable[..., tuple[subprocess.Popen[bytes], int]], backend: str
) -> None:
    process, provider = run()
    process.kill()
    process.wait()
    assert orphans.find(backend) == [provider]
    assert orphans.find(f"{backend}/other") == []
    orphans.end([provider])
    assert orphans.find(backend) == []


def test_one_that_does_not_stop_is_killed(
    run: Callable[..., tuple[subprocess.Popen[bytes], int]], backend: str
) -> None:
    process, provider = run(trap="trap '' TERM")
    process.kill()
    process.wait()
    begun = time.monotonic()
    orphans.end([provider], patience=0.3)
    assert time.monotonic() - begun >= 0.3
    assert orphans.find(backend) == []


def test_one_that_is_gone_already_is_no_error() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    orphans.end([ended.pid])
    assert not orphans.is_pulumi(ended.pid)
