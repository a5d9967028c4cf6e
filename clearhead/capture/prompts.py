"""Effects over a set of prompts: the mean of each part's effect over pairs of a clean and a corrupt text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from clearhead.analysis.ablation import Ablations
from clearhead.analysis.attribution import attribute
from clearhead.analysis.circuits import LogitDifference, refined_nodes
from clearhead.analysis.circuits.patching import EXACT
from clearhead.analysis.comparison import states
from clearhead.analysis.lens import read
from clearhead.analysis.passes import inference
from clearhead.analysis.steering import difference_of_means
from clearhead.analysis.sweep import PARTS, PatchingSweep, Unclear, aligned
from clearhead.api.base import ModelBase
from clearhead.api.circuits import answer_id, circuits_of, likeliest
from clearhead.brief import brief
from clearhead.capture.effects import Effect, last_layers, means, parts
from clearhead.capture.passes import sites_of
from clearhead.data.prompts import Prompt
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.progress import counted
from clearhead.trace import edited

How: TypeAlias = Literal["patch", "ablate", "direct", "lens", "nodes", "steer"]
BATCH_TOKENS = 512
"""Tokens of a batch of clean texts, at most."""
ENDS = "clean", "corrupt"
"""The sites of the numbers themselves, which come before those of their effects."""
Found: TypeAlias = dict[str, Tensor]
"""By site, b: the effect in each pair."""


def over_prompts(
    model: ModelBase,
    prompts: Sequence[Prompt],
    how: How = "patch",
    sites: str = "heads",
    *,
    position: int | None = None,
    exact: float = EXACT,
) -> list[Effect]:
    """The mean effect of each part on d = logit[answer] - logit[minus], with its 95% bootstrap interval over prompts.

    patch: the share of d(clean) - d(corrupt) that a state of the clean text restores in the corrupt one; `sites` are
    heads, resid, attn, ffn or all. ablate: how much d(clean) falls without a part; `sites` are as in `effects`.
    direct: what each part adds to d(clean) directly. lens: d(clean) as read after each block. nodes: an estimate of how
    much d(clean) falls if a part gives its output for the corrupt text (`refined_nodes`, with `exact`). steer:
    how much d(corrupt) rises with the mean difference of the other half of the prompts added at `sites`, an address.

    The first two results are the means of d(clean) and d(corrupt), if there are logits. Prompts with nearly equal
    d(clean) and d(corrupt) are left out; `n_texts` counts the others.

    The default answer is the likeliest token of its text, at the last position where those of the two
    texts differ. Positions are aligned by the slots of a template, or else by tokens. Raises UserError for texts
    where neither fits, and if no prompt's two texts answer differently.
    """
    pairs = [read_prompt(model, one, position=position) for one in prompts]
    batches = [*_batches(pairs, alone=how == "nodes")]
    table, n_ends = dict[str, np.ndarray](), 0
    unclear = UserError("prompts: expected several, got none")
    for rows, some in counted(batches, how):
        found = {name: some.difference(side) for side, name in enumerate(ENDS)} if some.ids else {}
        n_ends = len(found)
        try:
            found |= some.measure(how, sites, exact, [one for _, one in batches if one is not some])
        except Unclear as error:
            unclear = error
            continue
        if table and table.keys() != found.keys():
            raise UserError(
                f"prompt {rows[0] + 1}: expected as many tokens as before, or slots of a template, to align positions"
                " by, got another length; try heads"
            )
        for site, each in found.items():
            table.setdefault(site, np.full(len(pairs), np.nan))[rows] = each.cpu()
    values = np.array([*table.values()]).reshape(len(table), len(pairs))
    kept = ~np.isnan(values[n_ends:]).all(0)
    if not kept.any():
        raise unclear
    known = [(site, row[kept]) for site, row in zip(table, values, strict=True) if not np.isnan(row[kept]).any()]
    each = zip(known, means(np.array([row for _, row in known]).T), strict=True)
    return [Effect(site, one.value, one.interval, int(kept.sum())) for (site, _), one in each]


@dataclass(frozen=True)
class Pairs:
    """Pairs of the same lengths as a network reads them, and what is measured on them."""

    __repr__ = brief

    model: ModelBase
    sides: tuple[list[Tokens], list[Tokens]]
    """The clean and the corrupt texts, an input for each stack."""
    ids: list[list[int]]
    """The answers, and what they are compared with; empty for a network without logits."""
    position: int
    """The position of the answer in the last stack. A head that pools has none."""
    columns: dict[str, Tensor]
    """By part of a template, b t, bool: its positions in the corrupt texts. Empty if they are aligned by tokens."""

    @property
    def metric(self) -> LogitDifference:
        """logit[answer] - logit[minus]. Raises UserError for a network without logits."""
        if not self.ids:
            raise UserError("expected a model that answers with logits, got one of vectors; try clearhead circuits")
        return LogitDifference(*self.ids, position=self.position)

    def difference(self, side: int) -> Tensor:
        """b: the metric on the clean texts, or for 1 on the corrupt ones."""
        with inference(self.model.network):
            result = self.model.network(*self.sides[side])
        return self.metric.of(result if result.ndim == 2 else result[:, self.position])

    def measure(self, how: How, sites: str, exact: float, others: Sequence["Pairs"]) -> Found:
        """The effects on each pair; `others` are those that a direction is made of."""
        match how:
            case "patch":
                return self.patch(sites)
            case "ablate":
                return self.ablate(sites)
            case "nodes":
                return self.nodes(exact)
            case "steer":
                return self.steer(sites, others)
            case "direct":
                return self.direct()
            case "lens":
                return self.lens()

    def patch(self, sites: str) -> Found:
        """The share of the metric that each state of the clean texts restores in the corrupt ones."""
        wanted = [part for part in PARTS if sites in (part, "all")]
        if not wanted:
            raise UserError(f"sites: expected {', '.join(PARTS)} or all, got {sites!r}")
        network, (answer, minus), found = self.model.network, (self.metric.answer, self.metric.minus), Found()
        columns = {next(iter(network.stacks())): torch.stack([*self.columns.values()])} if self.columns else {}
        sweep = PatchingSweep(network, *self.sides, answer, minus=minus, position=self.position, columns=columns)
        for row in sweep.rows(*wanted):
            names = self.columns if row.axis == "t" and row.at.split(".")[0] in columns else range(row.each.shape[1])
            found |= {f"{row.at}[{row.axis}={name}]": each for name, each in zip(names, row.each.T, strict=True)}
        return found

    def ablate(self, sites: str) -> Found:
        """How much the metric falls without each part; without logits, how far the vector moves."""
        metric, vectors = self.metric if self.ids else None, self.model.sentences.vectors
        runs = Ablations(self.model.network, self.sides[0], metric=metric, vectors=vectors, position=self.position)
        return {site: runs.divergences(logs) for site, logs in runs.answers(parts(self.model, sites))}

    def direct(self) -> Found:
        """What each part adds to the metric directly."""
        metric = self.metric
        position = self.position
        return attribute(self.model.network, self.sides[0], metric.answer, minus=metric.minus, position=position).shares

    def lens(self) -> Found:
        """The metric by the logit lens after each block."""
        network, seen = self.model.network, states(self.model.network, self.sides[0])
        with inference(network):
            each = {at: read(network, seen[at][:, [self.position]])[:, 0] for at in last_layers(self.model)}
        return {at: self.metric.of(logits) for at, logits in each.items()}

    def nodes(self, exact: float) -> Found:
        """For one pair, estimates how much the metric falls if a part gives its output for the corrupt text."""
        answer, minus, *_ = *(one for (one,) in self.ids), None, None
        circuits, _ = circuits_of(self.model, *self.sides, answer=answer, minus=minus, position=self.position)
        return {site: torch.tensor([score]) for site, score in refined_nodes(circuits, exact=exact).scores.items()}

    def steer(self, sites: str, rest: Sequence["Pairs"]) -> Found:
        """How much the metric of the corrupt texts rises with the mean difference of the other pairs added."""
        plain, found = self.difference(1), Found()
        clean, corrupt = ([pairs.sides[side] for pairs in rest] for side in (0, 1))
        for at in (str(site.address) for site in sites_of(self.model, [sites])):
            with edited(self.model.network, difference_of_means(self.model.network, clean, corrupt, at=at).edit()):
                found[at] = self.difference(1) - plain
        return found


def read_prompt(model: ModelBase, prompt: Prompt, *, position: int | None = None) -> Pairs:
    """One pair. What both answers begin with is read as the end of both texts: their next tokens differ."""
    tokenizer = model.reader.tokenizer
    writes = model.config.predicts_tokens and model.config.decoder is not None
    target = prompt.target or ("" if writes and model.is_encoder_decoder else None)
    clean, corrupt = (model.inputs(Path(one) if model.reader.reads_images else one, target) for one in prompt.texts)
    before = (prompt.texts[0] if target is None else target) if writes and tokenizer else None
    ids = [_ids(model, before, text) for text in (prompt.answer, prompt.minus) if text is not None]
    alike = next((i for i, both in enumerate(zip(*ids, strict=False)) if len({*both}) == len(ids)), -1)
    if ids and alike < 0:
        raise UserError(f"minus: expected another answer than {prompt.answer!r}, got {prompt.minus!r}")
    if alike > 0:
        for side in (clean, corrupt):
            side[-1] = Tokens(torch.cat([side[-1].ids, side[-1].ids.new_tensor([ids[0][:alike]])], 1))
    n, own = clean[-1].grid[1], clean[0].ids[0].tolist()
    if position is not None and not -n <= position < n:
        raise UserError(f"position {position}: expected a position of the clean text, whose length is {n}")
    if position is None and tokenizer and tokenizer.mask_id in own:
        position = own.index(tokenizer.mask_id)
    at = -1 if position is None else position - n if 0 <= position < n else position
    columns = _columns(model, prompt, corrupt[0]) if len(prompt.names) > 1 else {}
    pair = Pairs(model, (clean, corrupt), [some[alike : alike + 1] for some in ids], at, columns)
    if len(ids) == 2 or not model.config.has_logits:
        return pair
    return _choose(pair, is_free=position is None and not ids)


def _ids(model: ModelBase, before: str | None, answer: str) -> list[int]:
    """The tokens of an answer after a text; or the one token or label that is meant."""
    if before is not None:
        bare, more = (model.tokenizer.encode(one, target=model.is_encoder_decoder) for one in (before, before + answer))
        if more[: len(bare)] == bare and len(more) > len(bare):
            return more[len(bare) :]
    return [answer_id(model, answer, name="answer")]


def _choose(pair: Pairs, *, is_free: bool) -> Pairs:
    """The pair with the answers that are missing. If the position `is_free`, it is the last where they differ."""
    position = pair.position
    with inference(pair.model.network):
        clean, corrupt = (pair.model.network(*side)[0] for side in pair.sides)
    if clean.ndim == 2 and is_free:
        both = aligned(*(side[-1].ids[0].tolist() for side in pair.sides))
        i, j = next((one for one in both[::-1] if clean[one[0]].argmax() != corrupt[one[1]].argmax()), both[-1])
        position, clean, corrupt = i - len(clean), clean[i], corrupt[j]
    elif clean.ndim == 2:
        clean, corrupt = clean[position], corrupt[position]
    found = likeliest(clean, corrupt, *(one for (one,) in pair.ids))
    return replace(pair, ids=[[one] for one in found if one is not None], position=position)


def _columns(model: ModelBase, prompt: Prompt, tokens: Tokens) -> dict[str, Tensor]:
    """The positions of each part of the corrupt text; none if tokens do not end where parts do.

    Special tokens belong to the first and the last part.
    """
    ids, start = tokens.ids[0].tolist(), len(model.reader.special_tokens().before)
    ends = [0]
    for text in accumulate(prompt.corrupt):
        own = model.tokenizer.encode(text.rstrip())
        ends.append(start + len(own))
        if ids[start : ends[-1]] != own:
            return {}
    at = torch.arange(len(ids))
    places = zip(prompt.names, pairwise([*ends[:-1], len(ids)]), strict=True)
    return {name: (at >= begin)[None] & (at < end) for name, (begin, end) in places}


def _batches(pairs: Sequence[Pairs], *, alone: bool) -> Iterator[tuple[list[int], Pairs]]:
    """Pairs of the same lengths together, and their numbers in the set. No batch is all that there is."""
    groups: dict[object, list[int]] = {}
    for i, pair in enumerate(pairs):
        clean, corrupt = ([one.grid[1] for one in side] for side in pair.sides)
        groups.setdefault(i if alone or clean != corrupt else (*clean, pair.position, *pair.columns), []).append(i)
    for rows in groups.values():
        n = min(max(1, BATCH_TOKENS // pairs[rows[0]].sides[0][-1].grid[1]), -(-len(rows) // 2))
        for some in (rows[at : at + n] for at in range(0, len(rows), n)):
            own = [pairs[i] for i in some]
            clean, corrupt = (
                [Tokens(torch.cat([one.ids for one in stack])) for stack in zip(*side, strict=True)]
                for side in zip(*(pair.sides for pair in own), strict=True)
            )
            ids = [[i for (i,) in each] for each in zip(*(pair.ids for pair in own), strict=True)]
            columns = {name: torch.cat([pair.columns[name] for pair in own]) for name in own[0].columns}
            yield some, replace(own[0], sides=(clean, corrupt), ids=ids, columns=columns)
