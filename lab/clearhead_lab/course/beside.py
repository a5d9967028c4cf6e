"""Pages of the explorer that share a script and a style sheet, in the folder `assets` of the site.

An exported file holds both, half a megabyte of them. A browser that has opened one figure of the site has them for all
others.
"""

from collections.abc import Mapping
from html import escape
from pathlib import Path

from clearhead.explorer.export.page import blocks
from clearhead.explorer.static_files import static_file

LANGUAGES = ("en",)
"""What the figures of the site speak: its own language. Each figure holds its texts."""
SCRIPTS = {"file": "explorer.css", "exercises": "exercises.css"}
"""The script of figures and walks and that of exercises, each with its style sheet."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="clearhead-course" content="../course/">
<title>{title} · clearhead</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="../assets/{style}">
<link rel="stylesheet" href="../assets/figure.css">
<script defer src="../assets/figure.js"></script>
<script defer src="../assets/{script}"></script>
</head>
<body>
{top}<div id="app"><p>Opening. If nothing else appears, JavaScript is off.</p></div>
{parts}
</body>
</html>
"""
"""The chapters lie in `../course/`: the explorer links its places to them (ui/src/parts/course.ts)."""
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
"""A browser does not take a page that was opened from a disk for its own origin, hence `file:`."""


def page(title: str, parts: Mapping[str, str], state: str = "", *, top: str = "") -> bytes:
    """A page with these parts, one folder below the site. `top` is HTML that stands above the explorer."""
    script = "exercises" if "exercises" in parts else "file"
    filled = PAGE.format(
        policy=POLICY,
        title=escape(title),
        style=SCRIPTS[script],
        script=f"{script}.js",
        top=top,
        parts=blocks(parts, state),
    )
    return filled.encode()


def write_shared(assets: Path) -> None:
    """Writes the scripts and the style sheets."""
    assets.mkdir(parents=True, exist_ok=True)
    for script, style in SCRIPTS.items():
        text = static_file("tokenizers.js").decode() + classic(static_file(f"{script}.js").decode())
        (assets / f"{script}.js").write_text(text, encoding="utf-8")
        (assets / style).write_bytes(static_file(style))


def classic(module: str) -> str:
    """The module, which exports nothing, as a classic script: from a disk a browser loads no module."""
    return f'(() => {{"use strict";\n{module}\n}})();\n'
