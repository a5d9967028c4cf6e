"""generate() yields one event for each token. complete() generates for many inputs and returns only the results."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from clearhead.brief import brief
from clearhead.config import LanguageHead
from clearhead.errors import UserError
from clearhead.generation.decoding import Decoding, forget, no_gradients
from clearhead.generation.paths import Following, Paths, new_paths
from clearhead.generation.sampling import History
from clearhead.generation.search import BeamSearch, Hypothesis, Sampling, Search, Step, Stop
from clearhead.generation.settings import changed
from clearhead.generation.speculation import Drafter, Drafts, LookupDrafter, NetworkDrafter, Speculation
from clearhead.model import Tokens, Transformer
from clearhead.progress import counted
from clearhead.recipe.generation import GenerationConfig

BUDGET = 4096
"""Padded source or prompt tokens in a batch of `complete`, each counted once for each hypothesis."""


@dataclass(frozen=True)
class Finished:
    """The last event: for each input its n_best hypotheses, best first."""

    __repr__ = brief

    hypotheses: list[list[Hypothesis]]
    drafts: Drafts | None = None
    """How often guesses were right, with a draft."""


GenerationEvent = Step | Finished


Draft = Transformer | Literal["lookup"]


def generate(
    network: Transformer,
    prompts: Tokens | None = None,
    *,
    source: Tokens | None = None,
    config: GenerationConfig | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    stop: Stop | None = None,
    numbers: Sequence[int] | None = None,
    draft: Draft | None = None,
    scored: bool = True,
    **settings: object,
) -> Following[GenerationEvent]:
    """Yields one `Step` for each token, then `Finished`. The network is in evaluation mode only during a step.

    A step skips the network's Python code where that is known to change nothing (docs/inference.md); the `paths` of
    what is returned say how often.

    A decoder continues `prompts` (left-padded), or begins with the start token; with an encoder it first reads
    `source`, one row a prompt. Special tokens that the config names take precedence over bos_id, eos_id and pad_id.
    Inputs that are done leave the batch. `numbers` (default: their rows) identify the inputs and decide their samples,
    so that a text does not depend on its batch. A trace records each step as one forward pass.

    `draft` guesses tokens of a single text, so that fewer passes write the same one (speculation.py): a smaller network
    with the same vocabulary, or "lookup" in the text itself.

    Without `scored`, log-probabilities and scores of greedy texts and of single samples are NaN. A greedy text is then
    written faster, for it needs no logit but the largest (screening.py).

    `settings` change the config: temperature=0.5. Raises UserError, at the call, for an unknown setting, a prompt that
    is too long, an input that this network does not take, or a draft where there is more than one text.
    """
    config = changed(config or GenerationConfig(), settings).with_ids(start_id=bos_id, end_id=eos_id, pad_id=pad_id)
    prompts = _prompts(network, prompts, source, config)
    b, width = prompts.grid
    config = config.after(width)
    limit = network.decoder.config.max_length if network.decoder else None
    if limit is not None and width > limit:
        raise UserError(
            f"prompt: expected at most {limit} tokens, where this model's positions end, got {width};"
            " cut the prompt or use a longer model"
        )
    n_steps = config.max_new_tokens if limit is None else min(config.max_new_tokens, limit - width + 1)
    valid = torch.ones_like(prompts.ids, dtype=torch.bool) if prompts.valid is None else prompts.valid
    history = History(prompts.ids, valid, width)
    search: Search
    if config.beams > 1:
        search = BeamSearch(history, config, limit=n_steps, stop=stop)
    else:
        numbers = range(b) if numbers is None else numbers
        search = Sampling(history, config, limit=n_steps, stop=stop, numbers=numbers, scored=scored)
    drafter = None if draft is None else _drafter(network, draft, search)
    paths = new_paths()
    return Following(_events(network, prompts, source, search, drafter, paths), paths)


def _drafter(network: Transformer, draft: Draft, search: Search) -> Drafter:
    """What guesses the tokens of this search. Raises UserError if the draft cannot, or names something else."""
    if not isinstance(search, Sampling) or search.b * search.k > 1:
        what = f"beams={search.config.beams}" if search.config.beams > 1 else f"{search.b * search.k} at once"
        raise UserError(f"draft: expected one text, greedy or sampled, got {what}; leave out one of the two")
    check_draft(network, draft)
    if isinstance(draft, str):
        return LookupDrafter()
    assert network.decoder is not None
    size = network.decoder.lookup.num_embeddings
    return NetworkDrafter(draft, search.sampler, search.names[0], vocab_size=size)


def check_draft(network: Transformer, draft: Draft) -> None:
    """Raises UserError unless a draft can guess the tokens that this network writes."""
    if network.encoder is not None:
        raise UserError("draft: expected a network without an encoder; leave it out")
    if network.keeps_states or (not isinstance(draft, str) and draft.keeps_states):
        raise UserError("draft: expected networks of attention alone, because states forget no guess; leave it out")
    if isinstance(draft, str):
        if draft != "lookup":
            raise UserError(f'draft: expected a network or "lookup", got "{draft}"; load the model first')
        return
    if draft.decoder is None or draft.encoder is not None or not isinstance(draft.config.head, LanguageHead):
        raise UserError("draft: expected a network that continues texts, got one of another kind; leave it out")
    place, other = (next(one.parameters()).device for one in (network, draft))
    if place != other:
        raise UserError(f"draft: expected it on {place}, where the network is, got {other}; move it there")


def _prompts(network: Transformer, prompts: Tokens | None, source: Tokens | None, config: GenerationConfig) -> Tokens:
    """The first tokens of the decoder, on the network's device. Raises UserError if the inputs do not fit."""
    if network.decoder is None:
        raise UserError("generate: expected a network with a decoder, got an encoder, which writes nothing")
    if (source is None) != (network.encoder is None):
        has, got = ("an", "no") if network.encoder is not None else ("no", "a")
        raise UserError(f"generate: this network has {has} encoder, got {got} source")
    size, device = network.decoder.lookup.num_embeddings, network.decoder.device
    # A prompt needs no start token, and a config's default may lie outside the vocabulary.
    for name in (*(("start_id",) if prompts is None else ()), "forced_first_id", "forced_last_id"):
        if (token := dict(config)[name]) is not None and token >= size:
            raise UserError(f"generation.{name}: expected a token of the vocabulary, below {size}, got {token}")
    rows = 1 if source is None else source.ids.shape[0]
    if prompts is None:
        if config.start_id is None:
            raise UserError("generate: expected a prompt or a begin token (start_id), got neither")
        return Tokens(torch.full((rows, 1), config.start_id, device=device))
    if source is not None and prompts.grid[0] != rows:
        raise UserError(f"generate: expected one prompt a source, got {prompts.grid[0]} and {rows}")
    if prompts.rows is not None or (prompts.valid is not None and not prompts.valid[:, -1].all()):
        raise UserError("generate: expected prompts padded on the left: Tokens.pad(..., left=True)")
    return prompts.to(device)


def _events(
    network: Transformer,
    prompts: Tokens,
    source: Tokens | None,
    search: Search,
    drafter: Drafter | None,
    paths: Paths,
) -> Generator[GenerationEvent, None, None]:
    try:
        length = None if drafter else prompts.grid[1] + search.limit - 1
        greedy = search if isinstance(search, Sampling) and drafter is None and search.takes_largest else None
        slots = search.b * search.k
        decoding = Decoding(network, length=length, slots=slots, takes_largest=greedy is not None, paths=paths)
        logits = decoding.start(prompts, source, greedy.never if greedy else ()).repeat_interleave(search.k, 0)
        decoding.follow(torch.arange(search.b).repeat_interleave(search.k))
        ahead = None
        if drafter is not None:
            ahead = Speculation(decoding, drafter, limit=search.limit, repeats=search.config.temperature > 0)
        while True:
            with no_gradients():
                move = search.advance(logits)
            yield move.step
            if not len(move.tokens):
                break
            if move.follow is not None:
                decoding.follow(move.follow)
            if ahead is None:
                logits = decoding.feed(Tokens(move.tokens[:, None]), greedy.never if greedy else ())
                continue
            assert isinstance(search, Sampling)
            logits = ahead.feed(search.history)
            paths.guessed, paths.obstacle = ahead.drafts.n_guessed, ahead.obstacle
            search.proposal = ahead.proposal
        yield Finished(search.hypotheses(), ahead.drafts if ahead else None)
    finally:
        if network.training:
            forget(network)  # its weights are about to change


# --- many inputs --------------------------------------------------------------------------------------------


def in_batches(lengths: Sequence[int], *, budget: int) -> list[list[int]]:
    """Groups indices of inputs into batches of similar length, longest first.

    A batch has at most `budget` tokens, padding included, or a single input.
    """
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def complete(
    network: Transformer,
    prompts: Sequence[Sequence[int]] | None = None,
    *,
    source: Sequence[Sequence[int]] | None = None,
    config: GenerationConfig | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    stop: Stop | None = None,
    budget: int = BUDGET,
    scored: bool = True,
    **settings: object,
) -> list[list[Hypothesis]]:
    """The n_best hypotheses of each input, best first. Arguments are as in `generate`; lengths may differ."""
    config = changed(config or GenerationConfig(), settings).with_ids(start_id=bos_id, end_id=eos_id, pad_id=pad_id)
    found: dict[int, list[Hypothesis]] = {}
    events = completing(network, prompts, source=source, config=config, stop=stop, budget=budget, scored=scored)
    for batch, event in events:
        if isinstance(event, Finished):
            found |= zip(batch, event.hypotheses, strict=True)
    return [found[i] for i in range(len(found))]


def completing(
    network: Transformer,
    prompts: Sequence[Sequence[int]] | None = None,
    *,
    source: Sequence[Sequence[int]] | None = None,
    config: GenerationConfig,
    stop: Stop | None = None,
    budget: int = BUDGET,
    scored: bool = True,
) -> Iterator[tuple[list[int], GenerationEvent]]:
    """Each event of the batches of `complete`, one batch after another, with the indices of its inputs."""
    if prompts is not None and source is not None and len(prompts) != len(source):
        raise UserError(f"expected one prompt a source, got {len(prompts)} and {len(source)}")
    inputs = source if source is not None else prompts
    lengths = [1] if inputs is None else list(map(len, inputs))
    if not all(lengths):
        raise UserError(f"input {lengths.index(0) + 1}: expected at least one token, got none; leave it out")
    for batch in counted(in_batches(lengths, budget=budget // config.width), "writing"):
        for event in generate(
            network,
            None if prompts is None else Tokens.pad([prompts[i] for i in batch], left=True),
            source=None if source is None else Tokens.pad([source[i] for i in batch], packed=True),
            config=config,
            stop=stop,
            numbers=batch,
            scored=scored,
        ):
            yield batch, event
