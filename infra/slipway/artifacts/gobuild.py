"""Build a component from pinned Go modules.

A recipe is a folder `builds/<component>/` with go.mod and go.sum (every module pinned by hash) and, where the component
needs one, a main.go of ours. Go's own module and build caches are used, so an interrupted build goes on where it was.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from slipway import apt, paths
from slipway.release import Arch, Build, Toolchain

RECIPES = Path(__file__).parent / "builds"

_MODULE_OF_TOOLCHAIN = "golang.org/toolchain"
_SOURCES = {".go", ".mod", ".sum", ".json", ".patch"}


class BuildError(RuntimeError):
    """A build that failed; one line, with the file that has all of the compiler's output."""


def recipe_files(component: str) -> dict[str, bytes]:
    """Return the content of each file of a recipe by its name; tests of Go sources are left out."""
    folder = RECIPES / component
    if not (folder / "go.mod").is_file():
        raise BuildError(f"{component}: no recipe: {folder}/go.mod is missing")
    return {
        file.name: file.read_bytes()
        for file in sorted(folder.iterdir())
        if file.suffix in _SOURCES and not file.name.endswith("_test.go")
    }


def build(component: str, recipe: Build, toolchain: Toolchain, arch: Arch, target: Path) -> None:
    """Build every file of a component into an existing, empty folder.

    Raises:
        BuildError: Go, a C compiler or a source is missing, or the compiler refused.
        apt.PackageError: Debian packages for the build cannot be installed.
    """
    apt.install(apt.missing(recipe.debian_packages))
    go = find_go(toolchain, arch)
    log = paths.runs() / f"build-{component}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = _environment(go, cgo=recipe.cgo)
    with tempfile.TemporaryDirectory(prefix=f"slipway-{component}-") as work, log.open("wb") as output:
        source = Path(work)
        for name, content in recipe_files(component).items():
            (source / name).write_bytes(content)
        if recipe.copies or recipe.embeds:
            module = _module_folder(component, recipe, go, source, environment)
            for name, path in recipe.embeds.items():
                shutil.copyfile(module / path, source / name)
            for name, path in recipe.copies.items():
                shutil.copyfile(module / path, target / name)
                (target / name).chmod(0o755)
        for names, packages in _calls(recipe):
            place = str(target / names[0]) if len(names) == 1 else f"{target}/"
            done = subprocess.run(
                [str(go), "build", *flags(recipe), "-o", place, *packages],
                cwd=source,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
            if done.returncode != 0:
                raise BuildError(f"{component}: building {', '.join(names)} failed: {_reason(log)}; all of it: {log}")


def flags(recipe: Build) -> list[str]:
    """Return the flags of `go build`: reproducible, without debug tables, versions set by the linker."""
    link = ["-s", "-w", *(f"-X {name}={value}" for name, value in recipe.variables.items())]
    if recipe.static:
        link += ["-linkmode external", "-extldflags -static"]
    tags = ["-tags", " ".join(recipe.tags)] if recipe.tags else []
    return ["-trimpath", "-buildvcs=false", *tags, "-ldflags", " ".join(link)]


def _calls(recipe: Build) -> list[tuple[list[str], list[str]]]:
    """Split the files over calls of `go build`: one for all that Go itself names right (it links them side by side)."""
    together = [(name, package) for name, package in recipe.packages.items() if package.rsplit("/", 1)[-1] == name]
    alone = [pair for pair in recipe.packages.items() if pair not in together]
    calls = [([name], [package]) for name, package in alone]
    if together:
        calls.append(([name for name, _ in together], [package for _, package in together]))
    return calls


def find_go(toolchain: Toolchain, arch: Arch) -> Path:
    """Return the pinned Go: the machine's own when it is that version, else fetched as a Go module and checked.

    Raises:
        BuildError: there is no Go to fetch it with, or what came has another hash.
    """
    own = _own_go()
    if own and _version(own) == toolchain.version:
        return own
    folder = paths.cache() / "go" / f"go{toolchain.version}-{arch}"
    go = folder / "bin" / "go"
    with FileLock(paths.locks() / "go.lock"):
        if not go.is_file():
            if own is None:
                apt.install(apt.missing(["golang-go"]))
                own = _own_go()
            if own is None:
                raise BuildError(
                    f"no Go to fetch Go {toolchain.version} with; run: {apt.install_command(['golang-go'])}"
                )
            _fetch_toolchain(own, toolchain, arch, folder)
    return go


def _own_go() -> Path | None:
    """Return the machine's Go of any version, or None."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    return Path(found) if found else None


def _version(go: Path) -> str:
    said = subprocess.run(
        [str(go), "env", "GOVERSION"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GOTOOLCHAIN": "local"},
    ).stdout
    return said.strip().removeprefix("go").split(" ")[0]


def _fetch_toolchain(own: Path, toolchain: Toolchain, arch: Arch, folder: Path) -> None:
    """Unpack the pinned toolchain into a folder, by way of any Go's module client."""
    version = f"v0.0.1-go{toolchain.version}.linux-{arch}"
    if arch not in toolchain.sums:
        raise BuildError(f"the release has no hash of Go {toolchain.version} for {arch}; add it to toolchain.sums")
    with tempfile.TemporaryDirectory(prefix="slipway-go-") as work:
        (Path(work) / "go.mod").write_text("module slipway.build/toolchain\n\ngo 1.19\n")
        environment = {**_environment(own, cgo=False), "GOFLAGS": "-mod=mod"}
        said = _mod_download(own, f"{_MODULE_OF_TOOLCHAIN}@{version}", Path(work), environment)
        if "Zip" not in said:
            raise BuildError(f"Go {toolchain.version} cannot be fetched: {said['Error']}")
    archive = Path(said["Zip"])
    found = module_hash(archive)
    if found != toolchain.sums[arch]:
        raise BuildError(f"Go {toolchain.version}: wanted {toolchain.sums[arch]}, got {found} ({archive})")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".go-", dir=folder.parent))
    prefix = f"{_MODULE_OF_TOOLCHAIN}@{version}/"
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            inside = member.filename.removeprefix(prefix)
            path = partial / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            with opened.open(member) as read, path.open("wb") as write:
                shutil.copyfileobj(read, write)
            if inside.startswith(("bin/", "pkg/tool/", "pkg/include/")):  # a module keeps no execute bits
                path.chmod(0o755)
    partial.rename(folder)


def module_hash(archive: Path) -> str:
    """Return Go's `h1:` hash of a module's zip: the SHA-256 of the sorted list of `<sha256>  <name>` lines."""
    with zipfile.ZipFile(archive) as opened:
        lines = [f"{hashlib.sha256(opened.read(name)).hexdigest()}  {name}\n" for name in sorted(opened.namelist())]
    return "h1:" + base64.b64encode(hashlib.sha256("".join(lines).encode()).digest()).decode()


def _environment(go: Path, *, cgo: bool) -> dict[str, str]:
    """Return the environment of a build: the user's proxies and caches, nothing that changes what comes out."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"GOROOT", "GOOS", "GOARCH", "GOEXPERIMENT", "GOWORK", "GO111MODULE", "CGO_CFLAGS"}
    }
    if "HOME" not in kept:  # Go needs some place for its caches
        kept.setdefault("GOPATH", str(paths.cache() / "go" / "path"))
        kept.setdefault("GOCACHE", str(paths.cache() / "go" / "build"))
    return kept | {
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "CGO_ENABLED": "1" if cgo else "0",
        "PATH": f"{go.parent}:{kept.get('PATH', os.defpath)}",
    }


def _module_folder(component: str, recipe: Build, go: Path, source: Path, environment: dict[str, str]) -> Path:
    """Return where Go keeps the source of the recipe's main module, fetched and checked against go.sum."""
    said = _mod_download(go, recipe.module, source, environment)
    if "Dir" not in said:
        raise BuildError(f"{component}: {recipe.module} cannot be fetched: {said['Error']}")
    return Path(said["Dir"])


def _mod_download(go: Path, module: str, work: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Fetch a module; return what Go says of it. Without the wanted key there is one line in `Error`."""
    done = subprocess.run(
        [str(go), "mod", "download", "-json", module],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    said: dict[str, str] = json.loads(done.stdout) if done.stdout.strip().startswith("{") else {}
    return said | {"Error": _last_line(str(said.get("Error") or done.stderr))}


def _reason(log: Path) -> str:
    """Return the first line of a compiler's output that is more than news of downloads."""
    lines = log.read_text(errors="replace").splitlines()
    telling = [line for line in lines if line.strip() and not re.match(r"^(go: downloading|# )", line)]
    return telling[0].strip() if telling else "no word from the compiler"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
