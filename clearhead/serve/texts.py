"""Prompts and the texts that are being written: their requests, edits, scores and updates."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.analysis.steering import Direction
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.generation import History, Sampler
from clearhead.generation.sampling import draw, uniform
from clearhead.generation.speculation import Speculation
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.recipe.generation import GenerationConfig
from clearhead.serve.worker import Ticket
from clearhead.text.detokenizer import Detokenizer
from clearhead.trace import Edit, edited


class Steering(NamedTuple):
    """A direction with a strength, which a request asks for."""

    direction: Direction
    strength: float


@contextmanager
def steered(network: Transformer, rows: Sequence[Sequence[Steering]], tokens: Tokens) -> Iterator[None]:
    """Adds to each row of a batch its own directions while the block runs. A row without any keeps its bits."""
    addresses = {one.direction.at for row in rows for one in row}
    if not addresses:
        yield
        return
    edits: dict[str, Edit] = {at: _added(at, rows, tokens) for at in addresses}
    with edited(network, edits):
        yield


def _added(at: str, rows: Sequence[Sequence[Steering]], tokens: Tokens) -> Callable[[Tensor], Tensor]:
    """The edit of the value at an address: b t d, or m d where the batch is packed."""
    own = {
        i: torch.stack([one.direction.vector * one.strength for one in found]).sum(0)
        for i, row in enumerate(rows)
        if (found := [one for one in row if one.direction.at == at])
    }
    index, changes = torch.tensor([*own]), torch.stack([*own.values()])

    def edit(value: Tensor) -> Tensor:
        added = changes.to(value)
        if value.ndim == 3:
            value[index] += added[:, None]
            return value
        assert tokens.rows is not None
        row = F.pad(tokens.rows // tokens.grid[1], (0, len(value) - len(tokens.rows)), value=-1)
        for i, change in zip(own, added, strict=True):
            value[row == i] += change
        return value

    return edit


def check(network: Transformer, direction: Direction, name: str) -> None:
    """Raises UserError, which begins with `name`, unless the direction fits a value that serving can edit."""
    assert network.decoder is not None
    tokens = Tokens(torch.zeros(1, 1, dtype=torch.long, device=network.decoder.device))
    try:
        with Evaluating(network), torch.inference_mode(), edited(network, direction.edit()):
            network.decoder(tokens)
    except UserError as error:
        raise UserError(f"{name}: expected a direction that fits the model; {error}") from None


FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Prompt:
    """One prompt of a request, with `n` continuations."""

    __repr__ = brief

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
    pictures: Tensor | None = field(default=None, compare=False)
    """n c y x: the pictures within the text, which is then read alone and at once."""
    grids: Tensor | None = field(default=None, compare=False)
    """n 2: the rows and columns of their patches, if they have any size."""


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


CONTROLS = ("repetition_penalty", "banned_ids", "first_banned_ids", "no_repeat_ngram", "min_new_tokens")
CONTROLS += ("forced_first_id", "forced_last_id")
"""Settings by which the tokens of a text so far change its scores."""
PLAIN = GenerationConfig()


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
        self.is_controlled = any(getattr(prompt.config, name) != getattr(PLAIN, name) for name in CONTROLS)
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


Scored = tuple[float | None, list[tuple[int, float]]]
"""A token's log-probability and the likeliest tokens in its place, if a request asks for them."""


def choose(logits: Tensor, rows: Sequence[Writing]) -> list[int | None]:
    """n v -> each row's next token, independent of the other rows; None for a row whose logits are not finite."""
    scores = logits.float()
    if any(row.is_controlled for row in rows):
        each = zip(rows, scores.split(1), strict=True)
        scores = torch.cat(
            [row.sampler.control(own, row.history(own.device)) if row.is_controlled else own for row, own in each]
        )
    best, tokens = scores.max(-1)
    groups: dict[tuple[float | int | None, ...], list[int]] = {}
    for i, row in enumerate(rows):
        config = row.prompt.config
        if row.ahead is not None and row.ahead.proposal is not None:
            tokens[i] = row.sampler.settle(scores[i : i + 1], row.name, len(row.written), *row.ahead.proposal)[0]
        elif config.temperature > 0:
            groups.setdefault((config.temperature, config.top_k, config.top_p, config.min_p), []).append(i)
    for alike in groups.values():
        index = torch.tensor(alike, device=scores.device)
        tokens[index] = _sampled(scores if len(alike) == len(rows) else scores[index], [rows[i] for i in alike])
    finite = best.isfinite().tolist()
    return [token if good else None for token, good in zip(tokens.tolist(), finite, strict=True)]


def _sampled(scores: Tensor, rows: Sequence[Writing]) -> Tensor:
    """n v -> n, for rows with the same top-k, top-p and min-p."""
    chances = [uniform(row.prompt.config.seed, "sample", *row.name, len(row.written)) for row in rows]
    probabilities = Sampler(rows[0].prompt.config).narrow(scores).softmax(-1)
    return draw(probabilities, chances)


def scored(logits: Tensor, tokens: Sequence[int], n_likeliest: int) -> list[Scored]:
    """n v and the token chosen in each row -> its log-probability and the likeliest tokens."""
    log_probs = logits.float().log_softmax(-1)
    chosen = log_probs.gather(1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0].tolist()
    values, ids = log_probs.topk(min(n_likeliest, logits.shape[-1]))
    pairs = [list(zip(*pair, strict=True)) for pair in zip(ids.tolist(), values.tolist(), strict=True)]
    return list(zip(chosen, pairs, strict=True))
