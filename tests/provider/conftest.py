"""The stack that the provider's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from probe import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The stack, not up yet; destroyed at the end."""
    project = Project(tmp_path_factory.mktemp("provider"))
    yield project
    project.configure()
    project.pulumi("cancel", "--yes", check=False)
    project.pulumi("destroy", "--yes", "--skip-preview", check=False)
    for running in ("host.destroy('provider-test', 'probe-0')", "host.destroy('provider-test', 'probe-1')"):
        project.lab(running)
    project.lab("network.destroy('provider-test')")
