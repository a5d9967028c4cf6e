"""Chat: the answers of an assistant in conversations, by a decoder alone (Ouyang et al. 2022, 3.5).

A conversation is written by the tokenizer's chat template, as in use. What the template adds to the text from one
message to the next says where an answer begins and ends.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import PositiveInt
from tokenizers import AddedToken

from clearhead.brief import brief, shorten
from clearhead.config import ModelConfig
from clearhead.data.bad_rows import BadRow
from clearhead.data.batches import DocumentSlice
from clearhead.data.sources import examples_of
from clearhead.data.splits import complete_splits
from clearhead.errors import UserError
from clearhead.generation.settings import changed
from clearhead.json_text import tabbed
from clearhead.model import Transformer
from clearhead.model.loss import IGNORED
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Data, HeldOut, HubDataset, Source, Table
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import ByteBPE, TokenizerConfig
from clearhead.tasks.evaluation import Evaluation, Sample
from clearhead.tasks.networks import BATCH_TOKENS, check_decoder, check_fits, total_loss
from clearhead.tasks.reading import PackedRows, RowsTask, complete_text
from clearhead.tasks.reports import SplitReport
from clearhead.tasks.scores import Score, perplexity
from clearhead.tasks.task import ExampleTask, Files, Prediction, Trained
from clearhead.text.chat import Message, render
from clearhead.text.special_tokens import with_special
from clearhead.text.tokenizers import Tokenizer

ANSWERS = "assistant"
"""The role whose messages are learnt."""
ROLES = ("system", "user", ANSWERS)
TEMPLATE = (
    "{% if bos_token is defined and bos_token != eos_token %}{{ bos_token }}{% endif %}"
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
"""The template of a tokenizer that has none: each message after its role, with the end token after it."""
EXAMPLE = '{"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}'


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in order."""

    messages: tuple[Message, ...]
    where: str
    """Its place, such as `chats.jsonl:17`."""
    is_for_last: bool = False
    """Whether only the last answer is learnt."""

    @property
    def answers(self) -> list[int]:
        """The numbers of the messages that are learnt."""
        found = [i for i, message in enumerate(self.messages) if message["role"] == ANSWERS]
        return found[-1:] if self.is_for_last else found

    @property
    def labels(self) -> tuple[str, ...]:
        """No labels: any conversation may be held out."""
        return ()

    @property
    def normalized(self) -> str:
        """Equal for equal conversations alone."""
        return json.dumps(self.messages, sort_keys=True, ensure_ascii=False)


def read_conversations(source: Source) -> list[Conversation]:
    """Every conversation of a source, in order. Raises UserError, which names the row, for any other value."""
    if not isinstance(source, Table | HubDataset) or source.text is None:
        raise UserError(f'{source.kind}: expected a table with a column of messages, got none; try text = "messages"')
    text = source.text

    def make(where: str, cells: list[object]) -> Conversation:
        return Conversation(_messages(cells[0], f"{where}:{text}"), where)

    return [*examples_of(source, [text], make)]


def _messages(cell: object, where: str) -> tuple[Message, ...]:
    if not isinstance(cell, list) or not cell:
        raise BadRow(f"{where}: expected a list of messages, got {json.dumps(cell)[:60]}; write {EXAMPLE}")
    for number, message in enumerate(cell, start=1):
        if not isinstance(message, dict):
            raise BadRow(f"{where}: message {number}: expected an object, got {json.dumps(message)[:60]}")
        for name in ("role", "content"):
            if not isinstance(message.get(name), str):
                got = json.dumps(message.get(name))[:60]
                raise BadRow(f"{where}: message {number}: expected text in {name!r}, got {got}; write {EXAMPLE}")
    return tuple(cell)


# --- as ids -------------------------------------------------------------------------------------------------------


def with_roles(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer with the default template and a token for each of its roles."""
    tokens = [AddedToken(f"<|{role}|>", normalized=False) for role in ROLES]
    return with_special(tokenizer, tokens, chat_template=TEMPLATE)


def with_template(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, with the default template if it has none. Its vocabulary stays."""
    if tokenizer.chat_template is not None:
        return tokenizer
    tokenizer.need("eos")
    return with_special(tokenizer, [], chat_template=TEMPLATE)


class Rewritten(UserError):
    """A template writes a message in another way once others follow."""


def cut_where_rewritten(conversations: Sequence[Conversation], tokenizer: Tokenizer) -> list[Conversation]:
    """The conversations unchanged, or one for each answer, which ends with that answer and teaches only it.

    They are cut if the template rewrites earlier messages, as those do that drop the reasoning before old answers: the
    first conversation of several answers tells.
    """
    several = next((one for one in conversations if len(one.answers) > 1), None)
    try:
        if several is not None:
            write(several, tokenizer)
    except Rewritten:
        return [part for one in conversations for part in _cut(one)]
    return [*conversations]


def _cut(one: Conversation) -> list[Conversation]:
    return [Conversation(one.messages[: i + 1], one.where, is_for_last=True) for i in one.answers] or [one]


@dataclass(frozen=True)
class Turns:
    """A conversation as ids."""

    __repr__ = brief

    ids: np.ndarray
    is_answer: np.ndarray
    """Whether each id belongs to an answer, with the token that ends it."""

    @classmethod
    def of(cls, conversation: Conversation, tokenizer: Tokenizer) -> "Turns":
        """Raises UserError as `write` does."""
        text, spans = write(conversation, tokenizer)
        ids = np.array(tokenizer.encode(text), np.int64)
        is_answer = np.zeros(len(ids), dtype=bool)
        begins = np.array([begin for begin, _ in tokenizer.offsets(text)], np.int64)
        for start, stop in spans:
            is_answer |= (start <= begins) & (begins < stop)
        return cls(ids, is_answer)

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, n: int) -> "Turns":
        """Its first tokens, `n` at most."""
        return Turns(self.ids[:n], self.is_answer[:n])

    @property
    def n_trained(self) -> int:
        """Tokens that are learnt. The first one has none before it to be predicted from."""
        return int(self.is_answer[1:].sum())


@dataclass(frozen=True)
class Answers:
    """Conversations with a token to train on within the first `limit`, cut to these."""

    __repr__ = brief

    conversations: Sequence[Conversation]
    turns: Sequence[Turns]
    lengths: Sequence[int]
    """Tokens of each before cutting."""
    untrained: tuple[str, ...]
    """The places of the conversations that are left out, because no token of an answer is left."""

    @classmethod
    def of(cls, conversations: Sequence[Conversation], tokenizer: Tokenizer, limit: int) -> "Answers":
        """Encodes conversations."""
        every = [Turns.of(one, tokenizer) for one in conversations]
        turns = [one.first(limit) for one in every]
        kept = [i for i, one in enumerate(turns) if one.n_trained]
        untrained = tuple(conversations[i].where for i, one in enumerate(turns) if not one.n_trained)
        return cls(conversations, turns, [*map(len, every)], untrained).take(kept)

    def take(self, rows: Sequence[int]) -> "Answers":
        """The conversations with these numbers."""
        conversations, turns = [self.conversations[i] for i in rows], [self.turns[i] for i in rows]
        return Answers(conversations, turns, [self.lengths[i] for i in rows], self.untrained)

    @property
    def sizes(self) -> list[int]:
        """The tokens of each conversation."""
        return [*map(len, self.turns)]

    def require(self, name: str, limit: int) -> None:
        """Raises UserError, which begins with `name`, if no conversation has a token to train on."""
        if not self.turns:
            raise UserError(
                f"{name}: expected an answer of the assistant in the first {limit} tokens of a conversation, got none:"
                f" {shorten(self.untrained)}; add answers, or try a higher data.length"
            )


def write(conversation: Conversation, tokenizer: Tokenizer) -> tuple[str, list[tuple[int, int]]]:
    """The text of a conversation, and [start, stop) in characters of each answer that is learnt.

    Raises UserError, which names the place, if the template rewrites what it wrote for earlier messages.
    """
    template, special, messages = tokenizer.chat_template or TEMPLATE, tokenizer.special_tokens, conversation.messages
    try:
        text = render(template, messages, special=special)
        spans: list[tuple[int, int]] = []
        for i in conversation.answers:
            after = render(template, messages[: i + 1], special=special)
            before = after[: max(0, after.find(str(messages[i]["content"])))]
            if i:
                before = render(template, messages[:i], add_generation_prompt=True, special=special)
            if not (text.startswith(before) and text.startswith(after) and after.startswith(before)):
                raise Rewritten("expected a chat template that adds message after message, got one that rewrites")
            spans.append((len(before), len(before) + len(after[len(before) :].rstrip())))
    except UserError as error:
        raise type(error)(f"{conversation.where}: {error}") from None
    return text, spans


N_SAMPLES = 2
USUAL_LENGTH = 512
"""Tokens of a row of a model without a limit."""


class ChatData(Data):
    """Conversations, in a column of a table or dataset: lists of messages with `role` and `content`."""

    test: Source | None = None
    held_out: HeldOut = 0.1
    """Share of the training conversations, or their number, that is held out for validation if `valid` is None."""
    length: PositiveInt = 512
    """Tokens of a row, which holds several short conversations. Longer ones are cut."""


class ChatRecipe(Recipe):
    """How to train a model that answers."""

    task: Literal["chat"]
    data: ChatData
    tokenizer: TokenizerConfig = ByteBPE()
    model: ModelChoice = ModelChoice(preset="nano")
    generation: GenerationConfig = GenerationConfig(max_new_tokens=256)


class Conversations(PackedRows):
    """Rows of conversations, in which each cell is labelled with the next token of an answer."""

    def __init__(self, data: Answers, length: int) -> None:
        largest = max(int(one.ids.max()) for one in data.turns)
        super().__init__([size - 1 for size in data.sizes], length, largest=largest)
        self.turns = data.turns

    def row(self, epoch: int, pieces: Sequence[DocumentSlice], number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        turns = [self.turns[piece.document] for piece in pieces]
        return [(one.ids[:-1], np.where(one.is_answer, one.ids, IGNORED)[1:]) for one in turns]


@dataclass(eq=False)
class Chat(RowsTask, ExampleTask[ChatRecipe, Conversation, Answers]):
    """p(token of an answer | the conversation before it)."""

    recipe = ChatRecipe
    files = Files("a table of conversations", {"kind": "table", "path": "--data"})
    use = 'predict {} "A question?"'
    main_score = "loss"
    higher_is_better = False
    unit = "trained tokens"

    tokenizer: Tokenizer
    _: KW_ONLY
    length: int
    generation: GenerationConfig
    max_tokens: int = BATCH_TOKENS

    def __post_init__(self) -> None:
        self.generation = changed(self.generation, {"temperature": 0})
        self.batch_size = max(1, self.max_tokens // self.length)

    # --- data

    @classmethod
    def read(cls, source: Source, data: ChatData) -> list[Conversation]:
        return read_conversations(source)

    @classmethod
    def split(cls, splits: dict[str, list[Conversation]], data: ChatData) -> dict[str, list[Conversation]]:
        expected = "conversations to hold some out"
        return complete_splits(splits, data.held_out, expected=expected, by_label=False, tested=False)

    @classmethod
    def from_recipe(
        cls, recipe: ChatRecipe, splits: Mapping[str, Sequence[Conversation]], tokenizer: Tokenizer | None
    ) -> Self:
        if tokenizer is None:
            contents = (str(message["content"]) for one in splits["train"] for message in one.messages)
            tokenizer = with_roles(Tokenizer.train(contents, recipe.tokenizer))
        size, generation = recipe.training.max_tokens, recipe.generation
        return cls(with_template(tokenizer), length=recipe.data.length, max_tokens=size, generation=generation)

    @classmethod
    def from_model(cls, model: Trained, recipe: ChatRecipe | None) -> Self:
        length = recipe.data.length if recipe else model.network.config.output.max_length or USUAL_LENGTH
        return cls(with_template(model.tokenizer), length=length, generation=model.generation)

    def known(self, examples: list[Conversation]) -> list[Conversation]:
        return cut_where_rewritten(examples, self.tokenizer)

    def encode(self, examples: Sequence[Conversation]) -> Answers:
        return Answers.of(examples, self.tokenizer, self.length)

    @classmethod
    def content(cls, example: Conversation) -> Sequence[str]:
        return (example.normalized,)

    def describe(
        self, name: str, examples: Sequence[Conversation], data: Answers, train: Sequence[Conversation]
    ) -> SplitReport:
        """The report on a split. Raises UserError if no conversation has a token to train on."""
        data.require(name, self.length)
        texts, known = [one.normalized for one in examples], {one.normalized for one in train}
        n, n_tokens, n_trained = len(data.turns), sum(data.sizes), sum(one.n_trained for one in data.turns)
        n_cut, n_shared = sum(length > self.length for length in data.lengths), sum(text in known for text in texts)
        cut = f"; {n_cut:,} cut to {self.length:,}" if n_cut else ""
        each = f"{n_tokens / n:.1f} tokens each, {n_trained / n:.1f} of them trained, at most {max(data.lengths):,}"
        findings = {
            "n_untrained": (len(data.untrained), f"without a token to train on, left out: {shorten(data.untrained)}"),
            "n_duplicates": (len(texts) - len({*texts}), "duplicates, kept"),
            "n_shared": (n_shared, f"({n_shared / len(examples):.1%}) are also in train"),
        }
        sizes = {"n_read": len(examples), "n_tokens": n_tokens, "n_trained": n_trained, "n_cut": n_cut}
        line, ids = (
            f"{name}: {n:,} of {len(examples):,} conversations, {each}{cut}",
            (one.ids.tolist() for one in data.turns),
        )
        return SplitReport.of_texts([line], findings, ids, self.tokenizer, name=name, **sizes)

    # --- training

    @cached_property
    def rows(self) -> "Conversations":
        """The rows of the training data."""
        return Conversations(self.train, self.length)

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        check_decoder(config, "to answer", where=where, remedy=remedy)

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset nano")
        turns = [*self.train.turns, *self.valid.turns]
        largest = max(int(one.ids.max()) for one in turns)
        check_fits(config, (max(map(len, turns)), largest), remedy="try a lower data.length")
        return config

    # --- use

    def score(self, network: Transformer, data: Answers) -> Evaluation:
        """Measures the mean loss over the tokens of the answers, and writes some answers as samples."""
        data.require("data", self.length)
        rows = Conversations(data, self.length)
        nats, n = total_loss(network, rows.everything(self.batch_size), -(-len(rows) // self.batch_size))
        scores = Score("loss", nats / n, unit="nats a token of an answer"), perplexity(nats, n)
        samples = [self.sample(network, one) for one in data.conversations[:N_SAMPLES]]
        return Evaluation(scores, tuple(samples), loss=nats / n)

    def sample(self, network: Transformer, conversation: Conversation) -> Sample:
        """A sample: the first answer of a conversation beside the one that the network writes."""
        text, (first, *_) = write(conversation, self.tokenizer)
        before, answer = text[: first[0]], text[slice(*first)]
        prompt = self.tokenizer.encode(before)[-(network.config.output.max_length or 1 << 30) + 1 :]
        output = complete_text(network, self.tokenizer, prompt, self.generation)
        return Sample(str(conversation.messages[0]["content"]), output, answer)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Answers each text, which is the first message of a user."""
        for text in texts:
            answer = "".join(model.chat([{"role": "user", "content": text}]))
            yield Prediction(tabbed(answer), {"messages": [{"role": ANSWERS, "content": answer}]})
