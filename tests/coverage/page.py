"""docs/coverage.md: a verdict for every modelling folder of the reference library, and the shares of the hub."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from clearhead.analysis.comparison import CLOSE
from clearhead.api import load_towers
from clearhead.checkpoints.families import Family, HeadMap, families
from clearhead.checkpoints.families.pictures_and_sounds.towers import Towers, towers_of
from clearhead.checkpoints.families.unknown import listed
from clearhead.checkpoints.families.verdicts import DOES_NOT_OPEN, OPENS, Verdict, verdict
from clearhead.model import Tokens
from tests.coverage.folders import Modelled, classes, document, tiny, told
from tests.coverage.lines import a_type
from tests.coverage.outcome import WRONG, outcome
from tests.parity.cases import base
from tests.parity.harness import Case, reference

HEADER = """# Coverage of the reference library

The command `python -m tests.coverage` writes this page; do not edit it. The tables list the model type of every model
folder in the installed package transformers. The first table has the model types that clearhead can open. The second
table has the other model types, with the mechanism that clearhead lacks and the config field that needs this mechanism.
`clearhead check` says for any config whether clearhead can open it. If the name of a folder differs from its model
type, the table adds the folder in parentheses.

For each model type in the first table, the test builds every class of transformers that clearhead supports, in a tiny
configuration. All weights are random numbers in float32, also the biases and the weights of norms. The test saves the
model and opens it in clearhead. Then it compares the logits and all hidden states of both libraries, on batches that
are padded left and right. This page says that clearhead opens a model type only if the numbers of all its classes
differ by at most 1e-5 of the largest number.

- A model with an image encoder and a text encoder, such as CLIP, compares pictures with texts. The function
  `clearhead.load_towers` opens such a model, and the test
  compares the logits of random pictures and texts.
- For a model that reads pictures within a text, this test compares only texts without pictures.
  `tests/checkpoints/families/test_pictures.py` compares such models on texts with pictures.
- For LLaVA-NeXT, LLaVA-OneVision and the model types in `text_parts.toml`, clearhead opens only the text model.
- In transformers, RWKV reads padding as text. So the test pads it only on the right, where padding changes nothing.
- For a model type in the second table, the test builds no model. It checks only the default config of the model type.
- Some model types have no folder in transformers, and so no line in the tables, because their code is stored with
  their checkpoints (such as InternLM2, EXAONE 3, MiniCPM, the first Qwen, GTE). The test
  `tests/checkpoints/families/test_elsewhere.py` compares their logits with those of another class of transformers,
  which computes the same function from the same weights. The share of repositories below counts their classes too.
"""
KINDS = ("opens", "does not open", "crash")
NEAREST = re.compile(r"the nearest that opens is (?P<type>\S+);.*|its (?P<part>.*) opens, once.*")
"""The remedy of a verdict that has one."""
TOGETHER: dict[str, Any] = {
    "text_config": base("clip_text_model"),
    "vision_config": base("siglip_vision_model"),
    "projection_dim": 10,
}


@dataclass(frozen=True)
class Line:
    """The verdict of one model type."""

    folder: str
    model_type: str
    kind: str
    """One of `KINDS`."""
    gap: float = 0.0
    """The largest error of the logits of all classes."""
    opens: tuple[str, ...] = ()
    """The classes that open with equal logits."""
    others: tuple[str, ...] = ()
    """The classes of the type that do not: they open but for the head."""
    why: str = ""
    """The missing mechanism and its field, or the error."""
    instead: str = ""
    also: tuple[str, ...] = field(default=())
    """Further names of classes that are read as one of those."""


def line(one: Modelled) -> Line:
    """The verdict of a type. An error of any kind is told as a crash."""
    try:
        return _line(one)
    except Exception as error:  # the page is about every folder, and says so of one that fails
        return Line(one.folder, one.model_type, "crash", why=told(error))


def _line(one: Modelled) -> Line:
    known = [family for family in families() if family.model_type == one.model_type]
    saved = [family for family in known if not family.read_only] or known
    heads = {head.architecture: head for family in saved for head in family.heads}
    if heads:
        return _compared(one, [*heads.values()])
    if (towers := towers_of({"model_type": one.model_type})) is not None:
        return _of_towers(one, towers)
    fields, how = document(one)
    found = verdict(fields, where="config.json")
    why = "; ".join([reason(found), *([how] if how else [])])
    return Line(one.folder, one.model_type, DOES_NOT_OPEN, why=why, instead=found.instead)


def _of_towers(one: Modelled, towers: Towers) -> Line:
    """The logits of random pictures for random texts, with the reference."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = reference(Case("", "", towers.architecture, TOGETHER))
        theirs.save_pretrained(folder)
        ours = load_towers(folder).network
        pixels, ids = torch.randn(3, 3, 12, 12), torch.randint(4, 20, (3, 7))
        ids[:, -1] = TOGETHER["text_config"]["eos_token_id"]
        with torch.no_grad():
            expected = theirs(input_ids=ids, pixel_values=pixels).logits_per_image
            gap = float((ours(Tokens(pixels), Tokens(ids)) - expected).abs().max())
    close = gap <= CLOSE * max(1.0, float(expected.abs().max()))
    why = "" if close else f"{towers.architecture}: different: {gap:.1e}"
    others = tuple(name for name in classes(one) if name != towers.architecture)
    return Line(one.folder, one.model_type, OPENS if close else "crash", gap, (towers.architecture,), others, why)


def reason(found: Verdict) -> str:
    """What is missing, in a cell of a table."""
    within = [f"{name} ({part.model_type}): {part.kind}" for name, part in found.parts.items()]
    signs = [str(sign) for sign in found.missing[:2]]
    rest = [] if signs else [f"no table: {listed(found.not_understood) or 'its own code'}"]
    return "; ".join([*signs, *rest, *within[:2]])


def _compared(one: Modelled, heads: Sequence[HeadMap]) -> Line:
    """Every class of a type that has a table, with the reference."""
    gap, wrong, equal = 0.0, list[str](), list[str]()
    for head in heads:
        case = tiny(one.model_type, head.architecture)
        if case is None:
            wrong.append(f"{head.architecture}: no tiny config in tests/parity/cases")
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = outcome(case, Path(folder))
        gap = max(gap, found.gap)
        equal += [head.architecture] if found.what == "close" else []
        wrong += [] if found.what == "close" else [f"{head.architecture}: {found.what}: {found.told}"]
    ours = {name for head in heads for name in (head.architecture, *head.also)}
    others = tuple(name for name in classes(one) if name not in ours)
    also = tuple(name for head in heads for name in head.also if head.architecture in equal)
    is_wrong = any(f": {bad}: " in said for said in wrong for bad in WRONG)
    kind = OPENS if equal and not wrong else "crash" if is_wrong else DOES_NOT_OPEN
    return Line(one.folder, one.model_type, kind, gap, tuple(equal), others, "; ".join(wrong), also=also)


# --- the shares ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """How much of the hub opens, by the classes and types whose logits are equal."""

    repositories: int
    opens: int
    of_pictures: int
    """Of these, how many hold a model of pictures or sounds and texts, of which the text model opens alone."""
    but_for_a_head: int
    missing: tuple[tuple[str, int], ...]
    """The classes with the most repositories that do not open."""
    millions: float
    opened: float
    types: tuple[str, ...]
    """The types of the list of downloads that do not open."""


def shares(lines: Sequence[Line], counts: Mapping[str, Any]) -> Shares:
    """The counted repositories by the class that they name, and the downloads by model type."""
    opens = {name for one in lines if one.kind == OPENS for name in (*one.opens, *one.also)}
    opens |= {name for family in families() if family.read_only for name in _called(family)}
    heads = {name for one in lines if one.kind == OPENS for name in one.others} - opens
    by_class = Counter(counts["classes"])
    types = {one.model_type for one in lines if one.kind == OPENS}
    millions = counts["top_list"]["millions"]
    missing = [(name, n) for name, n in by_class.most_common() if name not in opens and name not in heads]
    return Shares(
        counts["repositories"],
        sum(n for name, n in by_class.items() if name in opens),
        sum(by_class[name] for name in {name for one in families() if one.without for name in _called(one)}),
        sum(n for name, n in by_class.items() if name in heads),
        tuple(missing[:15]),
        sum(millions.values()),
        sum(n for name, n in millions.items() if name in types),
        tuple(name for name in millions if name not in types),
    )


def _called(family: Family) -> Iterator[str]:
    """The names of its classes."""
    return (name for head in family.heads for name in (head.architecture, *head.also))


# --- the page --------------------------------------------------------------------------------------------------------


def page(lines: Sequence[Line], counts: Mapping[str, Any] | None, stamp: str) -> str:
    """The whole page."""
    return "\n".join([HEADER, *summary(lines, counts, stamp), "", *opened(lines), "", *refused(lines)]) + "\n"


def summary(lines: Sequence[Line], counts: Mapping[str, Any] | None, stamp: str) -> Iterator[str]:
    """The figures that README quotes."""
    kinds = Counter(one.kind for one in lines)
    n_folders = len({one.folder for one in lines})
    n_classes = sum(len(one.opens) for one in lines if one.kind == OPENS)
    yield f"- The test checked {n_folders} model folders, with {kinds['crash']} crashes ({stamp})."
    opened_types = f"**clearhead opens {kinds[OPENS]} model types with the same logits as transformers**"
    yield f"- {opened_types}. It opens {n_classes} classes of these types."
    heads = sum(len(one.others) for one in lines if one.kind == OPENS)
    yield f"- For {heads} more classes of these model types, clearhead supports the network but not the output head."
    own, shared = a_type()
    yield (
        f"- **The median model type needs {own:.0f} lines of Python in clearhead** (the lines of the file that"
        " describes it, divided by\n  the number of model types in this file). All other files, such as shared parts"
        f" and readers of other formats, have\n  {shared:.0f} lines for each model type."
    )
    if counts is not None:
        yield from _of_the_hub(shares(lines, counts))


def _of_the_hub(found: Shares) -> Iterator[str]:
    share, heads = found.opens / found.repositories, found.but_for_a_head / found.repositories
    yield (
        f"- **{share:.1%} of {found.repositories:,} repositories** with text-generation models and 500 or more"
        " downloads a month name in their config a class that clearhead opens. Another"
        f" {heads:.1%} name a class of which clearhead supports the network but not the output head. clearhead may"
        " still refuse a repository with a supported class, because of a value in the config of the repository or"
        " because its weights are quantized; the error names the reason."
        f" In {found.of_pictures} repositories with models of pictures or sounds, clearhead opens only the text model."
    )
    rest = f" These do not open: {', '.join(found.types)}." if found.types else ""
    share = found.opened / found.millions
    yield (
        "- Not all of the 30 most downloaded models of the hub have a model type of transformers. Of the downloads of"
        f" those that have one, **{share:.1%}** are of models whose type clearhead opens.{rest}"
    )
    names = ", ".join(f"{name} ({n})" for name, n in found.missing)
    most = "these have the most repositories (the number is in brackets)"
    yield f"- Of the classes that clearhead does not open, {most}: {names}."


def opened(lines: Sequence[Line]) -> Iterator[str]:
    """The table of the types that open."""
    yield "## What opens"
    yield ""
    yield "| model type | largest error of logits | classes | opens but for a head |"
    yield "|---|--:|---|---|"
    for one in sorted((one for one in lines if one.kind == OPENS), key=lambda one: one.model_type):
        others = ", ".join(one.others) or ""
        yield f"| {title(one)} | {one.gap:.1e} | {', '.join(one.opens)} | {others} |"


def refused(lines: Sequence[Line]) -> Iterator[str]:
    """The table of the others."""
    yield "## What does not open"
    yield ""
    yield "The last column names the most similar model type that clearhead opens, or a part of the model that"
    yield "clearhead opens, such as `text_config (qwen2)`. clearhead opens such a part if transformers has saved it"
    yield "as a separate model. The column is empty if clearhead opens no similar model type. In the second column,"
    yield "*no table* means that clearhead has no description of this model type. After the words *no table*, the"
    yield "cell lists the config fields that clearhead does not know."
    yield ""
    yield "| model type | what is missing | nearest |"
    yield "|---|---|---|"
    for one in sorted((one for one in lines if one.kind != OPENS), key=lambda one: one.folder):
        crash = "**crash**: " if one.kind == "crash" else ""
        near = NEAREST.fullmatch(one.instead)
        yield f"| {title(one)} | {crash}{cell(one.why)} | {cell(near['type'] or near['part'] if near else '')} |"


def title(one: Line) -> str:
    """The model type, with its folder if that has another name."""
    same = one.folder.replace("-", "_") == one.model_type.replace("-", "_")
    return one.model_type if same else f"{one.model_type} ({one.folder})"


def cell(text: str) -> str:
    """A text within a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
