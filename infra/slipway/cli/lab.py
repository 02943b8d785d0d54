"""`slipway lab`: look at the hosts on this machine, go into them, stop and start them."""

from __future__ import annotations

import datetime as dt
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from slipway.cli.problems import FAILED, Problem
from slipway.fleet.lab import host, network
from slipway.fleet.lab.errors import LabError

app = typer.Typer(help="Hosts of the lab on this machine.", no_args_is_help=True)

Host = Annotated[str, typer.Argument(help="Host, or network/host where two networks have one of that name.")]
Names = Annotated[list[str], typer.Argument(help="Hosts (host or network/host) or whole networks.")]
Rest = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


@app.command("list")
def list_hosts() -> None:
    """Show all hosts: address, state, memory, time since their start."""
    pairs = [(name, one) for name in network.names() for one in host.names(name)]
    if not pairs:
        typer.echo("no lab hosts; make some with: ./slipway up")
        return
    with ThreadPoolExecutor(8) as pool:
        states = [state for state in pool.map(lambda pair: host.inspect(*pair), pairs) if state]
    table = Table("network", "host", "address", "OS", "state", "memory", "up for", box=None, header_style="bold")
    for state in states:
        table.add_row(
            state.network,
            state.name,
            state.address,
            state.os,
            "running" if state.running else "stopped",
            "" if state.memory is None else f"{state.memory / 2**20:.0f} MiB",
            "" if state.started is None else _elapsed(dt.datetime.now(dt.UTC) - state.started),
            style=None if state.running else "red",
        )
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)


@app.command(context_settings=Rest)
def shell(context: typer.Context, name: Host) -> None:
    """Go into a host without SSH, or run a command there: slipway lab shell lab-etcd-0 systemctl status etcd."""
    command = host.shell(*host.find(name), context.args[context.args[:1] == ["--"] :])
    os.execvp(command[0], command)  # noqa: S606 (this process becomes the shell)


@app.command(context_settings=Rest)
def logs(context: typer.Context, name: Host) -> None:
    """Show a host's journal; options of journalctl may follow: slipway lab logs lab-api-0 -u kube-apiserver -f."""
    command = host.logs(*host.find(name), context.args)
    os.execvp(command[0], command)  # noqa: S606 (this process becomes journalctl)


@app.command()
def stop(
    names: Names,
    kill: Annotated[bool, typer.Option("--kill", help="At once, as a power cut does.")] = False,
) -> None:
    """Power hosts off; their data stay."""
    _each(names, "stopped", host.kill if kill else host.stop)


@app.command()
def start(names: Names) -> None:
    """Start hosts that are stopped, after a reboot of the machine too."""
    _each(names, "started", host.start)


@app.command()
def destroy(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove hosts and all their data without Pulumi's knowing; a whole network goes with its bridge and rules.

    A stack that still has them: `slipway up` makes them again, `slipway destroy` is the usual way to be rid of them.
    """
    pairs = _resolve(names)
    networks = [name for name in names if network.load(name)]
    what = ", ".join([*(f"network {name}" for name in networks), *(one for _, one in pairs)])
    if not yes:
        if not sys.stdin or not sys.stdin.isatty():
            raise Problem(f"lab destroy removes {what} and all data in them; without a terminal to ask, add --yes")
        if not typer.confirm(f"Remove {what} and all data in them?"):
            raise Problem("nothing was removed", FAILED)
    _each_pair(pairs, "removed", host.destroy)
    for name in networks:
        network.destroy(name)
        typer.echo(f"network {name} removed")


def _resolve(names: list[str]) -> list[tuple[str, str]]:
    """Return (network, host) for each name; a network's name means all of its hosts."""
    pairs: list[tuple[str, str]] = []
    for name in names:
        pairs += [(name, one) for one in host.names(name)] if network.load(name) else [host.find(name)]
    return list(dict.fromkeys(pairs))


def _each(names: list[str], done: str, work: host.Work) -> None:
    _each_pair(_resolve(names), done, work)


def _each_pair(pairs: list[tuple[str, str]], done: str, work: host.Work) -> None:
    """Do the same to many hosts side by side; say what failed, all of it, at the end."""

    def one(pair: tuple[str, str]) -> str:
        try:
            work(*pair)
        except LabError as error:
            return str(error)
        typer.echo(f"{pair[1]} {done}")
        return ""

    with ThreadPoolExecutor(16) as pool:
        problems = [problem for problem in pool.map(one, pairs) if problem]
    if problems:
        raise LabError("\n".join(problems))


def _elapsed(time: dt.timedelta) -> str:
    seconds = int(time.total_seconds())
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
