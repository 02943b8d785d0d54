"""Every rule: where it finds something, and where it does not."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
import re

import pytest

import lint_cases
from lint_cases import CASES, RELEASE, TODAY, Case
from slipway import lint, platforms, release
from slipway.lint import figures
from slipway.lint.figures import Figure
from slipway.lint.figures.gpu import ARCHITECTURES, MODELS
from slipway.platforms import Platform

SHIPPED = ("lab", "2026.08", "2026.11")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_gives_exactly_its_rules(case: Case) -> None:
    found = lint.check(case.case, TODAY)
    assert {finding.rule for finding in found} == case.rules, "\n".join(map(str, found))


def test_there_are_cases_enough() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("rule", lint.RULES)
def test_every_rule_has_a_case_where_it_fires_and_one_where_it_does_not(rule: str) -> None:
    firing = [case.name for case in CASES if rule in case.rules]
    silent = [case.name for case in CASES if rule not in case.rules and _runs(rule, case)]
    assert firing, f"no case in tests/lint_cases.py names {rule}"
    assert silent, f"{rule} finds something in every case that it runs in"


def _runs(rule: str, case: Case) -> bool:
    given = {"today", "findings", "release"}
    given |= {name for name in ("before", "deployed") if getattr(case, name) is not None}
    given |= {"cluster"} if case.stack is not None else set()
    return set(lint.RULES[rule].needs) <= given


@pytest.mark.parametrize("rule", lint.RULES.values(), ids=lambda rule: rule.id)
def test_every_rule_says_what_people_need(rule: lint.Rule) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", rule.id)
    assert rule.about.endswith(".")
    assert rule.fix
    assert not rule.fix.endswith(".")
    assert rule.source


# -- figures -----------------------------------------------------------------------------------------------------------


def rows() -> list[object]:
    """Every row of every table of figures."""
    found: list[object] = []
    for module in pkgutil.iter_modules(figures.__path__, "slipway.lint.figures."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if name.startswith("_") or not name.isupper():
                continue
            values = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
            found += values
    return found


def test_every_figure_has_a_source() -> None:
    found = rows()
    assert len(found) > 120
    for row in found:
        assert dataclasses.is_dataclass(row), row
        assert len(str(row.source)) > 5, row  # type: ignore[union-attr]


def test_every_machine_type_has_a_source_and_a_known_gpu() -> None:
    for name, platform in platforms.load().items():
        assert len(platform.source) > 10, name
        assert platform.gpu == "" or platform.gpu in MODELS, name
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", name), f"{name} could not be a key in a release's `install`"
    assert all(model.architecture in ARCHITECTURES for model in MODELS.values())


def test_rules_hold_no_figures() -> None:
    """Versions stand in the tables, with their sources, not in the rules."""
    version = re.compile(r"^\d+\.\d+(\.\d+)*$")
    for module in pkgutil.iter_modules(lint.__path__, "slipway.lint."):
        if module.ispkg:
            continue
        source = importlib.import_module(module.name).__file__
        assert source
        with open(source) as file:  # noqa: PTH123
            tree = ast.parse(file.read())
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                allowed = {"2.1.0"} if module.name.endswith("report") else set()
                assert not version.match(node.value) or node.value in allowed, f"{source}:{node.lineno}: {node.value}"


def test_the_role_writes_the_containerd_configuration_that_the_rule_says() -> None:
    from slipway import paths
    from slipway.lint.figures.node_software import OWN_CONFIG_VERSION

    for name in ("config.toml.j2", "10-slipway.toml.j2"):
        text = (paths.root() / "roles/containerd/templates" / name).read_text()
        assert f"\nversion = {OWN_CONFIG_VERSION.value}\n" in text


# -- what comes with Slipway -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_releases_have_no_errors(name: str) -> None:
    found = lint.check(lint.Case(release=release.load(name)), TODAY)
    assert [str(finding) for finding in found if finding.severity == "error"] == []
    assert any(finding.rule == "unverified" for finding in found)


def test_one_can_go_from_one_shipped_release_to_the_next() -> None:
    case = lint.Case(before=release.load("2026.08"), release=release.load("2026.11"))
    assert lint.errors(lint.check(case, TODAY)) == []


@pytest.mark.parametrize(
    ("platform", "os", "rules"),
    [
        ("nd-a100-v4", "ubuntu24.04", set()),
        ("nd-h100-v5", "ubuntu24.04", set()),
        ("nd-h200-v5", "ubuntu22.04", set()),
        ("nc96-a100-v4", "ubuntu22.04", set()),
        ("nd-gb200-v6", "ubuntu24.04", set()),
        ("nd-gb300-v6", "ubuntu24.04", set()),
        ("gh200", "ubuntu24.04", set()),
        # What it is not for: no subnet manager is pinned, and Volta needs other modules and an older CUDA.
        ("hgx-b200", "ubuntu24.04", {"subnet-manager-missing"}),
        ("nd40-v100-v2", "ubuntu22.04", {"gpu-modules", "gpu-cuda-window", "dcgm-two-cudas"}),
        ("nd-gb200-v6", "ubuntu22.04", {"target-missing"}),
    ],
)
def test_what_the_shipped_release_is_for(platform: str, os: str, rules: set[str]) -> None:
    pool = {"name": "gpu", "count": 18, "platform": platform}
    rack = platforms.load()[platform].rack
    declared = lint_cases.cluster({"pools": [{**pool, **({"unit_size": rack} if rack else {})}]})
    # No fleet of today has Ubuntu, but the rules ask no more than its name.
    declared = declared.model_copy(update={"fleet": declared.fleet.model_copy(update={"os": os})})
    for name in ("2026.08", "2026.11"):
        found = lint.check(lint.Case(cluster=declared, release=release.load(name)), TODAY)
        nccl = {"nccl-gpu"} if name == "2026.11" and "gpu-modules" in rules else set()
        assert {finding.rule for finding in lint.errors(found)} == rules | nccl


@pytest.mark.parametrize("stack", ["lab", "tiny"])
def test_shipped_stacks_have_nothing_but_notes(stack: str) -> None:
    from slipway import paths, spec

    cluster = spec.load(paths.root() / f"stacks/Pulumi.{stack}.yaml")
    found = lint.check(lint.Case(cluster=cluster, release=release.load(cluster.release), deployed={}), TODAY)
    assert {finding.severity for finding in found} <= {"note"}


# -- how it works ------------------------------------------------------------------------------------------------------


def test_a_waiver_lets_an_error_pass() -> None:
    waivers = [{"rule": "fabric-manager-missing", "reason": "the vendor's image has it", "until": "2026-12-01"}]
    case = Case(
        "waived",
        release={"components.nvidia-fabricmanager": lint_cases.GONE},
        stack={"waivers": waivers},
    ).case
    found = lint.check(case, TODAY)
    assert [(finding.rule, finding.waived) for finding in found] == [
        ("fabric-manager-missing", "the vendor's image has it")
    ]
    assert lint.errors(found) == []
    assert lint.refuse(case, TODAY) == found


def test_errors_come_first_and_refuse_names_them_all() -> None:
    from slipway import spec

    case = Case(
        "two",
        release={"components.etcd.version": "3.5.22", "components.nvidia-fabricmanager": lint_cases.GONE},
        stack={},
    ).case
    severities = [finding.severity for finding in lint.check(case, TODAY)]
    assert severities == sorted(severities, key=lint.SEVERITIES.index)
    with pytest.raises(spec.SpecError) as caught:
        lint.refuse(case, TODAY)
    assert len(caught.value.problems) == 2
    assert caught.value.problems[0].startswith("release: components.etcd: 3.5.22 ")
    assert caught.value.problems[0].endswith("; take the newest patch [etcd-corrupts]")


def test_the_same_on_several_hosts_is_told_once() -> None:
    preview = lint_cases.debs("13.4.0", "cuda-toolkit-13-4")
    (finding,) = lint.check(Case("both", release={"components.cuda-toolkit": preview}).case, TODAY)
    assert finding.message == "13.4.0 is a preview"
    own = {"install": {"debian13/arm64": preview, "debian13/amd64/nd-h100-v5": preview}}
    usual = RELEASE["components"]["cuda-toolkit"]
    (finding,) = lint.check(Case("two", release={"components.cuda-toolkit": {**usual, **own}}).case, TODAY)
    assert finding.message == "13.4.0 is a preview (debian13/arm64, debian13/amd64/nd-h100-v5)"


def test_a_rule_cannot_ask_for_what_there_is_not() -> None:
    from slipway.lint.rules import rule

    with pytest.raises(TypeError, match="cannot give it weather"):
        rule("x", "note", source="s", fix="f")(lambda weather: iter(()))
    with pytest.raises(TypeError, match="there are two"):
        rule("etcd-even", "note", source="s", fix="f")(lambda release: iter(()))


def test_deployed_release_is_found_by_its_id() -> None:
    found = lint.deployed_release({"etcd": {"release": "lab"}, "cpu": {"release": "lab"}})
    assert found is not None
    assert found.id == "lab"
    assert lint.deployed_release({"etcd": {"release": "gone"}}) is None
    assert lint.deployed_release({}) is None


def test_figures_and_platforms_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Figure(1, "s").value = 2  # type: ignore[misc]
    with pytest.raises(Exception, match="frozen"):
        Platform(about="a", arch="amd64", source="s").about = "b"  # type: ignore[misc]
