"""Files and folders with any name, wherever a command takes one."""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from clearhead.errors import pasted
from tests.reliability import Counted
from tests.reliability.copies import imported
from tests.reliability.surroundings import LIMIT, Command, Workshop, faults, said
from tests.reliability.ways import Way

NAMES = (
    *(
        "plain",
        "a b",
        " a",
        "a ",
        "a\nb",
        "a\tb",
        "a\rb",
        "'",
        '"',
        "a'b\"c",
        "`id`",
        "$HOME",
        "$(id)",
        "a;b",
        "a|b",
        "&",
    ),
    *("-x", "--out", "%s%n%d", "{}", "{out}", "[a]", "[bold]", "*", "a?b", "a:b", "a::b", "a=b", "a,b", "a\\b", "#a"),
    *("~", "~root", "...", "a.gz", ".hidden", "a.safetensors", "hf", "null", "1", "é", "e\u0301", "日本語", "😀"),
    *("مرحبا", "\u202eabc", "\u200b", "\ufeffa", "\x1b[31m", "\x7f", "\x01", "\udce9", "a\udcff\udcfe", "a" * 200),
)
"""Of these, some are no text: bytes that are not UTF-8, as Python reads them."""
LONG = "a" * 255
LINES = {
    "run": ("train {in}/tiny.toml --out {name} --training.steps 1", "translate {name} one", "resume {name} --steps 2"),
    "text": ("train lm --text {name} --out x --training.steps 1 --training.max_tokens 64",),
    "recipe": ("train {name}.toml --out x --training.steps 1",),
    "tokenizer": ("tokenizer train {in}/book.txt --out {name}", "tokenizer show {name} one"),
    "texts": ("tokenizer train {name} --out x",),
    "model": ("generate {name} one --max-new-tokens 2", "check {name}"),
    "capture": ("capture {in}/writer --data {in}/book.txt --at decoder.blocks.*.resid_post --out {name}",),
    "data": ("capture {in}/writer --data {name} --at decoder.blocks.*.resid_post --out x",),
    "page": ("explore {in}/translator one --export {name}.html",),
    "picture": ("curve {in}/run --out {name}.svg",),
    "pairs": ("evaluate {in}/run --source {name} --target {name} --page {name}.html",),
    "file": ("translate {in}/translator --file {name}",),
}
"""What has the name, and the commands that are given one after the other."""
FILES = ("text", "texts", "data", "pairs", "file")
HERE = Way("as wished", codes=(0,))
EITHER = Way("as wished", codes=(0, 2))


def any_name(folder: Path, names: Sequence[str] = (*NAMES, LONG), kinds: Sequence[str] = tuple(LINES)) -> Counted:
    """Every name in every role."""
    imported()
    workshop, n, broken = Workshop(folder), 0, 0
    for kind in kinds:
        for name in names:
            place = workshop.place()
            made(workshop.folder, place, kind, name)
            written = f"./{name}" if name.startswith(("-", "~")) else name
            found = list(
                _wrong(workshop, place, kind, written, EITHER if name == LONG or unclear(kind, name) else HERE)
            )
            n, broken = n + len(LINES[kind]), broken + len(found)
            for one in found:
                print(f"    {kind} {name!a}: {one}", file=sys.stderr, flush=True)
            shutil.rmtree(os.fsencode(place), ignore_errors=True)
    return Counted(n, broken, f"{n} commands were run with {len(names)} names of files and folders")


def unclear(kind: str, name: str) -> bool:
    """Whether a name may be refused: it is no UTF-8, has signs that stand for others, or says what its file is."""
    if name.encode(errors="ignore") != name.encode(errors="surrogateescape"):
        return True
    return kind in FILES and bool(re.search(r"[*?\[]|::|^a\.gz$|^a\.safetensors$", name))


def made(source: Path, place: Path, kind: str, name: str) -> None:
    """What has the name, where a command reads it."""
    if kind in FILES:
        shutil.copy(source / ("book.txt" if kind == "text" else "a.en"), place / name)
    elif kind == "model":
        shutil.copytree(source / "writer", place / name)
    elif kind == "recipe" and name != LONG:
        shutil.copy(source / "tiny.toml", place / f"{name}.toml")


def _wrong(workshop: Workshop, place: Path, kind: str, name: str, way: Way) -> Iterator[str]:
    """What is wrong with the commands about one name, which are given in the folder where it is."""
    for line in LINES[kind]:
        words = [word.replace("{name}", name) if "{name}" in word else word for word in line.split()]
        with workshop.started(Command(kind, ""), way, place, 0, words=words) as copy:
            code = copy.ended(LIMIT)
        found = "; ".join(faults(code, Command(kind, ""), way, place))
        out, err = said(place)
        if found:
            yield f"{line}: {found}: {' / '.join((out + err).strip().splitlines()[-3:])[-500:]!a}"
            return
        if kind == "run" and "use it: " in err and name.isprintable() and pasted(Path(name)) not in err:
            yield f"{line}: what it says cannot be pasted: {err[-300:]!a}"
        if code:
            return
