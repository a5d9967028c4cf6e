"""Answers with the overview: how much of one answer each head, attention weight, stream and feed-forward carries."""

import re
from collections.abc import Sequence
from itertools import takewhile
from math import isnan
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.analysis.overview import Moved, Overview
from clearhead.explorer.answering.answers import DecidedHead, DecidedPart, OverviewReply
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import Pass, greedy
from clearhead.explorer.answering.questions import BoundedText, OfRun, Reply, RunRequest, Whole
from clearhead.explorer.lru_cache import LRUCache
from clearhead.explorer.recording.facts import Token
from clearhead.generation import complete
from clearhead.generation.settings import changed
from clearhead.model.linear import LinearMap
from clearhead.trace import Address, Edit, zero

BUDGET = 1e10
"""The number of multiplications that heads may take: about a sixth of a second on two cores."""
ANSWERS = 6
"""How many answers are told."""
PIECE = re.compile(r"([^\W_\u0e00-\u0eff\u3040-\u9fff]|['’])+(?<!['’])\n([^\W_]|['’])+")
"""A word, and in the next line a token that goes on with it."""
Part = Literal["heads", "curves", "lanes", "ffn"]
EDITS = 200
"""The most edits of one switch."""
WORDS = 24
"""The most words or regions that are told with what moves without each."""
TOGETHER = 5
"""The most words that are left out together."""
PIECES = 3
"""The most tokens that complete the word of an answer."""
DECIDES = 0.2
"""A head that moves less of the answer is no first edit if words move more."""


class OverviewQuestion(OfRun):
    """Asks how much of one answer each part of the network carries."""

    position: Whole | None = None
    """That of the answer in the last stack. None: the one whose best head moves it most."""
    part: Part
    near: BoundedText | None = None
    """The text with which a vector is compared. None: itself."""


def is_exact(opened: Opened) -> bool:
    """Returns True if no linear map has rounded its weights: ablations refuse those."""
    return not any(isinstance(one, LinearMap) and one.rounded for one in opened.model.network.modules())


class Overviews(LRUCache[Overview]):
    """The overviews that were asked for last."""


def overview(opened: Opened, question: OverviewQuestion) -> Reply[OverviewReply]:
    """One part of the overview. The parts of one run share its pass."""
    found = opened.passes.get(question.run)
    with opened.passes.arithmetic.products():
        seen = overview_of(opened, question.run, question.position, question.near)
        about, tensors = _part(seen, found, question)
    named = "word" if found.model.config.predicts_tokens else "class"
    return Reply({"position": seen.position, "kind": "vector" if seen.is_vector else named, **about}, tensors)


def overview_of(opened: Opened, run: RunRequest, position: int | None, near: str | None = None) -> Overview:
    """The overview of a run, made once; of a vector, against that of a text.

    That of the position which decides most is also the one of this position.
    """
    kept = opened.kept(Overviews, lambda: Overviews(4))

    def made(position: int | None) -> Overview:
        return kept.get(f"{position} {near} {run.key}", lambda: _overview(opened.passes.get(run), run, position, near))

    is_best = f"None {near} {run.key}" in kept and made(None).position == position
    return made(None if is_best else position)


def _overview(found: Pass, run: RunRequest, position: int | None, near: str | None) -> Overview:
    """The overview of a run: the answers to choose from are those of masked words, and what is said of a sound."""
    model, tokens = found.model, list(found.recording.tokens.values())[-1]
    mask = model.tokenizer.mask_id if model.has_tokenizer and model.config.predicts_tokens else None
    first = len(speech.after_start()) if (speech := model.generation.speech) else len(tokens)
    # Zeros need no other position, unlike the functions of a pass.
    edit: dict[str, Edit] = {one.at: zero for one in run.edits}
    return Overview(
        model.network,
        found.reading.inputs,
        position=position,
        among=[i for i, token in enumerate(tokens) if token.id == mask or i >= first],
        words={name: words for name, some in found.recording.tokens.items() if (words := _words_of(some))},
        edit=edit if all(one.do == "zero" for one in run.edits) else found.edit,
        seen=found,
        vectors=model.sentences.vectors,
        toward=model.embed([near])[0] if near and not model.config.has_logits else None,
        budget=BUDGET,
    )


def _words_of(tokens: Sequence[Token]) -> list[list[int]]:
    """The tokens of each word, by the rule of `joined` of ui/src/state/attention.svelte.ts, and the signs before a text
    as one; none if each is one.
    """
    words, word, end = list[list[int]](), "", -1
    for t, token in enumerate(tokens):
        start, after = token.span or (-2, -1)
        is_sign = token.text.startswith("<") and not any(one.span for one in tokens[: t + 1])
        is_on = token.text.startswith("##") or (start == end and PIECE.fullmatch(f"{word}\n{token.text}"))
        if words and (is_on or is_sign):
            words[-1].append(t)
            word += token.text.removeprefix("##")
        else:
            words.append([t])
            word = token.text.lstrip("▁Ġ ") or token.text
        word = word[-1:] if PIECE.fullmatch(word + "x\nx") else "_"  # All that matters of it for the next token.
        end = after
    is_long = any(len(token.text) > 2 for token in tokens if token.span)
    return words if is_long and len(words) < len(tokens) else []


def _part(seen: Overview, found: Pass, question: OverviewQuestion) -> tuple[dict[str, Any], dict[str, Tensor]]:
    match question.part:
        case "heads":
            values, ids = seen.answer.topk(min(ANSWERS, len(seen.answer)))
            words = {"0": question.near or ""} if seen.is_vector else _words(found, ids)
            pairs = zip(ids.tolist(), values.tolist(), strict=True)
            about = {
                "answers": [{"id": i, "word": words[str(i)], "p": p} for i, p in pairs],
                "at": [head.at for head in seen.heads],
                "decided": _decided(seen, found),
            }
            return about, {name: torch.tensor([getattr(head, name) for head in seen.heads]) for name in ("moved", "p")}
        case "curves":
            about = [{"at": x.at, "weight": x.weight, "moved": x.moved, "p": _number(x.p)} for x in seen.curves]
            return {"curves": about}, {}
        case _:
            return {"stacks": seen.lanes_of}, seen.lanes if question.part == "lanes" else seen.ffn


def _decided(seen: Overview, found: Pass) -> DecidedHead:
    """The head that moves the answer most; and if it makes no other answer likelier, the words that do, or if no head
    moves much of the answer, the words or the region that do.

    A word is tried alone, then everywhere that it stands, then together with others: the first that make another
    answer likelier, with no more words than that takes, else the first that move much.
    """
    nan = float("nan")
    head = best = seen.heads[seen.decided] if seen.heads else Moved("", 0.0, nan, -1, nan)
    about = DecidedHead(head=seen.decided, moved=head.moved)
    if not head.moved >= DECIDES or head.risen_p <= head.p:
        choices = (one for one in seen.parts if _is_choice(one, seen, found))
        words = sorted(choices, key=lambda one: -one.moved)
        about["words"] = [_told(one) for one in words[:WORDS]]
        falling = [one.at for one in words if one.p < max(seen.answer.tolist())][:TOGETHER]
        places = dict[str, list[str]]()
        for one in words:
            places.setdefault(_text(one, found), []).append(one.at)
        everywhere = [" ".join(at) for text, at in places.items() if at[1:] and any(map(str.isalnum, text))]
        words += sorted(seen.off(everywhere), key=lambda one: -one.moved)
        words += seen.off([" ".join(falling[: n + 1]) for n in range(1, len(falling))])
        told = [one for one in words if one.moved >= DECIDES] or [max([head, *words], key=lambda one: one.moved)]
        turned = (one for one in told if one.risen_p > one.p and not found.model.reader.reads_images)
        best = next(turned, head if head.moved >= DECIDES else told[0])
        if best.at not in everywhere:
            best = _fewest(best, [at for at in falling if at in best.at], seen)
        if best is not head:
            about["part"] = _told(best)
    if best.risen >= 0:
        word = _words(found, torch.tensor([best.risen]))[str(best.risen)]
        about["instead"] = {"id": best.risen, "word": word, "p": best.risen_p}
    return about


def _fewest(best: Moved, words: list[str], seen: Overview) -> Moved:
    """The same, of several words without those that another answer does not need to be likelier."""
    while len(words) > 2:
        fewer = seen.off([" ".join(one for one in words if one != out) for out in words])
        smaller = min(fewer, key=lambda one: one.p - one.risen_p)
        if smaller.risen_p <= smaller.p:
            return best
        best, words = smaller, [one for one in words if one in smaller.at]
    return best


def _words(found: Pass, ids: Tensor) -> dict[str, str]:
    """The texts of answers by id. The beginning of a word has the rest that a decoder of one text writes next."""
    words, model = found.words(ids), found.model
    whole = [int(i) for i, text in words.items() if text.startswith(("▁", "Ġ"))]
    given = found.reading.inputs[-1].ids
    size = model.network.n_parameters * given.shape[1] * len(whole)
    if not model.config.continues_texts or size > BUDGET:
        return words
    longest = model.config.output.max_length
    if not whole or (longest is not None and given.shape[1] + PIECES > longest):
        return words
    texts = [[*given[0].tolist(), i] for i in whole]
    written = complete(model.network, texts, config=changed(greedy(model), {"max_new_tokens": PIECES}), scored=False)
    for i, (best,) in zip(whole, written, strict=True):
        rest = takewhile(str.isalpha, model.tokenizer.tokens(best.tokens))
        words[str(i)] += "".join(takewhile(lambda text: text[0] not in "▁Ġ", rest))
    return words


def _told(part: Moved) -> DecidedPart:
    return {"at": part.at.split(), "moved": part.moved, "p": _number(part.p)}


def _is_choice(one: Moved, seen: Overview, found: Pass) -> bool:
    """False for what was not measured, for the place where the answer is made and for signs of the start or the end."""
    edits, (first, *later) = one.at.split(), found.recording.tokens.values()
    own = [Address.parse(at).index[0][1] for at in edits]
    token, is_asked = first[own[0]], seen.position in own and not found.model.reader.reads_images
    is_read = token.span is not None or token.text[0].isdigit()  # Patches and moments are named by numbers.
    return is_read and one.moved >= 0 and len(edits) < EDITS and (bool(later) or not is_asked)


def _text(one: Moved, found: Pass) -> str:
    """The tokens of the first stack that are set to 0, as one text."""
    first, *_ = found.recording.tokens.values()
    return "".join(first[Address.parse(at).index[0][1]].text for at in one.at.split())


def _number(value: float) -> float | None:
    return None if isnan(value) else value
