"""Records as lines of text, and the page of those that do not reproduce."""

from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import fill

from clearhead_lab.examples.records import numbers
from clearhead_lab.examples.verdicts import Judged

SHOWN = 4
"""Numbers of a matrix that a line shows."""
WIDTH = 110
"""Characters of a line."""
MARKS = {"reproduces": "✓", "rounding": "≈", "wrong": "✗", "nothing printed": "·", "cannot be checked": "?"}


def number(value: float) -> str:
    """A number with at least four digits."""
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def row(values: Sequence[float], *, n: str = "") -> str:
    """The first numbers, and how many there are."""
    shown = ", ".join(map(number, values[:SHOWN]))
    more = ", …" if len(values) > SHOWN else ""
    n = n or (f"{len(values)} numbers" if more else "")
    return f"{shown}{more} ({n})" if n else shown


def both(judged: Judged) -> tuple[str, str]:
    """The printed and the right value; for a matrix, the first numbers that differ."""
    printed = judged.record.printed
    theirs = list(numbers(printed)) if isinstance(printed, list) else []
    if isinstance(judged.ours, str) or not theirs or len(theirs) != len(judged.ours):
        left = row(theirs) if theirs else str(printed or "nothing")
        return left, judged.ours if isinstance(judged.ours, str) else row(judged.ours)
    unit = 10.0 ** -(judged.record.decimals or 0)
    wrong = [i for i, (a, b) in enumerate(zip(theirs, judged.ours, strict=True)) if abs(a - b) > 0.5 * unit]
    if judged.verdict != "wrong" or len(wrong) == len(theirs):
        return row(theirs), row(judged.ours)
    n = f"{len(wrong)} of {len(theirs)} numbers"
    return row([theirs[i] for i in wrong], n=n), row([judged.ours[i] for i in wrong], n=n)


def lines(results: Iterable[Judged]) -> Iterable[str]:
    """Each record as a line or two: verdict, title, and where it is wrong the right value and the cause."""
    document = ""
    for one in results:
        if one.record.document != document:
            document = one.record.document
            yield f"\nDocument {document}"
        yield f"  {MARKS[one.verdict]} {one.record.id:<10} {one.record.title}  [{one.record.section}]"
        printed, ours = both(one)
        if one.verdict == "wrong":
            yield _below("printed: ", printed)
            yield _below("here:    ", ours)
            yield _below("", one.record.cause)
        elif one.record.lost:
            yield _below("", f"the document does not give {one.record.lost}; here {ours}")
        elif one.record.printed is None:
            yield _below("answer: ", ours)


def _below(name: str, text: str) -> str:
    """A text under the title of its record, in lines that a terminal shows whole."""
    begin = " " * 15 + name
    return fill(text, WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin))


def page(results: Sequence[Judged]) -> str:
    """docs/errata.md: every record that does not reproduce, with the right value and the cause."""
    wrong = [one for one in results if one.verdict == "wrong"]
    n = Counter(one.verdict for one in results)
    parts = [HEADER.format(n=n, total=n.total(), roots=sum(not w.record.follows for w in wrong))]
    for document in dict.fromkeys(one.record.document for one in wrong):
        parts.append(TABLE.format(document=document))
        parts += [_table_row(one) for one in wrong if one.record.document == document]
    return "\n".join(parts) + "\n"


def _table_row(one: Judged) -> str:
    printed, right = both(one)
    *others, last = one.record.follows or ("",)
    roots = f"the errors {', '.join(others)} and {last}" if others else f"the error {last}"
    follows = f" This error comes from {roots} of this table." if last else ""
    cells = (one.record.id, one.record.section, one.record.title, printed, right, one.record.cause + follows)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


HEADER = """# Errata of the source documents

The lab recomputed the numbers and tested the statements of five documents about the Transformer, numbered 000 to 004.
A record is one number or statement, or a group of them. Of the {total} records, {n[reproduces]} are right,
{n[rounding]} are right apart from rounding, {n[wrong]} are wrong, and {n[cannot be checked]} cannot be checked.
For the other {n[nothing printed]}, the document prints no number or answer that the lab could compare.

This page lists the errors. The column *printed* has the number or statement of the document. The column *right* has the
value that clearhead computes. Of the {n[wrong]} errors, {roots} are independent. The other errors follow from
an earlier error. For a matrix, the page shows the first wrong numbers.

`clearhead lab examples --errata > docs/errata.md` writes this page. The test `test_record[ID]` in
`lab/tests/examples/test_worked_examples.py` checks each right value."""
TABLE = """
## Document {document}

| id | section | what | printed | right | cause |
|---|---|---|---|---|---|"""
