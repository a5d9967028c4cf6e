"""The page of the worst mistakes: one HTML file without scripts or anything from elsewhere."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from clearhead.brief import between
from clearhead.errors import UserError, pasted

if TYPE_CHECKING:
    from clearhead.tasks.evaluation import Example
    from clearhead.tasks.scores import Score
    from clearhead.tasks.task import Evaluation

MOST = 200
"""Mistakes on the page."""
PORT = 8765
"""Where the links of the page look for the explorer."""
STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884; }
th { font-weight: 600; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.text { overflow-wrap: anywhere; min-width: 16rem; }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { overflow-x: auto; }
small { color: #777; }
"""
HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
"""


def write_page(path: Path, *, model: str, data: str, found: "Evaluation") -> None:
    """Writes the scores, the findings and the worst mistakes of a model on some data.

    Raises UserError if the task says nothing of single examples.
    """
    from clearhead.storage.disk import replace_file
    from clearhead.tasks.evaluation import worst

    if not found.examples:
        raise UserError("--page: expected a task that judges single examples, got one that does not; leave it out")
    mistakes = worst(found.examples, MOST)
    n = sum(one.is_wrong for one in found.examples)
    title = f"{model}: the worst mistakes"
    count = f"{n:,} of {len(found.examples):,} examples of {data} are wrong"
    shown = f"; these are the {len(mistakes):,} worst" if n > len(mistakes) else ""
    served = f"clearhead explore {pasted(model)} --port {PORT}"
    content = "\n".join(
        (
            f"{HEAD}<title>{escape(title)}</title>\n<style>{STYLE}</style>",
            f"<h1>{escape(title)}</h1>\n<p>{escape(count + shown)}, the largest error first.",
            f"<p>To look inside: run <code>{escape(served)}</code> and open the address that it prints.",
            "From then on, each text below is a link into the explorer.",
            table_of(("score", "value", "95% interval"), map(_score, found.scores)),
            *(f"<pre>{escape(chr(10).join(one.lines))}</pre>" for one in found.findings if one.lines),
            table_of(("", "text", "given", "said", "error"), (_mistake(i, one) for i, one in enumerate(mistakes, 1))),
        )
    )
    replace_file(path, content.encode("utf-8", "backslashreplace"))


def _score(score: "Score") -> str:
    bounds = "" if score.interval is None else between(score.interval)
    return f"<td>{escape(score.name)}<td class=number>{score.value:.4f}<td>{bounds} <small>{escape(score.unit)}</small>"


def _mistake(number: int, one: "Example") -> str:
    address = f"http://127.0.0.1:{PORT}/#{urlencode({'v': 1, 's': one.source}, errors='replace')}"
    text = f'<a href="{escape(address)}" target="_blank" rel="noopener">{escape(one.source) or "(nothing)"}</a>'
    place = f"<br><small>{escape(one.place)}</small>" if one.place else ""
    cells = (f"<td class=text>{escape(cell)}" for cell in (one.reference, one.output))
    return f"<td class=number>{number}<td class=text>{text}{place}{''.join(cells)}<td class=number>{one.error:.4f}"


def table_of(columns: Sequence[str], rows: Iterable[str]) -> str:
    """A table; each row is HTML."""
    head = "".join(f"<th>{escape(name)}" for name in columns)
    return f"<table>\n<tr>{head}\n" + "\n".join(f"<tr>{row}" for row in rows) + "\n</table>"
