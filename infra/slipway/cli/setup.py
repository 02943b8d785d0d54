"""What commands need before they start: system packages, engines, images, the stack. Quick when all is there."""

from __future__ import annotations

from slipway import apt, environment, outside, release, spec, stack
from slipway.artifacts import Progress, engines, images
from slipway.fleet.lab import base
from slipway.mirror.client import Client, public_key
from slipway.release import Release


def release_of(name: str) -> Release:
    """Return the release that a stack asks for.

    Raises:
        StackError, SpecError, ReleaseError: no such stack, or mistakes in its file or in the release's.
    """
    return release.load(spec.load(stack.file(name)).release)


def make_ready(
    pinned: Release, progress: Progress, *, packages: bool = True, mirror: engines.Mirror | None = None
) -> None:
    """Install system packages and get engines and images, where they are missing."""
    if packages and (missing := apt.missing(pinned.controller_packages)):
        with progress.step("system", f"installing {' '.join(missing)}"):
            apt.install(missing)
    engines.ensure_all(pinned, progress, mirror=mirror)
    images.ensure(pinned)
    environment.prepare(pinned)


def base_ready(os_name: str, progress: Progress) -> None:
    """Make the tree that lab hosts stand on, where it is missing."""
    if not base.is_ready(os_name):
        with progress.step("lab", f"making the base tree {os_name}") as step:
            base.ensure(os_name, lambda line: setattr(step, "doing", line))


def stack_ready(name: str, *, packages: bool = True) -> tuple[Release, dict[str, str]]:
    """Make all ready for one stack; return its release and the environment for pulumi."""
    cluster = spec.load(stack.file(name))
    pinned = release.load(cluster.release)
    outside.enter(cluster)
    mirror = None
    if cluster.mirror:
        public_key(cluster.mirror.url, cluster.mirror.fingerprint)
        mirror = Client(cluster.mirror.url, cluster.mirror.fingerprint, pinned.id)
    with Progress() as progress:
        make_ready(pinned, progress, packages=packages, mirror=mirror)
        if packages:
            base_ready(cluster.fleet.os, progress)
        variables = environment.merged(pinned)
        for line in stack.ensure(name, variables):
            progress.say(line)
    return pinned, variables
