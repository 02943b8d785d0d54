"""`slipway up`, `preview`, `refresh`, `destroy` and `kubeconfig`: Pulumi, with all it needs made first."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import typer

from slipway import documents, lint, release, spec
from slipway import stack as stacks
from slipway.cli import setup
from slipway.cli.problems import FAILED, Problem
from slipway.switches import TASKS
from slipway.timing import elapsed

Stack = Annotated[str, typer.Argument(help="Name of the stack: stacks/Pulumi.<stack>.yaml.", show_default=True)]
_GOES_ON = "what is done is kept: the same command goes on from there"

_AFTER_FAILURE = {
    "up": f"{_GOES_ON}; what came of each host: ./slipway report {{stack}}",
    "preview": "nothing was changed",
    # An API that is down fails a refresh, and an `up` is what brings it back.
    "refresh": "what was found on hosts is kept: see ./slipway status {stack}; ./slipway up {stack} mends it",
    "destroy": _GOES_ON,
}
"""What to do after a Pulumi command that failed."""

Target = Annotated[list[str] | None, typer.Option(help="Only this resource (URN); may be given several times.")]


def up(
    stack: Stack = "lab",
    target: Target = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="Show what changes on hosts, of large plays too.")] = False,
) -> None:
    """Bring hosts and cluster to what the stack file says: install, change, repair."""
    begun = time.monotonic()
    shown = {TASKS: "1"} if tasks else {}
    _run("up", stack, ["--skip-preview", "--yes", "--suppress-outputs", *_targets(target)], shown)
    typer.echo(
        f"\n{stack} is up after {elapsed(time.monotonic() - begun)}. Next:\n"
        f"  ./slipway kubeconfig {stack} > {stack}.kubeconfig\n"
        f'  eval "$(./slipway env {stack})" && kubectl --kubeconfig {stack}.kubeconfig get nodes -o wide\n'
        f"  ./slipway destroy {stack}"
    )


def preview(
    stack: Stack = "lab",
    target: Target = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show each changed value.")] = False,
) -> None:
    """Show what `up` would change; change nothing."""
    _run("preview", stack, ["--suppress-outputs", *(["--diff"] if diff else []), *_targets(target)])


def refresh(stack: Stack = "lab", target: Target = None) -> None:
    """Look at the hosts and bring Pulumi's state to what they are."""
    _run("refresh", stack, ["--skip-preview", "--yes", "--suppress-outputs", *_targets(target)])


def destroy(stack: Stack = "lab", target: Target = None) -> None:
    """Take the cluster and all its hosts away."""
    begun = time.monotonic()
    _run("destroy", stack, ["--skip-preview", "--yes", *_targets(target)])
    typer.echo(f"\n{stack} is gone after {elapsed(time.monotonic() - begun)}.")


def kubeconfig(stack: Stack = "lab") -> None:
    """Print the administrator's kubeconfig of a cluster."""
    _, environment = setup.stack_ready(stack)
    try:
        text = stacks.pulumi(["stack", "output", "kubeconfig", "--show-secrets", "--stack", stack], environment)
    except stacks.StackError:
        raise Problem(f"stack {stack} has no kubeconfig yet; run: ./slipway up {stack}") from None
    typer.echo(text.rstrip("\n"))


def case(stack: str) -> lint.Case:
    """Return what the rules judge of a stack: its file, its release, and what is deployed.

    Raises:
        StackError, SpecError, ReleaseError: no such stack, or mistakes in its file or in the release's.
    """
    file = stacks.file(stack)
    cluster = spec.read(file)
    deployed = stacks.deployed(stack)
    return lint.Case(
        cluster=cluster,
        release=release.load(cluster.release),
        before=lint.deployed_release(deployed),
        deployed=deployed,
        stack_file=documents.shown(file),
        release_file=release.shown(cluster.release),
    )


def _run(verb: str, stack: str, options: list[str], more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run one Pulumi command on a stack with this terminal; `more` goes into its environment.

    Raises:
        SpecError: a rule refuses the stack or its release.
        Problem: Pulumi failed; it has already said why.
    """
    if verb in ("up", "preview"):
        lint.refuse(case(stack))  # before anything is fetched or built
    _, environment = setup.stack_ready(stack)
    for line in stacks.recover(stack, environment):
        typer.echo(line, err=True)
    if stacks.stream([verb, "--stack", stack, *options], {**environment, **more}) != 0:
        raise Problem(f"{verb} of {stack} did not finish; {_AFTER_FAILURE[verb].format(stack=stack)}", FAILED)


def _targets(targets: list[str] | None) -> list[str]:
    return [f"--target={target}" for target in targets or []]
