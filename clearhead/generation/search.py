"""Decides which hypotheses continue: each by itself (greedy, sampling), or the best few of all (beam search).

A search reads logits and chooses the next tokens and the slots that they continue. It knows no network. Scores are
float32, whatever the network computes in.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.generation.sampling import NEVER, History, Sampler, likeliest
from clearhead.recipe.generation import GenerationConfig

Stop = Callable[[list[int]], bool]
"""Whether the tokens written so far end a hypothesis, as at a stop string; no need to look for end tokens."""
Reason = Literal["eos", "stop", "length"]


@dataclass(frozen=True)
class Hypothesis:
    """One finished text: the tokens written, without prompt and end token."""

    __repr__ = brief

    tokens: tuple[int, ...]
    score: float
    """log_prob / length^length_penalty."""
    log_prob: float
    """Natural logarithm of the probability of all tokens, the end token included; forced ones are certain.

    NaN, as `score`, where no score was asked for.
    """
    reason: Reason
    """Why it ended: an end token, `stop`, or the limit."""
    end_id: int | None = None
    """The end token that ended it."""

    @property
    def length(self) -> int:
        """Tokens written, the end token included."""
        return len(self.tokens) + (self.reason == "eos")


@dataclass(frozen=True)
class Step:
    """One more token for every hypothesis: b inputs with k hypotheses each (beams or samples). On the CPU."""

    __repr__ = brief

    index: int
    """Tokens written before this one."""
    tokens: Tensor
    """b k: the tokens; pad_id where a hypothesis ended before."""
    parents: Tensor
    """b k: which hypothesis of the last step each one continues."""
    log_probs: Tensor
    """b k: log p(token | what is before it); 0 where a hypothesis ended before, NaN where no score was asked for."""
    finished: Tensor
    """b k, bool: whether it ended, with this token or before. All beams of an input end together."""


@dataclass(frozen=True)
class Move:
    """What follows from the logits of a step: the event, and the tokens to feed next."""

    __repr__ = brief

    step: Step
    tokens: Tensor
    """n: tokens to feed next, one for each slot that goes on."""
    follow: Tensor | None
    """n, on the CPU: the slot that each token continues; None if all continue in place."""


class Search(ABC):
    """Hypotheses that grow in slots: b inputs of k slots each. Only live slots are computed."""

    def __init__(self, history: History, config: GenerationConfig, *, limit: int, stop: Stop | None = None) -> None:
        """`config` names the special tokens; `limit` is how many tokens are written at most."""
        self.config, self.sampler, self.limit, self.stop = config, Sampler(config, limit), limit, stop
        self.b, self.k = len(history.ids), self.config.width
        slots = torch.arange(self.b, device=history.ids.device).repeat_interleave(self.k)
        self.history = history.select(slots)
        self.finished: list[list[Hypothesis]] = [[] for _ in range(self.b)]

    @abstractmethod
    def advance(self, logits: Tensor) -> Move:
        """n v, one row for each live slot (at first all b * k, equal within an input) -> the next move."""

    def reason(self, tokens: Sequence[int]) -> Reason | None:
        """The reason why these tokens are a complete hypothesis; None if they are not."""
        if tokens[-1] in self.config.end_ids:
            return "eos"
        if self.stop is not None and self.stop(list(tokens)):
            return "stop"
        return "length" if len(tokens) >= self.limit else None

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The n_best hypotheses of each input, best first."""
        return [sorted(found, key=lambda h: -h.score)[: self.config.n_best] for found in self.finished]

    def hypothesis(self, tokens: Sequence[int], log_prob: float, reason: Reason) -> Hypothesis:
        """A finished hypothesis with its score."""
        score = log_prob / len(tokens) ** self.config.length_penalty
        if reason == "eos":
            return Hypothesis(tuple(tokens[:-1]), score, log_prob, reason, end_id=tokens[-1])
        return Hypothesis(tuple(tokens), score, log_prob, reason)

    def step(self, live: list[int], tokens: Tensor, log_probs: Tensor, parents: Tensor, open_: list[bool]) -> Step:
        """The event for all b k slots; only live ones changed. Its tensors are on the CPU."""
        n, cells = self.b * self.k, torch.tensor(live)
        written = torch.full((n,), self.config.pad_id or 0).index_copy(0, cells, tokens)
        logs = torch.zeros(n).index_copy(0, cells, log_probs)
        whose = torch.arange(self.k).repeat(self.b).index_copy(0, cells, parents)
        done = torch.ones(n, dtype=torch.bool).index_copy(0, cells, ~torch.tensor(open_))
        grid = (x.view(self.b, self.k) for x in (written, whose, logs, done))
        return Step(self.history.n_new, *grid)


def _to_cpu(ids: Tensor, *numbers: Tensor) -> tuple[Tensor, ...]:
    """Tensors of one shape, on the CPU: a GPU is waited for once. Ids are exact in float32 up to 2**24."""
    first, *others = torch.stack([ids.float(), *numbers]).cpu()
    return first.long(), *others


class Sampling(Search):
    """Greedy search or sampling: each slot independently."""

    def __init__(
        self,
        history: History,
        config: GenerationConfig,
        *,
        limit: int,
        stop: Stop | None = None,
        numbers: Sequence[int],
        scored: bool = True,
    ) -> None:
        """`numbers` identify the inputs. Without `scored`, log-probabilities are NaN unless samples are compared."""
        super().__init__(history, config, limit=limit, stop=stop)
        self.scored = scored or self.k > 1
        self.names = [(number, sample) for number in numbers for sample in range(self.k)]
        self.live = list(range(self.b * self.k))
        self.written: list[list[int]] = [[] for _ in self.live]
        self.log_prob = [0.0 for _ in self.live]
        self.proposal: tuple[int, Tensor] | None = None
        """A guess of the next token of a single text, and the probabilities, v, that it was drawn from."""

    @property
    def takes_largest(self) -> bool:
        """True if a single text is written, and needs only the largest logit of the tokens that may come."""
        return self.b * self.k == 1 and not self.scored and self.sampler.takes_largest

    @property
    def never(self) -> tuple[int, ...]:
        """The tokens that may not come next."""
        return *self.sampler.banned(self.history), *self.sampler.early_ends(self.history)

    def advance(self, logits: Tensor) -> Move:
        logits = logits.float()
        scores = self.sampler.control(logits, self.history)
        names = [self.names[slot] for slot in self.live]
        if self.proposal is None:
            tokens = self.sampler.choose(scores, names, self.history.n_new)
        else:
            tokens = self.sampler.settle(scores, names[0], self.history.n_new, *self.proposal)
        chosen, log_probs = _to_cpu(tokens, self._log_probs(logits, tokens))
        open_: list[bool] = []
        for slot, token, log_prob in zip(self.live, chosen.tolist(), log_probs.tolist(), strict=True):
            self.written[slot].append(token)
            self.log_prob[slot] += log_prob
            reason = self.reason(self.written[slot])
            open_.append(reason is None)
            if reason is not None:
                found = self.hypothesis(self.written[slot], self.log_prob[slot], reason)
                self.finished[slot // self.k].append(found)
        parents = torch.tensor([slot % self.k for slot in self.live])
        step = self.step(self.live, chosen, log_probs, parents, open_)
        self.history = self.history.append(tokens)
        if all(open_):
            return Move(step, tokens, None)
        keep = torch.tensor([i for i, is_open in enumerate(open_) if is_open], dtype=torch.long)
        self.live = [slot for slot, is_open in zip(self.live, open_, strict=True) if is_open]
        self.history = self.history.select(keep.to(tokens.device))
        return Move(step, chosen[keep].to(tokens.device), keep)

    def _log_probs(self, logits: Tensor, tokens: Tensor) -> Tensor:
        if not self.scored:
            return torch.full(tokens.shape, torch.nan, device=tokens.device)
        return self.sampler.force(logits.log_softmax(-1), self.history).gather(1, tokens[:, None])[:, 0]


class BeamSearch(Search):
    """The k best hypotheses of each input go on, and the k best finished ones are kept.

    Of the best continuations (2k, or with several end tokens k more for each), those among the first k that end
    become finished hypotheses; the best k that do not end go on. An input is done when k are finished and the best
    running one, scored at its present length (`early_stopping="never"`: at the length that suits it best), is not
    better than the worst of them.
    (Graves 2012; score as in Wu et al. 2016, 7, with length^alpha; the rules of the `transformers` library.)
    """

    def __init__(self, history: History, config: GenerationConfig, *, limit: int, stop: Stop | None = None) -> None:
        super().__init__(history, config, limit=limit, stop=stop)
        self.rows = list(range(self.b))
        self.scores = torch.full((self.b, self.k), NEVER)
        """On the CPU, as all that decides which hypotheses go on."""
        self.scores[:, 0] = 0.0

    def advance(self, logits: Tensor) -> Move:
        n, k, v = len(self.rows), self.k, logits.shape[-1]
        log_probs = self.sampler.control(logits.float().log_softmax(-1), self.history, in_place=True)
        c = max(2, 1 + len(self.config.end_ids)) * k
        likely, tokens = likeliest(log_probs, min(c, v))  # The best of each hypothesis, which include the best of all.
        width = likely.shape[-1]
        totals = self.scores.to(likely.device)[:, :, None] + likely.view(n, k, -1)
        best, index = totals.flatten(1).topk(min(c, k * v))
        tokens, likely = (x.view(n, -1).gather(1, index) for x in (tokens, likely))
        tokens, best, likely, parents = _to_cpu(tokens, best, likely, (index // width).float())
        parents = parents.long()
        ended = self._end(best, parents, tokens)
        order = ended.int().sort(dim=1, stable=True).indices[:, :k]
        self.scores = best.masked_fill(ended, NEVER).gather(1, order)
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)

        slots = (parents + torch.arange(n)[:, None] * k).flatten()
        open_ = [self._goes_on(row, best) for row, best in zip(self.rows, self.scores[:, 0].tolist(), strict=True)]
        step = self.step(
            [row * k + i for row in self.rows for i in range(k)],
            tokens.flatten(),
            likely.gather(1, order).flatten(),
            parents.flatten(),
            [is_open for is_open in open_ for _ in range(k)],
        )
        keep = torch.tensor([i for i, is_open in enumerate(open_) if is_open], dtype=torch.long)
        self.rows = [row for row, is_open in zip(self.rows, open_, strict=True) if is_open]
        self.scores = self.scores[keep]
        slots, tokens = slots.view(n, k)[keep].flatten(), tokens[keep].flatten().to(logits.device)
        self.history = self.history.select(slots.to(logits.device)).append(tokens)
        return Move(step, tokens, slots)

    def _end(self, scores: Tensor, parents: Tensor, tokens: Tensor) -> Tensor:
        """n c, bool: the candidates that end. Those among the first k become finished hypotheses."""
        is_last = self.history.n_new + 1 >= self.limit
        may_end = torch.full_like(tokens, is_last or self.stop is not None, dtype=torch.bool)
        may_end = may_end | torch.isin(tokens, torch.tensor(self.config.end_ids, dtype=torch.long))
        where = (may_end & (scores > NEVER)).nonzero()
        if not len(where):
            return may_end & False
        i, j = where.unbind(1)
        past = self.history.ids[(i * self.k + parents[i, j]).to(self.history.ids.device), self.history.n_prompt :].cpu()
        texts = torch.cat([past, tokens[i, j, None]], 1).tolist()
        ended = torch.zeros_like(may_end)
        for (row, column), text, score in zip(where.tolist(), texts, scores[i, j].tolist(), strict=True):
            reason = self.reason(text)
            ended[row, column] = reason is not None
            if reason is not None and column < self.k:
                best = self.finished[self.rows[row]]
                best.append(self.hypothesis(text, score, reason))
                best.sort(key=attrgetter("score"), reverse=True)
                del best[self.k :]
        return ended

    def _goes_on(self, row: int, best_running: float) -> bool:
        """Returns True if an input's running hypotheses may still beat its finished ones."""
        found, config = self.finished[row], self.config
        length = self.history.n_new + 1
        if best_running == NEVER or length >= self.limit:
            return False
        if len(found) < self.k:
            return True
        if config.early_stopping is True:
            return False
        if config.early_stopping == "never" and config.length_penalty > 0:
            length = self.limit
        return best_running / length**config.length_penalty > found[-1].score
