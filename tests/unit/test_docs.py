"""Pages say what is there: commands parse, links and paths exist, pages made from code are fresh."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import documents
from documents import CHANGES, PAGES, ROOT, name
from slipway import docs
from slipway.cli.app import app

COMMAND: Any = typer.main.get_command(app)

CHANGING = re.compile(
    r"slipway (up|destroy|refresh|test|engines|lab (stop|start|destroy)|release lock|mirror)\b"
    r"|pulumi (up|destroy|refresh(?!.*--preview-only)|cancel|import)\b"
    r"|kubectl .*\b(label|taint|drain|cordon|delete|create|apply|edit|patch|scale)\b"
    r"|systemctl (re)?(start|stop|kill)|\brm\b"
)

pages = pytest.mark.parametrize("page", PAGES, ids=name)


def parse(arguments: list[str]) -> None:
    """Parse a command line down to its last command, without running it."""
    command, rest = COMMAND, arguments
    while hasattr(command, "commands"):
        if not rest or rest == ["--help"]:
            return
        assert rest[0] in command.commands, f"no command {rest[0]!r}; there are: {', '.join(command.commands)}"
        command, rest = command.commands[rest[0]], rest[1:]
    if rest != ["--help"]:
        command.make_context(command.name, list(rest))


def test_pages_made_from_code_are_fresh() -> None:
    assert docs.stale() == [], f'after `eval "$(./slipway env)"` run: {docs.COMMAND}'


@pages
def test_commands_parse(page: Path) -> None:
    for arguments in documents.slipway_calls(page):
        try:
            parse(arguments)
        except Exception as error:
            raise AssertionError(f"./slipway {' '.join(arguments)}: {error}") from error


@pages
def test_what_changes_something_is_run_by_a_test(page: Path) -> None:
    assert [line for line in documents.commands(page) if CHANGING.search(line) and line not in CHANGES] == []


def test_the_table_of_changes_is_right() -> None:
    written = {line for page in PAGES for line in documents.commands(page)}
    assert set(CHANGES) - written == set()
    for node in set(CHANGES.values()):
        file, _, function = node.partition("::")
        assert re.search(rf"^def {function}\(", (ROOT / file).read_text(), re.MULTILINE), node


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for link in documents.links(page):
        if link.startswith(("https://", "http://")):
            continue
        target, _, fragment = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), link
        if fragment:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert fragment in {docs.anchor(heading) for heading in headings}, link


@pages
def test_paths_exist(page: Path) -> None:
    assert [path for path in documents.paths_named(page) if not any(ROOT.glob(path.rstrip("/")))] == []


def test_every_page_is_linked() -> None:
    linked = {(page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in documents.links(page)}
    assert [name(page) for page in PAGES if page.name != "README.md" and page not in linked] == []


FOREIGN = {"the stack is currently locked", "Unable to connect to the server", "incorrect passphrase"}
FOREIGN |= {"No space left on device", "database space exceeded", "kubectl get events", "doctor", "lab list"}
FOREIGN |= {"<host>: <role> : <task>: "}


def test_failures_are_told_in_these_words() -> None:
    """What the index says one sees is in the code, between what it leaves out (`…`); but for others' words."""
    files = [
        ROOT / "slipway",
        *(file for top in ("infra", "playbooks", "roles") for file in (ROOT / top).rglob("*.py")),
    ]
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(file.read_text() for file in files))
    code = re.sub(r"\s+", " ", code)
    rows = [line for line in (ROOT / "docs/trouble.md").read_text().splitlines() if line.startswith("| [")]
    assert len(rows) == len(list((ROOT / "docs/trouble").glob("*.md")))
    words = {part for row in rows for said in re.findall(r"`([^`]+)`", row) for part in said.split("…") if part.strip()}
    assert {part for part in words - FOREIGN if part.strip() not in code} == set()


@pages
def test_python_is_python(page: Path) -> None:
    for block in documents.blocks(page, "python"):
        compile(block, name(page), "exec")
