"""Defects that people make, one line each, to see which of them the tests find."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

PRODUCT, PAGE, LAB = "clearhead", "ui/", "lab/"
LIST = Path(__file__).with_name("defects.toml")


@dataclass(frozen=True)
class Defect:
    """One line of the product, written wrongly."""

    name: str
    file: str
    """Below clearhead/, or of the page or the lab, which begin with ui/ and lab/."""
    before: str
    """A text that stands once in the file."""
    after: str
    tests: tuple[str, ...]
    """Below tests/, or lab/tests/...: those of the file and its area."""

    def path(self, root: Path) -> Path:
        """The file in the tree that begins at `root`."""
        return root / ("" if self.file.startswith((PAGE, LAB)) else PRODUCT) / self.file

    @property
    def is_of_page(self) -> bool:
        """Whether its language is TypeScript."""
        return self.file.startswith(PAGE)

    @property
    def test_paths(self) -> list[str]:
        """Those of `tests`, from the root of the tree."""
        return [name if name.startswith(LAB) else f"tests/{name}" for name in self.tests]

    def applied(self, source: str) -> str:
        """The source with the defect. Raises ValueError unless `before` stands in it once."""
        if (n := source.count(self.before)) != 1:
            raise ValueError(f"{LIST.name}, {self.name!r}: expected one {self.before!r} in {self.file}, got {n}")
        return source.replace(self.before, self.after)


def defects() -> list[Defect]:
    """All, in the order of their numbers."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))["defect"]
    return [Defect(one["name"], one["file"], one["before"], one["after"], tuple(one["tests"])) for one in listed]
