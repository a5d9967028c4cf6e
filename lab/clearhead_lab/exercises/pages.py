"""One HTML file for each set: its models, as the explorer exports them, and the exercises."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.questions import Reply, RunRequest
from clearhead.explorer.export.contents import contents
from clearhead.explorer.export.page import document, packed, parts_of, sparse
from clearhead.storage.disk import replace_file
from clearhead.version import __version__
from clearhead_lab.exercises.exercise import FORMAT, ExerciseSet, both
from clearhead_lab.exercises.sets import SETS


def write_pages(folder: Path) -> Iterator[tuple[Path, ExerciseSet]]:
    """Writes NAME.html for each set, and says which, as soon as it is there. Raises UserError if it cannot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, build in SETS.items():
        given = build()
        path = folder / f"{name}.html"
        replace_file(path, html_of(given))
        yield path, given


def html_of(given: ExerciseSet) -> bytes:
    """The page of a set. It opens without a server and without a network."""
    return document(given.title, parts_by_name(given), page="exercises")


def parts_by_name(given: ExerciseSet, languages: Collection[str] = ()) -> dict[str, str]:
    """What a page holds: `exercises`, and the parts of each model's exported file as MODEL-PART.

    It speaks all languages of the explorer, or only these.
    """
    said = {
        "format": FORMAT, "name": given.name, "title": given.title, "version": given.version,
        "clearhead": __version__, "models": list(given.models),
        "exercises": [given.document(exercise) for exercise in given.exercises],
    }  # fmt: skip
    parts = {"exercises": sparse(packed(Reply(said)))}
    for name in given.models:
        inside = contents(_opened(given, name), *_runs(given, name), languages=languages)
        parts |= {f"{name}-{part}": text for part, text in parts_of(inside).items()}
    return parts


def _opened(given: ExerciseSet, name: str) -> Opened:
    first = next(exercise for exercise in given.exercises if exercise.model == name)
    text, target = both(first.inputs["shown"])
    return Opened(given.models[name], name=f"{given.name}: {name}", text=text, target=target)


def _runs(given: ExerciseSet, name: str) -> tuple[list[RunRequest], list[RunRequest]]:
    """What the explorer opens with: the shown input of each exercise of a model."""
    shown: Mapping[tuple[str, str | None], None] = dict.fromkeys(
        both(exercise.inputs["shown"]) for exercise in given.exercises if exercise.model == name
    )
    first, *others = [RunRequest(text=text, target=target) for text, target in shown]
    return [first], others
