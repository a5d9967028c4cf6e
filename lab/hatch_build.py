"""Puts the guides into the wheel and the sdist, beside the chapters that link to them. A checkout has them in docs/."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Guides(BuildHookInterface):  # type: ignore[type-arg]
    """An editable lab, and one from an sdist, have them already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        docs = Path(self.root).parent / "docs"
        if version == "standard" and docs.is_dir():
            build_data["force_include"][str(docs)] = "clearhead_lab/course/guides"
