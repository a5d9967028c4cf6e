"""The site: the pages that were run, guides, glossary and reference in one folder, and Zensical over it."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from clearhead.errors import UserError
from clearhead_lab.course import around, beside, figures, glossary, reference, values
from clearhead_lab.course.models import ready
from clearhead_lab.course.notebook import notebook
from clearhead_lab.course.page import GUIDES, HERE, PAGES, names
from clearhead_lab.course.running import Ran, fixed, run
from clearhead_lab.examples.records import records
from clearhead_lab.examples.telling import page as errata_page
from clearhead_lab.examples.verdicts import judged

WORK = (GUIDES.parent if GUIDES.name == "docs" else Path.cwd()) / "build" / "course"
"""The folder of models, Markdown, figures and site: in a checkout, or where an installed lab was asked for it."""
COPIED = ("*.md", "*.svg", "*.png")
"""The files of the guides."""
ANSWER = re.compile(r"(?m)^ *<details>(<summary>.*)</details>$")
"""An answer below a question of a list, in a line of its own. Between blank lines its Markdown is read as well."""
KEPT = re.compile(r"(<(pre|script|svg)\b.*?</\2>)", re.DOTALL)
"""What a page has line by line. Elsewhere a line says no more than a space does."""

APPENDIX = re.compile(r"reference/\w+\.html#clearhead\w*\.(?!api\.)|guides/(?:log/|(?:coverage|parity)\.html)")
"""What the search leaves out, because it would come before the guides: parts of inner modules, the log, long tables."""


def ran(chosen: Sequence[str] = (), *, models: Path) -> list[Ran]:
    """The pages of these names, by default all, each run. Raises UserError for a name that no page has."""
    known = names()
    for name in chosen:
        if name not in known:
            raise UserError(f"course: expected a page, got {name!r}; there are {', '.join(known)}")
    return [run(name, source(name), models, values.read(name)) for name in chosen or known]


def source(name: str) -> str:
    """The text of a page."""
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def accept(chosen: Sequence[str], *, models: Path) -> list[str]:
    """Writes what the blocks print, and the numbers, into the sources. Returns what is still wrong.

    The values of a page without problems become those that later builds compare with.
    """
    found: list[str] = []
    for name in chosen or names():
        one = run(name, source(name), models)
        if one.fixes:
            (PAGES / f"{name}.md").write_text(fixed(source(name), one), encoding="utf-8")
            one = run(name, source(name), models)
        if not one.problems:
            values.write(name, one.values)
        found += one.problems
    return found


def stage(pages: Sequence[Ran], folder: Path, *, models: Path) -> None:
    """Writes the Markdown of the whole site, its figures and its styles into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    known = glossary.terms(glossary.SOURCE.read_text(encoding="utf-8"))
    for one in pages:
        at = "index.md" if one.name == "index" else f"course/{one.name}.md"
        text = ANSWER.sub(r'\n    <details markdown="span">\1</details>\n', figures.in_turn(one.markdown))
        text += around.places(one.name, one.figures)
        text += _errata() if one.name == "errata" else ""
        if one.name in around.CHAPTERS:
            write(folder / "course" / f"{one.name}.ipynb", notebook(one.name, source(one.name)))
            text = _offered(one.name, text)
        write(
            folder / at,
            glossary.linked(text, known, "guides/glossary.md" if one.name == "index" else "../guides/glossary.md"),
        )
    shown = [figure for one in pages for figure in one.figures]
    for model in dict.fromkeys(figure.model for figure in shown):
        figures.write(model, [figure for figure in shown if figure.model == model], models, folder / "figures")
    write(folder / "course" / "exercises.md", around.exercises_page())
    write(folder / "course" / "walks.md", around.walks_page())
    around.write(folder)
    for pattern in COPIED:
        for file in sorted(GUIDES.rglob(pattern)):
            to = folder / "guides" / file.relative_to(GUIDES)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)
    for page in {*(folder / "guides" / "tutorials").glob("*.md")} - {folder / "guides" / "tutorials" / "index.md"}:
        text = page.read_text(encoding="utf-8")
        write(page.with_suffix(".ipynb"), notebook(page.stem, text))
        write(page, _offered(page.stem, text))
    write(folder / "guides" / "glossary.md", glossary.anchored(glossary.SOURCE.read_text(encoding="utf-8")))
    for part, text in reference.pages():
        write(folder / "reference" / f"{part}.md", text)
    shutil.copytree(HERE / "assets", folder / "assets")
    beside.write_shared(folder / "assets")


def _offered(name: str, text: str) -> str:
    """The page with a link to its notebook at its end."""
    return f"{text}\n[This page as a notebook]({name}.ipynb){{ download={name}.ipynb }}\n"


def write(path: Path, text: str) -> None:
    """Writes a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _errata() -> str:
    """The tables of the records that do not reproduce."""
    tables = errata_page(list(judged(list(records().values()))))
    return "\n" + tables[tables.index("## Document") :]


def problems(pages: Sequence[Ran]) -> list[str]:
    """Everything that is wrong with these pages."""
    found = [problem for one in pages for problem in one.problems]
    known = glossary.terms(glossary.SOURCE.read_text(encoding="utf-8"))
    strange = [(one.name, term) for one in pages for term in glossary.unknown(one.markdown, known)]
    return found + [f"{name}.md: no term {term!r} in the glossary" for name, term in strange]


def build() -> Path:
    """Builds the site. Raises UserError with every problem of the pages, and if Zensical fails or is missing."""
    models = ready(WORK / "models")
    pages = ran(models=models)
    if found := problems(pages):
        raise UserError("\n".join(["course: some pages are not as they are written", *found]))
    stage(pages, WORK / "docs", models=models)
    return set_in(WORK)


def set_in(work: Path) -> Path:
    """Builds `site` from `docs` in this folder. Raises UserError if Zensical fails or is missing."""
    for name in ("site", "theme"):
        shutil.rmtree(work / name, ignore_errors=True)
    shutil.copytree(HERE / "theme", work / "theme")
    shutil.copy(HERE / "mkdocs.yml", work)
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=work, check=False)
    if done.returncode:
        raise UserError(
            f"course: zensical failed with exit code {done.returncode}; try pip install 'clearhead-lab[site]'"
        )
    for index in (work / "site").glob("search.js*"):
        index.write_text(_sought(index.read_text(encoding="utf-8")), encoding="utf-8")
    for page in (work / "site").rglob("*.html"):
        if page.parent.name not in ("figures", "exercises", "walks"):
            page.write_text(short(page.read_text(encoding="utf-8")), encoding="utf-8")
    return work / "site"


def _sought(index: str) -> str:
    """The index of the search without the appendix."""
    begins, brace, rest = index.partition("{")
    known = json.loads(brace + rest.rstrip().removesuffix(";"))
    known["items"] = [one for one in known["items"] if not APPENDIX.match(one["location"])]
    return begins + json.dumps(known, ensure_ascii=False)


def short(page: str) -> str:
    """The page without the empty space of its template."""
    pieces = KEPT.split(page)
    pieces[::3] = (re.sub(r"\s*\n\s*", "\n", piece) for piece in pieces[::3])
    del pieces[2::3]  # The names of what is kept.
    return "".join(pieces)


def packed(site: Path) -> Path:
    """The site as one zip file, which works from a USB stick."""
    return Path(shutil.make_archive(str(site.parent / "the-transformer-seen-through"), "zip", site.parent, site.name))
