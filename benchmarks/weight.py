"""The size on disk of the bare install: clearhead and what it requires, without PyTorch and what PyTorch requires."""

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from benchmarks.entry import run_command


def main() -> None:
    """Prints megabytes for each package of this environment, with and without compiled modules."""
    installed = {plain(one.metadata["Name"]): one for one in distributions()}
    names = {*needed("clearhead", installed)} - {*needed("torch", installed)}
    sizes = sorted(((*size(installed[name]), name) for name in names), reverse=True)
    for whole, sources, name in [*sizes, (sum(one[0] for one in sizes), sum(one[1] for one in sizes), "sum")]:
        print(f"{name:20}{whole / 1e6:8.1f} MB{sources / 1e6:8.1f} MB without compiled modules")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(name: str, installed: dict[str, Distribution]) -> Iterator[str]:
    """The package and all that it requires, without extras."""
    seen, new = set[str](), [name]
    while new:
        if (one := new.pop()) in seen or one not in installed:
            continue
        seen.add(one)
        yield one
        requirements = [text for text in installed[one].requires or () if "extra ==" not in text]
        new += [plain(found.group()) for text in requirements if (found := re.match(r"[\w.-]+", text))]


def size(package: Distribution) -> tuple[int, int]:
    """The bytes of a package's files, and those that are not compiled modules."""
    files = [path for one in package.files or () if (path := Path(str(one.locate()))).is_file()]
    sizes = [(path.stat().st_size, path.suffix != ".pyc") for path in files]
    return sum(n for n, _ in sizes), sum(n for n, is_source in sizes if is_source)


if __name__ == "__main__":
    run_command(main)
