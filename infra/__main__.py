"""The whole program: load → lint → fleet → plays → add-ons → outputs."""

from __future__ import annotations

import signal

import pulumi
import pulumi_kubernetes

from slipway import lint, release, spec, trust
from slipway import stack as stacks
from slipway.addons import Context, coredns, dns_autoscaler, fairness, priority, rbac
from slipway.fleet.lab.build import build
from slipway.mirror.content import MirrorError
from slipway.plays import Plays, sources


def main() -> None:
    """Declare the cluster of the selected stack."""
    stack = pulumi.get_stack()
    where = f"stacks/Pulumi.{stack}.yaml"
    cluster = spec.parse(pulumi.Config("slipway").require_object("cluster"), where, stack)
    pinned = release.load(cluster.release)
    deployed = stacks.deployed(stack)
    case = lint.Case(cluster, pinned, lint.deployed_release(deployed), deployed, where, release.shown(cluster.release))
    for finding in lint.refuse(case):
        if finding.severity == "warning" and not finding.waived:
            pulumi.log.warn(str(finding))

    trusted = trust.create(cluster)
    fleet = build(cluster, trusted.ssh_key.public_key)
    plays = Plays(cluster, pinned, fleet, trusted, sources(cluster, pinned, fleet, trusted))

    etcd, events = plays.etcd("etcd"), plays.etcd("etcd_events")
    apiservers = plays.apiservers(after=[etcd, events])
    # Load balancers know servers that are ready. In a new cluster nobody is disturbed by one that is not yet.
    balancers = plays.load_balancers(after=[apiservers] if "apiservers" in deployed else [])
    plays.leavers(etcds=[apiservers], balancers=[apiservers, balancers])

    kubeconfig = trust.kubeconfig(cluster, trusted)
    provider = pulumi_kubernetes.Provider(
        "cluster",
        kubeconfig=kubeconfig,
        # A kubeconfig that is not yet known, or renewed, is the same cluster: nothing in it is replaced.
        cluster_identifier=cluster.name,
        opts=pulumi.ResourceOptions(depends_on=[apiservers, balancers]),
    )
    context = Context(
        cluster,
        provider,
        after=[apiservers, balancers],
        lives_in=apiservers,
        images={name: pinned.image(name) for name in pinned.images},
    )
    base = [*rbac.create(context), *priority.create(context), *fairness.create(context)]
    pools = [plays.pool(pool, kubeconfig, after=[*base, balancers]) for pool in cluster.pools]
    workloads = context.then(pools)
    coredns.create(workloads)
    dns_autoscaler.create(workloads)

    pulumi.export("kubeconfig", kubeconfig)
    pulumi.export("sshPrivateKey", trusted.ssh_key.private_key)
    pulumi.export(
        "hosts",
        {
            machine.host.name: {
                "address": str(machine.host.address),
                "group": machine.host.group,
                "pool": machine.host.pool,
                "user": machine.user,
                "hostKey": machine.host_key,
            }
            for machine in fleet.machines
        },
    )


# Pulumi's language host stops a program by this signal, when a resource failed or at Ctrl-C: end without a traceback.
signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    main()
except (spec.SpecError, release.ReleaseError, MirrorError) as error:
    raise pulumi.RunError(str(error)) from None
