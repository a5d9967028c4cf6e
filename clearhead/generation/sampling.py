"""From logits to the next token: forbidden tokens, truncation and sampling."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.randomness import key
from clearhead.recipe.generation import GenerationConfig, SpeechTokens

NEVER = float("-inf")
RUN = 128
"""The size of a group whose largest token `likeliest` finds first."""
SHORTLIST = 512
"""The likeliest tokens that top-p tries first. They nearly always suffice, and sorting all takes longer."""


@dataclass(frozen=True)
class History:
    """The tokens that each row has read and written so far."""

    __repr__ = brief

    ids: Tensor
    """b t: the prompt, then the tokens written."""
    valid: Tensor
    """b t, bool: which cells hold a token (the prompt may be padded)."""
    n_prompt: int
    """Cells of the prompt."""

    @property
    def n_new(self) -> int:
        """The number of tokens written."""
        return self.ids.shape[1] - self.n_prompt

    def select(self, index: Tensor) -> Self:
        """Selects these rows, in this order."""
        return type(self)(self.ids[index], self.valid[index], self.n_prompt)

    def append(self, tokens: Tensor) -> Self:
        """Appends one token to each row, b."""
        column = tokens[:, None]
        valid = torch.cat([self.valid, torch.ones_like(column, dtype=torch.bool)], 1)
        return type(self)(torch.cat([self.ids, column], 1), valid, self.n_prompt)


# --- repetition control -------------------------------------------------------------------------------------


def seen(history: History, vocab_size: int) -> Tensor:
    """b v, bool: tokens that occur in each row; padding does not count."""
    count = history.valid.new_zeros(len(history.ids), vocab_size, dtype=torch.int32)
    return count.scatter_add(1, history.ids, history.valid.to(torch.int32)) > 0


def repetition_penalty(scores: Tensor, there: Tensor, penalty: float) -> Tensor:
    """Scores of tokens already there: score / penalty if positive, score * penalty otherwise (Keskar 2019, 4.1)."""
    return torch.where(there, torch.where(scores > 0, scores / penalty, scores * penalty), scores)


def repeated_ngrams(history: History, n: int, vocab_size: int) -> Tensor:
    """b v, bool: tokens that would complete an n-gram which the row already holds."""
    b, t = history.ids.shape
    count = history.valid.new_zeros(b, vocab_size, dtype=torch.int32)
    if t < n:
        return count > 0
    grams, whole = history.ids.unfold(1, n, 1), history.valid.unfold(1, n, 1).all(-1)
    begins_alike = (grams[..., :-1] == history.ids[:, None, t - n + 1 :]).all(-1)
    return count.scatter_add(1, grams[..., -1], (whole & begins_alike).to(torch.int32)) > 0


# --- what the config names -----------------------------------------------------------------------------------


def among(tokens: Sequence[int], scores: Tensor) -> Tensor:
    """v, bool: marks these tokens of the vocabulary."""
    known = torch.tensor([t for t in tokens if t < scores.shape[-1]], dtype=torch.long, device=scores.device)
    return torch.zeros_like(scores[0], dtype=torch.bool).index_fill(0, known, True)


def certain(token: int, scores: Tensor) -> Tensor:
    """0 for one token and -inf for the others."""
    return torch.full_like(scores, NEVER).index_fill(-1, torch.tensor([token], device=scores.device), 0.0)


# --- times -------------------------------------------------------------------------------------------------


def timed(scores: Tensor, history: History, speech: SpeechTokens, end: int) -> Tensor:
    """Scores after the rules of times, which are the last tokens of the vocabulary.

    A text begins with a time. Times come in pairs, the end of a part and the begin of the next, and never go back. A
    time is written where all of them together are likelier than any other token.
    """
    first = speech.first_time
    assert first is not None
    ids = torch.arange(scores.shape[-1], device=scores.device)
    closed = torch.stack([_closed(row, ids, first, end, speech) for row in history.ids[:, history.n_prompt :].tolist()])
    scores = scores.masked_fill(closed, NEVER)
    shares = scores.float().log_softmax(-1)
    is_time = shares[:, first:].logsumexp(-1) > shares[:, :first].amax(-1)
    return scores.masked_fill(is_time[:, None] & (ids < first), NEVER)


def _closed(written: list[int], ids: Tensor, first: int, end: int, speech: SpeechTokens) -> Tensor:
    """v, bool: the tokens that may not come next."""
    closed = ids == first - 1
    if not written:
        latest = speech.latest_first_time
        return closed | (ids < first) | (False if latest is None else ids > first + latest)
    last, before = written[-1] >= first, len(written) < 2 or written[-2] >= first
    if last:
        closed = closed | (ids >= first if before else ids < end)
    times = [token for token in written if token >= first]
    if times:
        least = times[-1] if last and not before else times[-1] + 1
        closed = closed | ((ids >= first) & (ids < least))
    return closed


# --- what is too unlikely -----------------------------------------------------------------------------------


def likeliest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """b v -> b k, twice: the k largest scores, largest first, and their tokens, as `topk` finds them.

    On a CPU in two steps: the k largest lie in the k runs of the vocabulary whose own largest are largest, and a row's
    largest of each run are found much faster than its order.
    """
    b, v = scores.shape
    n_runs = v // RUN
    if scores.device.type != "cpu" or n_runs < 4 * k:
        best = scores.topk(k)
        return best.values, best.indices
    runs = scores[:, : n_runs * RUN].unflatten(1, (n_runs, RUN))
    which = runs.amax(2).topk(k).indices
    tokens = (which[..., None] * RUN + torch.arange(RUN)).flatten(1)
    if n_runs * RUN < v:
        tokens = torch.cat([tokens, torch.arange(n_runs * RUN, v).expand(b, -1)], 1)
    best, index = scores.gather(1, tokens).topk(k)
    return best, tokens.gather(1, index)


def top_k(scores: Tensor, k: int) -> Tensor:
    """Scores of the k likeliest tokens, and of those as likely as the k-th; -inf for the others."""
    least = scores.topk(min(k, scores.shape[-1]), dim=-1).values[..., -1:]
    return scores.masked_fill(scores < least, NEVER)


def top_p(scores: Tensor, p: float) -> Tensor:
    """Scores of the fewest tokens whose probability reaches p (Holtzman et al. 2020, 3.1); -inf for the others."""
    if p >= 1:
        return scores
    total = scores.logsumexp(-1, keepdim=True)
    # In the order of the vocabulary, so that the first of two equally likely tokens comes first.
    listed = scores.topk(min(SHORTLIST, scores.shape[-1]), dim=-1).indices.sort(-1).values
    best = scores.gather(-1, listed)
    surely = best.masked_fill(best <= best.amin(-1, keepdim=True), NEVER).logsumexp(-1, keepdim=True)
    if best.shape != scores.shape and not ((surely - total).exp() >= p).all():
        listed, best = torch.arange(scores.shape[-1], device=scores.device).expand_as(scores), scores
    ordered, order = best.sort(dim=-1, descending=True, stable=True)
    probabilities = (ordered - total).exp()
    before = probabilities.cumsum(-1) - probabilities
    before[..., 0] = 0.0
    kept = ordered.masked_fill(before >= p, NEVER)
    return torch.full_like(scores, NEVER).scatter(-1, listed.gather(-1, order), kept)


def min_p(scores: Tensor, fraction: float) -> Tensor:
    """Scores of tokens at least `fraction` as likely as the likeliest (Nguyen et al. 2024); -inf for the others."""
    probabilities = scores.softmax(-1)
    return scores.masked_fill(probabilities < fraction * probabilities.amax(-1, keepdim=True), NEVER)


# --- chance -------------------------------------------------------------------------------------------------


def uniform(*parts: str | int) -> float:
    """A random number in [0, 1), decided by these parts alone: no other row or device changes it."""
    return (key(*parts) >> 10) / 2**53


def draw(probabilities: Tensor, chances: Sequence[float]) -> Tensor:
    """b v -> b: the token at which the cumulative probability passes a row's random number, never one of 0."""
    wide = torch.float32 if probabilities.device.type == "mps" else torch.float64
    cumulative = probabilities.to(wide).cumsum(-1)
    total = cumulative[:, -1:]
    passed = torch.minimum(total.new_tensor(chances)[:, None] * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cumulative, passed, right=True)[:, 0].clamp(max=probabilities.shape[-1] - 1)


@dataclass(frozen=True)
class Sampler:
    """Applies this module's rules in order, as the config says: control, then (when sampling) narrow, then draw."""

    config: GenerationConfig
    limit: int | None = None
    """Most tokens to write; None for the config's limit."""

    def control(self, scores: Tensor, history: History, *, in_place: bool = False) -> Tensor:
        """Scores after repetition control, minimum length, bans and forced tokens; `in_place` may overwrite them."""
        config, v = self.config, scores.shape[-1]
        if config.repetition_penalty != 1.0:
            scores = repetition_penalty(scores, seen(history, v), config.repetition_penalty)
        if config.no_repeat_ngram is not None or self.banned(history) or self.early_ends(history):
            scores = self.forbid(scores, history, in_place=in_place)
        if config.speech is not None and config.speech.times:
            scores = timed(scores, history, config.speech, config.end_ids[0])
        return self.force(scores, history)

    def banned(self, history: History) -> tuple[int, ...]:
        """Tokens that are never written, or not as the next one."""
        is_first = history.n_new == (self.config.forced_first_id is not None)
        return (*self.config.banned_ids, *(self.config.first_banned_ids if is_first else ()))

    def early_ends(self, history: History) -> tuple[int, ...]:
        """End tokens that may not come yet."""
        return self.config.end_ids if history.n_new < self.config.min_new_tokens else ()

    @property
    def takes_largest(self) -> bool:
        """True if the next token is the one with the largest logit, except for banned, early and forced tokens."""
        config = self.config
        plain = config.temperature == 0 and config.repetition_penalty == 1.0 and config.no_repeat_ngram is None
        return plain and (config.speech is None or not config.speech.times)

    def forbid(self, scores: Tensor, history: History, *, in_place: bool = False) -> Tensor:
        """-inf for banned tokens, and for repeated n-grams and too early ends unless these leave no token."""
        banned, early, v = self.banned(history), self.early_ends(history), scores.shape[-1]
        if self.config.no_repeat_ngram is None:
            never = {token for token in (*banned, *early) if token < v}
            never = never if len(never) < v else {token for token in banned if token < v}
            fill = scores.index_fill_ if in_place else scores.index_fill
            return fill(-1, torch.tensor([*never], dtype=torch.long, device=scores.device), NEVER)
        always = among(banned, scores)
        forbidden = among(early, scores) | repeated_ngrams(history, self.config.no_repeat_ngram, v)
        left = ~(always | forbidden).all(-1, keepdim=True)
        return scores.masked_fill(always | (forbidden & left), NEVER)

    def force(self, scores: Tensor, history: History) -> Tensor:
        """Makes a forced token certain: 0, the logarithm of 1, and -inf for all others."""
        config = self.config
        if config.forced_first_id is not None and history.n_new == 0:
            begins = history.valid.sum(1, keepdim=True) == 1
            scores = torch.where(begins, certain(config.forced_first_id, scores), scores)
        if config.forced_last_id is not None and history.n_new + 1 == (self.limit or config.max_new_tokens):
            scores = certain(config.forced_last_id, scores)
        return scores

    def narrow(self, scores: Tensor) -> Tensor:
        """Scores over temperature, -inf for the tokens that top-k, top-p and min-p leave out."""
        config = self.config
        scores = scores / config.temperature
        if config.top_k is not None:
            scores = top_k(scores, config.top_k)
        if config.top_p is not None:
            scores = top_p(scores, config.top_p)
        if config.min_p is not None:
            scores = min_p(scores, config.min_p)
        return scores

    def choose(self, scores: Tensor, names: Sequence[tuple[int, int]], step: int) -> Tensor:
        """b v -> b: each row's next token. `names`: the (input, sample) of each row, which decides its chance."""
        if self.config.temperature == 0:
            return scores.argmax(-1)
        chances = [uniform(self.config.seed, "sample", *name, step) for name in names]
        return draw(self.narrow(scores).softmax(-1), chances)

    def settle(self, scores: Tensor, name: tuple[int, int], step: int, guess: int, shares: Tensor) -> Tensor:
        """1 v -> 1: a token with the probabilities of `choose`, if possible the guess, which was drawn from `shares`.

        Keeps it with probability min(1, p / q), and otherwise draws from max(0, p - q)   (Leviathan et al. 2023,
        algorithm 1). `shares`: v, the q.
        """
        p = self.narrow(scores)[0].softmax(-1)
        q = shares.to(p)
        rest = (p - q).clamp(min=0)
        seed = self.config.seed
        if uniform(seed, "keep", *name, step) * float(q[guess]) < float(p[guess]) or not rest.any():
            return torch.tensor([guess], device=p.device)
        return draw(rest[None], [uniform(seed, "instead", *name, step)])
