"""Rules that a stack, its release and its machine types are judged by before anything is touched.

One module a subject, figures in `figures/`. `judging` runs them; `report` shows what they find.
"""

from slipway.lint import (  # noqa: F401 (rules come into being by being read)
    changes,
    cuda,
    dns,
    doca,
    etcd_cluster,
    etcd_version,
    gpu_driver,
    kubernetes,
    network,
    node_software,
    pins,
    pools,
    rollout,
    waivers,
)
from slipway.lint.judging import Case, check, deployed_release, errors, refuse, structural
from slipway.lint.rules import RULES, SEVERITIES, Finding, Rule, Severity

__all__ = [
    "RULES",
    "SEVERITIES",
    "Case",
    "Finding",
    "Rule",
    "Severity",
    "check",
    "deployed_release",
    "errors",
    "refuse",
    "structural",
]
