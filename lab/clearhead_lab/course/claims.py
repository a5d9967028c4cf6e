"""Causal claims: a sentence that says why names a check, which holds in its world and fails in a false one."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from clearhead_lab.course import glossary, numbers
from clearhead_lab.course.page import FIGURES, GUIDES, Part, captions
from clearhead_lab.experiments import experiment, experiments

CAUSAL = re.compile(
    r"\b(?:because|hence|therefore|so|without(?! end)|only|alone|nothing but|enough|cannot|needs?|needed|depends?|"
    r"decides?|decided|carr(?:y|ies|ied)|brings?|brought|tells?|(?:comes?|came) from|by way of|"
    r"otherwise|thus|due to|knows? of)\b",
    re.IGNORECASE,
)
"""Words of a cause, a need or a sole carrier. A sentence with one is measured, excused, or a question."""
SENTENCE = re.compile(r"\S.*?(?:[.?!][\"”)*]*(?=\s|\Z)|(?=\n\n|\n[-|#])|\Z)", re.DOTALL)
EXCUSES = ("what is done", "task", "purpose", "definition", "advice", "errata")
"""Why a sentence needs no measurement: it tells what a block does, what to try, or what a word means."""
VERDICTS = GUIDES / "lab.md"


@dataclass(frozen=True)
class Claim:
    """What a block ```claim states."""

    says: tuple[str, ...]
    """Words of the sentences that claim it."""
    check: str
    """What must be true of the world, with its threshold."""
    world: Mapping[str, str]
    """The expression of each name: the input, the edit, and what is read where."""
    false: Mapping[str, str]
    """Those of the names that differ where the claim is false."""
    plain: str = ""
    """What is done in both worlds, for a reader who reads no code."""

    def is_said(self, text: str) -> bool:
        """True if the text has words of the claim."""
        return any(form(words).search(text) for words in self.says)

    def run(self, space: Mapping[str, Any], *, false: bool = False) -> tuple[bool, dict[str, Any]]:
        """The check's truth and the values of its world, or of the false one."""
        names = dict(space)
        for name, code in {**self.world, **(self.false if false else {})}.items():
            names[name] = eval(code, names)
        return bool(eval(self.check, names)), {name: names[name] for name in self.world}


def claim_of(body: str) -> Claim:
    """The claim of a block. Raises ValueError, which names the field."""
    fields = tomllib.loads(body)
    says, check, false = (fields.pop(name, None) for name in ("says", "check", "false"))
    plain = fields.pop("plain", "")
    if not says or not check or not false or not fields:
        raise ValueError("expected says, check, a table false, and a name for what is measured")
    if strange := false.keys() - fields.keys():
        raise ValueError(f"false: expected names of the claim, got {', '.join(sorted(strange))}")
    if len({*fields.values()}) < len(fields) or false.items() & fields.items():
        raise ValueError("two names have one expression; it would be compared with itself")
    if digits := re.search(r"\d", numbers.NAMES.sub("", plain)):
        raise ValueError(f"plain: {digits[0]!r} is a number that no expression computes")
    return Claim((says,) if isinstance(says, str) else tuple(says), check, fields, false, plain)


def sentences(parts: Sequence[Part]) -> Iterator[tuple[int, str]]:
    """The line and the text of each sentence of the prose and the captions."""
    for part in parts:
        for text in captions(part) if part.language in FIGURES else () if part.language else (part,):
            for found in SENTENCE.finditer(text.text):
                yield text.line + text.text.count("\n", 0, found.start()), found[0]


def form(words: str) -> re.Pattern[str]:
    """The words as they stand in a source, where a line may end between them."""
    return re.compile(r"\s+".join(map(re.escape, words.split())))


def complaints(parts: Sequence[Part]) -> Iterator[tuple[int, str]]:
    """The line of each causal sentence that nothing measures, and of each block that is not as it should be."""
    known, forms = list(sentences(parts)), list[re.Pattern[str]]()
    listed = set[str]()
    for part in parts:
        try:
            said = _said(part)
            if part.language == "lab":
                listed |= tomllib.loads(part.text).keys()
                yield from _verdicts(part)
        except ValueError as error:
            yield part.line, f"{part.language}: {error}"
            continue
        for words in said:
            forms.append(form(words))
            if (n := sum(bool(forms[-1].search(text)) for _, text in known)) != 1:
                yield part.line, f"{n} sentences say {words!r}, expected one"
    for line, text in known:
        named = {name for name in re.findall(r"`(?:clearhead lab run )?([a-z-]+)`", text) if name in experiments()}
        for name in named - listed:
            yield line, f"the sentence names {name}; a block lab says what it found"
        if forms and (word := causal(text)) and not named and not any(one.search(text) for one in forms):
            yield line, f"{word!r} claims a cause; measure it in a block claim: {' '.join(text.split())[:80]}"


def causal(sentence: str) -> str | None:
    """The first word of a cause in a sentence that is no question."""
    bare = numbers.NO_PROSE.sub("", sentence).rstrip('"”)*')
    found = None if bare.endswith("?") else CAUSAL.search(bare)
    return found and found[0]


def _said(part: Part) -> Sequence[str]:
    """The words by which a block names its sentences. Raises ValueError for a block that cannot be read."""
    if part.language == "claim":
        return claim_of(part.text).says
    reasons = tomllib.loads(part.text) if part.language == "excused" else {}
    if strange := {*reasons.values()} - {*EXCUSES}:
        raise ValueError(f"expected one of {', '.join(EXCUSES)}, got {', '.join(strange)}")
    return list(reasons)


def _verdicts(part: Part) -> Iterator[tuple[int, str]]:
    """Complaints of experiments whose verdict or finding in docs/lab.md is not the one that the chapter goes by."""
    rows = VERDICTS.read_text(encoding="utf-8")
    for name, line in tomllib.loads(part.text).items():
        verdict, _, finding = line.partition(": ")
        row = re.search(
            rf"^\| \*\*{re.escape(name)}\*\*.*? \| (?P<verdict>[a-z ]+) \| (?P<finding>.*)$", rows, re.MULTILINE
        )
        if row is None:
            yield part.line, f"no experiment {name} in the lab"
        elif verdict != row["verdict"] or finding not in row["finding"]:
            yield part.line, f"{name} {row['verdict']}: {row['finding']}; the chapter has {line!r}"


def found(part: Part) -> str:
    """The chapter's experiments in Markdown: each claim, its verdict, and what limits or refutes it."""
    rows = []
    for name, line in tomllib.loads(part.text).items():
        verdict, _, finding = line.partition(": ")
        says = "" if verdict == "holds" else f" {finding.rstrip('.')}."
        rows.append(f"- *{experiment(name).claim}* `{name}`: it **{verdict}**.{says}\n")
    return (
        '\n<details markdown="1"><summary>What texts on Transformers claim about this, and what experiments found '
        f"({len(rows)})</summary>\n\n{''.join(rows)}\nThe numbers are in [the lab](../guides/lab.md).\n\n</details>\n"
    )


def marked(text: str, claims: Sequence[Claim]) -> str:
    """The prose with a mark after each sentence that a claim measures."""

    def mark(match: re.Match[str]) -> str:
        said = [n for n, one in enumerate(claims) if one.is_said(match[0]) and not match[0].startswith("#")]
        how = f"measured, {len(said)} checks" if len(said) > 1 else "measured"
        return match[0] + (f" {_button(said[0], how)}" if said else "")

    return SENTENCE.sub(mark, text)


def told(world: Mapping[str, Any]) -> str:
    """The values of a world in a line."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in world.items())


def _button(n: int, how: str) -> str:
    """A mark that opens what the claim of this number has found."""
    return f'<button class="measured" popovertarget="measured-{n}">{how}</button>'


def beside(claim: Claim, parts: Sequence[Part], claims: Sequence[Claim]) -> list[int]:
    """The numbers of the other claims that measure a sentence of this one, whose mark opens the first of them."""
    shared = [text for _, text in sentences(parts) if claim.is_said(text)]
    return [n for n, one in enumerate(claims) if one is not claim and any(map(one.is_said, shared))]


def html(
    n: int,
    claim: Claim,
    said: Sequence[str],
    true: Mapping[str, Any],
    false: Mapping[str, Any],
    others: Sequence[int] = (),
) -> str:
    """What the mark opens: its sentences, what was found in both worlds, and behind a fold the code."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td><code>{escape(code)}</code></td><td>{escape(_shown(true[name]))}</td>"
        f"<td>{_differs(claim.false.get(name), escape(_shown(false[name])))}</td></tr>"
        for name, code in claim.world.items()
    )
    told = "".join(f"<p><strong>{_read(one)}</strong></p>" for one in said)
    plain = f"<p>{_read(claim.plain)}</p>" if claim.plain else ""
    more = f"<p>{' '.join(_button(one, 'another check') for one in others)}</p>" * bool(others)
    return (
        f'\n<div class="measured" id="measured-{n}" popover>{told}{plain}<p>The build measured it: '
        f"{_found(claim, true)}. The sentence holds. Then it changed one thing, and measured again: "
        f"{_found(claim, false)}. There the sentence does not hold, as it must not.</p><details><summary>The code of "
        f"this check</summary><p>It holds while <code>{escape(claim.check)}</code>.</p><table><tr><th>name</th>"
        f"<th>what</th><th>here</th><th>where it is false</th></tr>{rows}</table></details>{more}</div>\n"
    )


def _read(sentence: str) -> str:
    """A sentence of a source as HTML, with its numbers and without its links."""
    text = escape(glossary.shown(numbers.INLINE.sub(r"\g<shown>", sentence)), quote=False)
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text).replace("**", "").replace("*", "")


def _found(claim: Claim, world: Mapping[str, Any]) -> str:
    """The values that the check reads, as a reader reads them."""
    read = [name for name in world if re.search(rf"\b{name}\b", claim.check)]
    known = [(name.replace("_", " "), _shown(world[name])) for name in read]
    return ", ".join(f"<em>{name}</em> is {escape(value)}" for name, value in known if value != "…") or "its values"


def _shown(value: Any) -> str:
    """A value of a claim's world in a cell: a number in three digits, a short text as it is."""
    value = value.item() if getattr(value, "numel", lambda: 0)() == 1 else value
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 and not callable(value) else "…"


def _differs(code: str | None, value: str) -> str:
    """A value of the false world, with the expression that differs there."""
    return value if code is None or escape(code) == value else f"<code>{escape(code)}</code> {value}"
