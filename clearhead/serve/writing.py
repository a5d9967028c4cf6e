"""The engine's prompts, its news about texts, and the texts that it writes."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from clearhead.analysis.steering import Direction
from clearhead.generation import History, Sampler
from clearhead.generation.speculation import Speculation
from clearhead.recipe.generation import GenerationConfig
from clearhead.serve.edits import Steering
from clearhead.serve.worker import Ticket
from clearhead.text.detokenizer import Detokenizer

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Prompt:
    """One prompt of a request, with `n` continuations."""

    ids: list[int]
    config: GenerationConfig
    """Includes the seed and the ids of the end tokens."""
    number: int = 0
    """Its place in the request, which with `n` decides the numbers of its texts."""
    n: int = 1
    limit: int = 1
    """Tokens written at most; 0 only reads."""
    stop: tuple[str, ...] = ()
    streams: bool = False
    likeliest: int | None = None
    """How many of the likeliest tokens to list in each place, with the token's log-probability; None for neither."""
    scores_prompt: bool = False
    """Whether the prompt's tokens get log-probabilities too."""
    steering: tuple[Steering, ...] = ()
    """What is added to the values of its texts."""
    drafts: bool = False
    """Whether a draft may guess its tokens, where the server has one."""

    @property
    def edits(self) -> tuple[tuple[Direction, float], ...]:
        """What tells its values from those of others with the same tokens."""
        return tuple((one.direction, one.strength) for one in self.steering)


@dataclass(frozen=True)
class ScoredToken:
    """A token that was written, or read."""

    id: int
    offset: int = 0
    """Where its text, or the character that it continues, begins in the continuation."""
    log_prob: float | None = None
    likeliest: list[tuple[int, float]] = field(default_factory=list)
    """The likeliest tokens in its place, with their log-probabilities."""


@dataclass(frozen=True)
class Update:
    """The changes of one text since the last update; without a stream, the whole text."""

    choice: int
    text: str = ""
    tokens: list[ScoredToken] = field(default_factory=list)
    """Without the end token."""
    reason: FinishReason | None = None
    """Why the text has ended; None if it has not."""
    n_written: int = 0
    """Tokens written so far, an end token included."""
    prompt: list[ScoredToken] = field(default_factory=list)
    """The prompt's tokens, if the request asks for their log-probabilities."""
    n_known: int = 0
    """The prompt's tokens whose keys and values were there already."""


class Writing:
    """One text that is being written: a row of the batch."""

    def __init__(
        self, ticket: Ticket[Update], prompt: Prompt, sample: int, detokenizer: Detokenizer, *, n_known: int = 0
    ) -> None:
        self.ticket, self.prompt, self.detokenizer, self.n_known = ticket, prompt, detokenizer, n_known
        self.name = (prompt.number, sample)
        """The (input, sample) pair, from which its random numbers follow."""
        self.choice = prompt.number * prompt.n + sample
        self.sampler = Sampler(prompt.config, prompt.limit)
        self.is_controlled = _controls(prompt.config)
        self.is_read_along = prompt.streams or bool(prompt.stop) or prompt.likeliest is not None
        """Whether the text is needed before it has ended."""
        self.written: list[int] = []
        self.untold: list[ScoredToken] = []
        self.scored: list[ScoredToken] = []
        self.reason: FinishReason | None = None
        self.ahead: Speculation | None = None
        """What reads its tokens together with guesses, once it has been alone."""

    def history(self, device: torch.device) -> History:
        """The tokens read and written, 1 t."""
        ids: Tensor = torch.tensor([[*self.prompt.ids, *self.written]], device=device)
        return History(ids, torch.ones_like(ids, dtype=torch.bool), len(self.prompt.ids))

    def add(self, token: int, log_prob: float | None, likeliest: list[tuple[int, float]]) -> None:
        """Adds a token; sets `reason` if it is the last."""
        self.written.append(token)
        if token in self.prompt.config.end_ids:
            self.reason = "stop"
            return
        self.untold.append(ScoredToken(token, len(self.detokenizer.settled), log_prob, likeliest))
        if self.is_read_along and self.detokenizer.add([token]):
            self.reason = "stop"
        elif len(self.written) >= self.prompt.limit:
            self.reason = "length"

    def update(self) -> Update | None:
        """The next update, if there is one. Tokens come with the text that they belong to."""
        if self.reason is None and not self.prompt.streams:
            return None
        if not self.is_read_along:
            self.detokenizer.add([token.id for token in self.untold])
        text = self.detokenizer.take(last=self.reason is not None)
        if not text and self.reason is None:
            return None
        tokens, self.untold, scored, self.scored = self.untold, list[ScoredToken](), self.scored, list[ScoredToken]()
        return Update(self.choice, text, tokens, self.reason, len(self.written), scored, self.n_known)


def _controls(config: GenerationConfig) -> bool:
    """Whether the tokens of a text so far change its scores."""
    return (
        config.repetition_penalty != 1.0
        or bool(config.banned_ids)
        or bool(config.first_banned_ids)
        or config.no_repeat_ngram is not None
        or config.min_new_tokens > 0
        or config.forced_first_id is not None
        or config.forced_last_id is not None
    )
