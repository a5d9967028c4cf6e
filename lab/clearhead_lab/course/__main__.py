"""The course from the command line: `python -m clearhead_lab.course build`."""

import sys

import torch
from cyclopts import App

from clearhead.errors import UserError
from clearhead_lab.course import site
from clearhead_lab.course.models import ready

app = App(name="python -m clearhead_lab.course", help=__doc__)


@app.command
def build(*, zip: bool = False) -> None:  # noqa: A002
    """Builds the site into build/course/site, and with --zip a file for a USB stick."""
    made = site.build()
    print(made / "index.html")
    if zip:
        print(site.packed(made))


@app.command
def models() -> None:
    """Trains the small models into build/course/models."""
    print(ready(site.WORK / "models"))


@app.command
def check(*names: str) -> None:
    """Runs these pages, by default all, and says what is not as it is written."""
    pages = site.ran(names, models=ready(site.WORK / "models"))
    if found := site.problems(pages):
        raise UserError("\n".join(found))
    print(f"{len(pages)} pages, {sum(len(one.figures) for one in pages)} figures: all as written")


@app.command
def accept(*names: str) -> None:
    """Writes what blocks print, and the numbers, into the sources of these pages. Read the difference afterwards."""
    if found := site.accept(names, models=ready(site.WORK / "models")):
        raise UserError("\n".join(found))


def main(arguments: list[str]) -> int:
    """Runs a command. A user's mistake is one line or a list of them, never a traceback."""
    torch.set_num_threads(1)  # As many threads sum in another order, and a trained network's last digits differ.
    try:
        app(arguments, exit_on_error=True, result_action="return_value")
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
