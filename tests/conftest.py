"""One lab for all tests that need a cluster: brought up once as a user would, taken down at the end.

A lab that was up before is used as it is and left standing: it is somebody's. `SLIPWAY_KEEP_LAB=1` leaves a lab of the
tests' own standing too, for work on one test after another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipway import release as releases
from slipway import spec
from slipway.fleet.lab.machine import MachineState, machine_state
from tools import Stack, our_processes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order by folder: cheap first; of the lab's tests those that look before those that break things, destroy last."""
    order = ["unit", "graph", "provider", "roles", "lab", "bench"]

    def key(item: pytest.Item) -> tuple[int, int]:
        folder = next((index for index, name in enumerate(order) if name in item.path.parts), len(order))
        return folder, 1 if item.get_closest_marker("last") else 0

    items.sort(key=key)


@pytest.fixture(scope="session")
def before_lab() -> MachineState:
    """The machine as it was before the lab came up."""
    return machine_state()


@pytest.fixture(scope="session")
def processes_before_lab() -> list[str]:
    """What ran before the lab came up, such as a language host that a killed engine of another test left."""
    return our_processes()


@pytest.fixture(scope="session")
def lab(
    before_lab: MachineState, processes_before_lab: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """The lab stack, up and running."""
    del before_lab, processes_before_lab  # asked for so that they are taken first
    stack = Stack("lab", tmp_path_factory.mktemp("lab"))
    stack.up()
    yield stack
    if stack.ours and os.environ.get("SLIPWAY_KEEP_LAB") != "1" and not stack.destroyed:
        stack.destroy()


@pytest.fixture(scope="session")
def hosts(lab: Stack) -> Callable[[str], list[object]]:
    """testinfra hosts over SSH by group (etcd, etcd_events, apiservers, load_balancers, nodes) or pool (cpu, gpu)."""
    return lab.testinfra


@pytest.fixture(scope="session")
def cluster() -> spec.Cluster:
    """The declaration of the lab stack."""
    return spec.load(Path(__file__).parents[1] / "stacks/Pulumi.lab.yaml")


@pytest.fixture(scope="session")
def release(cluster: spec.Cluster) -> releases.Release:
    """The release of the lab stack."""
    return releases.load(cluster.release)
