"""What belongs to a chapter beside its text: a stop of the walk, exercises, and chains of the documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.export.contents import contents
from clearhead.explorer.export.page import fragment, parts_of
from clearhead_lab.course import beside
from clearhead_lab.course.figures import Figure
from clearhead_lab.course.page import PAGES
from clearhead_lab.exercises.exercise import ExerciseSet
from clearhead_lab.exercises.pages import parts_by_name
from clearhead_lab.exercises.sets import SETS
from clearhead_lab.walks import chains


@dataclass(frozen=True)
class Around:
    """The stop, the exercises and the walks of a chapter."""

    stop: str
    """The stop of the explorer's walk (ui/src/walks/word.json)."""
    exercises: tuple[str, ...] = ()
    walks: tuple[str, ...] = ()


CHAPTERS = {
    "tokens": Around("tokens"),
    "embeddings": Around("embedding", ("meaning",), ("geometry",)),
    "attention": Around("scores", ("scaling", "looking"), ("money", "apple")),
    "positions": Around("position", ("positions",), ("river",)),
    "heads": Around("output", ("looking",), ("game",)),
    "residuals": Around("residual", ("stream",)),
    "norms": Around("norm", ("norms",)),
    "feed-forward": Around("ffn", ("knowing",), ("game",)),
    "encoder": Around("residual", ("meaning",), ("geometry",)),
    "masks": Around("masked", ("masks",)),
    "translation": Around("cross", ("translating",)),
    "training": Around("logits", ("stream",)),
    "generation": Around("generation", ("repeating",)),
    "families": Around("lens", ("masks",)),
    "images": Around("image"),
    "fine-tuning": Around("logits", ("translating",)),
}
LISTS = {"exercises": "All exercises", "walks": "All walks"}
"""The pages that list the pages of each folder."""


EXERCISES = """# Exercises that look inside

{n} tasks on small models. You edit scores, weights, heads or positions in the explorer. The page runs the model with
your edits on inputs that you do not see, looks at its values, and says what it saw. Your answers stay in the browser.
[The guide](../guides/exercises.md) says how to hand them in."""
WALKS = """# Walks along the documents

Each walk follows one chain of numbers of the source documents through a network with their matrices. A step shows what
is printed, what the network computes, and why they differ."""


@cache
def sets() -> dict[str, ExerciseSet]:
    """The sets of exercises, each with its models."""
    return {name: build() for name, build in SETS.items()}


def title(chapter: str) -> str:
    """What the first line of a chapter says before its colon."""
    return (PAGES / f"{chapter}.md").read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").partition(":")[0]


def places(chapter: str, figures: Sequence[Figure]) -> str:
    """The last section of a chapter, in Markdown: where its idea can be tried. Empty for a page that is no chapter."""
    if chapter not in CHAPTERS:
        return ""
    around, lines = CHAPTERS[chapter], list[str]()
    if figures:
        one = figures[0]
        rest = {} if one.text else {"image": "example:0"}
        link = fragment(one.run, {"mode": "learn", "walk": "word", "stop": around.stop}, rest)
        lines.append(f"[This step of the walk](../figures/{one.model}.html{link}) from the text to the answer.")
    for name in around.exercises:
        given = sets()[name]
        lines.append(f"[{given.title}](../exercises/{name}.html): {len(given.exercises)} exercises that look inside.")
    for name in around.walks:
        one = chains()[name]
        lines.append(f"[“{one.text}”](../walks/{name}.html): a chain of the source documents, number by number.")
    return "\n".join(["", "## Look inside", "", *(f"- {line}" for line in lines), ""])


def exercises_page() -> str:
    """The list of all exercises, in Markdown."""
    n = sum(len(given.exercises) for given in sets().values())
    said = [EXERCISES.format(n=n)]
    for name, given in sets().items():
        said += [f"## {given.title}", _see("exercises", name)]
        said.append("\n".join(f"1. [{one.title}](../exercises/{name}.html#{one.name})" for one in given.exercises))
    return "\n\n".join(said) + "\n"


def walks_page() -> str:
    """The list of the chains of the documents, in Markdown."""
    said = [WALKS]
    for name, one in chains().items():
        said += [f"## [“{one.text}”](../walks/{name}.html)", f"From {one.source}. {_see('walks', name)}"]
    return "\n\n".join(said) + "\n"


def _see(kind: str, name: str) -> str:
    found = [f"[{title(one)}]({one}.md)" for one, around in CHAPTERS.items() if name in getattr(around, kind)]
    return f"{'Chapter' if len(found) == 1 else 'Chapters'}: {', '.join(found)}."


def write(folder: Path) -> None:
    """Writes the pages of all exercises and walks."""
    for name, given in sets().items():
        _write(folder / "exercises" / f"{name}.html", given.title, parts_by_name(given, beside.LANGUAGES))
    for name, chain in chains().items():
        opened = Opened(chain.model(), name=name, text=chain.text, walks=chain.documents())
        state = fragment(RunRequest(text=chain.text), {"mode": "learn", "walk": name})
        _write(
            folder / "walks" / f"{name}.html",
            chain.text,
            parts_of(contents(opened, [opened.start], languages=beside.LANGUAGES)),
            state,
        )


def _write(path: Path, heading: str, parts: dict[str, str], state: str = "") -> None:
    kind, name = path.parent.name, path.stem
    links = {"../index.html": "The Transformer, seen through", f"../course/{kind}.html": LISTS[kind]}
    links |= {f"../course/{one}.html": title(one) for one, around in CHAPTERS.items() if name in getattr(around, kind)}
    inside = "\n".join(f'<a href="{to}">{escape(text)}</a>' for to, text in links.items())
    top = f'<nav class="clearhead course" aria-label="Course">\n{inside}\n</nav>\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(beside.page(heading, parts, state, top=top))
