"""`python -m benchmarks.tables`: what `clearhead train FILE` makes of 50 published tables and folders as they lie.

`tables.toml` says where each is from and which answer is right. The data are no part of the repository.
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from benchmarks.entry import run_command
from clearhead.errors import UserError

Expected = dict[str, Any]

app = App(name="python -m benchmarks.tables", help="Published tables as they lie, each begun with one line.")
ROLES = {"text": "text", "text_pair": "pair", "label": "label", "source": "source_column", "target": "target_column"}
"""The fields of tables.toml for the roles of columns."""
OPTIONS = {f"--{role.replace('_', '-')}": key for role, key in ROLES.items()}
TASKS = {"single_label_classification": "classification", "multi_label_classification": "multi_label"}
LIST = Path(__file__).with_suffix(".toml")
VERDICTS = ("right", "named", "stopped", "wrong", "traceback", "too long", "missing")
"""`named` is a stop whose message names one option with which the run is right; `stopped` is any other."""


@dataclass(frozen=True)
class Answer:
    """What the program decided, or said."""

    said: str = ""
    """The last line of its message, if it did not begin."""
    is_traceback: bool = False
    found: dict[str, Any] = field(default_factory=dict)
    """The task, and the columns, labels and rows as far as they were seen."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on a table, and why."""

    verdict: str
    why: str = ""


@app.default
def measure(
    *names: str,
    folder: Path = Path("../tables"),
    steps: int = 0,
    seconds: float = 300,
    list_: Annotated[Path, Parameter(name="--list")] = LIST,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Begin `clearhead train FILE` for each table, and compare what it decides with what is right.

    Args:
        names: Tables of tables.toml (default: all).
        folder: Where their files are.
        steps: Also train for so many updates, so that the whole file is read, and compare its rows and labels.
        seconds: Time for each.
        list_: Another list of tables in the form of tables.toml.
        as_json: Print the verdicts as one JSON object on the last line.
    """
    tables = tomllib.loads(list_.read_text(encoding="utf-8"))["table"]
    if unknown := set(names) - {table["name"] for table in tables}:
        raise UserError(f"{list_.name}: expected one of its names, got {', '.join(sorted(unknown))}")
    verdicts: dict[str, Judgement] = {}
    for table in tables:
        if names and table["name"] not in names:
            continue
        verdicts[table["name"]] = made = judge(table, folder, steps, seconds)
        print(f"{made.verdict:9}  {table['name']:18} {made.why}", flush=True)
    count = Counter(made.verdict for made in verdicts.values())
    print(
        f"{len(verdicts)} tables: {', '.join(f'{count[verdict]} {verdict}' for verdict in VERDICTS if count[verdict])}"
    )
    if as_json:
        print(json.dumps({name: [made.verdict, made.why] for name, made in verdicts.items()}, ensure_ascii=False))
    if count["wrong"] or count["traceback"] or count["missing"]:
        raise SystemExit(1)


def judge(table: Expected, folder: Path, steps: int, seconds: float) -> Judgement:
    """The verdict on a table, by the command line alone and, where that stops, by the option that it names."""
    file = folder / table["file"]
    if not file.exists():
        return Judgement("missing", f"copy {table['path']} of github.com/{table['source']} to {file}")
    line = [str(file)]
    judged = _judged(table, line, steps, seconds)
    if judged.verdict != "stopped":
        return judged
    tried = list[str]()
    for words in _mended(table, line, judged.why):
        mended = _judged(_without_bad(table) if words[-1] == "--skip-bad" else table, words, steps, seconds)
        if mended.verdict == "right":
            return Judgement("named", f"{' '.join(words[1:])} | {judged.why}")
        tried.append(f"{' '.join(words[1:])}: {mended.verdict}, {mended.why}")
    return Judgement("stopped", " | ".join([judged.why, *tried]))


def _judged(table: Expected, words: Sequence[str], steps: int, seconds: float) -> Judgement:
    try:
        answer = dry_run(words, seconds)
        if not answer.said and steps:
            trained = train(words, steps, seconds)
            answer = trained if trained.said else Answer(found=answer.found | trained.found)
    except subprocess.TimeoutExpired:
        return Judgement("too long", f"more than {seconds:g} seconds")
    if answer.said:
        return Judgement("traceback" if answer.is_traceback else "stopped", answer.said)
    differences = [_difference(right, answer.found) for right in _rights(table)]
    best = min(differences, key=len)
    return Judgement("wrong", "; ".join(best)) if best else Judgement("right", _shown(answer.found))


def _rights(table: Expected) -> list[Expected]:
    """The answers that are right."""
    others: list[Expected] = table.get("also", [])
    return [table, *(table | other for other in others)]


def _mended(table: Expected, line: Sequence[str], said: str) -> Iterator[list[str]]:
    """The lines with one option that a message names, set to what is right or to what it says."""
    named = dict.fromkeys(re.findall(r"--[a-z][a-z_.-]*", said))
    for option in named:
        for right in _rights(table):
            value = right.get(OPTIONS.get(option, ""))
            if value is not None:
                also = ["--skip-bad"] if "also --skip-bad" in said else []
                yield [*line, option, ",".join(map(str, value)) if isinstance(value, list) else str(value), *also]
        if option == "--skip-bad":
            yield [*line, option]
    for option, value in re.findall(r"try (--[a-z][a-z_.-]*) ([\w./]+)", said):
        yield [*line, option, value]
    if "mend" in table and set(named) & set(table["mend"].split()):
        yield shlex.split(table["mend"].format(file=line[0]))


def _without_bad(table: Expected) -> Expected:
    """The answer where bad rows may be left out: all rows but one in fifty."""
    low, *_, high = [table["rows"]] * 2 if isinstance(table["rows"], int) else table["rows"]
    return table | {"rows": [low - low // 50, high]}


def dry_run(words: Sequence[str], seconds: float) -> Answer:
    """What `clearhead train ... --dry-run --json` decides."""
    answer, out = _clearhead([*words, "--dry-run", "--json"], seconds)
    if answer.said:
        return answer
    found: dict[str, Any] = {} if Path(words[0]).exists() else {"task": words[0]}
    for one in json.loads(out.splitlines()[-1])["decisions"]:
        if one["what"] == "task":
            task = one["value"].replace(" ", "_")
            found["task"] = TASKS.get(task, task)
        elif one["what"] in ROLES:
            found.setdefault(ROLES[one["what"]], []).append(_column(one["value"]))
    return Answer(found={key: value[0] if key != "task" and len(value) == 1 else value for key, value in found.items()})


def train(words: Sequence[str], steps: int, seconds: float) -> Answer:
    """What a short run reads, by the report and the recipe that it leaves in its folder."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch, "run")
        answer, _ = _clearhead([*words, "--steps", str(steps), "--out", str(run)], seconds)
        if answer.said:
            return answer
        recipe = json.loads((run / "recipe.json").read_text(encoding="utf-8"))
        splits = json.loads((run / "data_report.json").read_text(encoding="utf-8"))["splits"]
    data = recipe["data"]
    counts = [split.get("counts", split) for split in splits]
    counts = [one for one in counts if one["name"] == "train" or not data.get(one["name"])]
    found: dict[str, Any] = {"task": recipe["task"]}
    if read := sum(one.get("n_read", one.get("n_sentences", 0)) for one in counts):
        found["rows"] = [read, read - sum(one.get("n_blank", 0) for one in counts)]
    if recipe["task"] == "classification":
        kind = data["problem_type"]
        found["task"] = TASKS.get(kind, kind)
    if labels := {label for one in counts for label in one.get("labels") or ()}:
        found["labels"] = len(labels)
    return Answer(found=found)


def _clearhead(words: Sequence[str], seconds: float) -> tuple[Answer, str]:
    """Runs `clearhead train` with these words; the answer says what stopped it."""
    command = [sys.executable, "-m", "clearhead", "train", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=seconds, check=False
    )
    if done.returncode == 0:
        return Answer(), done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
    is_traceback = "Traceback (most recent call last)" in done.stderr or done.returncode < 0
    start = next((i for i, line in enumerate(lines) if line.startswith("error:")), len(lines) - 1)
    return Answer(said=lines[-1] if is_traceback else " ".join(lines[start:]), is_traceback=is_traceback), ""


def _column(value: str) -> str:
    """A column as tables.toml writes it: a name, or a number."""
    return re.sub(r"^column (.*)$", r"\1", value).strip("'\"")


def _difference(right: Expected, found: Expected) -> list[str]:
    """What differs between what is right and what was found. Columns of files without columns are not compared."""
    differs = list[str]()
    if found["task"] != right["task"]:
        differs.append(f"task: expected {right['task']}, got {found['task']}")
    has_columns = any(key in right for key in ROLES.values())
    for key in ROLES.values() if has_columns else ():
        given = right.get(key)
        expected = [*map(str, given)] if isinstance(given, list) else [] if given is None else [str(given)]
        got = found.get(key, [])
        got = [str(one) for one in (got if isinstance(got, list) else [got])]
        got = [part for one in got for part in (one.split(", ") if len(expected) > 1 else [one])]
        if got != expected:
            differs.append(f"{key}: expected {', '.join(expected) or 'none'}, got {', '.join(got) or 'none'}")
    for key in ("labels", "rows"):
        if key in found and key in right:
            low, *_, high = [right[key]] * 2 if isinstance(right[key], int) else right[key]
            got = found[key] if isinstance(found[key], list) else [found[key]]
            if not any(low <= one <= high for one in got):
                differs.append(f"{key}: expected {right[key]}, got {got[0]}")
    return differs


def _shown(found: Expected) -> str:
    parts = {key: value[0] if key == "rows" else value for key, value in found.items()}
    return ", ".join(f"{key} {value}" for key, value in parts.items())


if __name__ == "__main__":
    run_command(app)
