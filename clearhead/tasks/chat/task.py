"""Chat: the answers of an assistant in conversations, by a decoder alone (Ouyang et al. 2022, 3.5)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, Self

import numpy as np
import torch
from pydantic import PositiveInt

from clearhead.config import ModelConfig
from clearhead.data.batches import Batches, pack_documents
from clearhead.data.splits import SplitsReport
from clearhead.generation.settings import changed
from clearhead.json_text import tabbed
from clearhead.model import Transformer
from clearhead.model.loss import IGNORED
from clearhead.randomness import key
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Data, HeldOut, Source
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import ByteBPE, TokenizerConfig
from clearhead.tasks.chat.data import (
    ANSWERS,
    Answers,
    ChatSplit,
    Conversation,
    chat_split,
    cut_where_rewritten,
    read_conversations,
    split_conversations,
    with_roles,
    with_template,
    write,
)
from clearhead.tasks.evaluation import Evaluation, Sample
from clearhead.tasks.networks import BATCH_TOKENS, check_decoder, check_fits, total_loss
from clearhead.tasks.reading import complete_text, side_by_side
from clearhead.tasks.scores import Score, perplexity
from clearhead.tasks.task import Batch, ExampleTask, Files, HeadLoss, Prediction, Trained
from clearhead.text.tokenizers import Tokenizer

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


class Chat(HeadLoss, ExampleTask[ChatRecipe, Conversation, Answers]):
    """p(token of an answer | the conversation before it)."""

    recipe = ChatRecipe
    files = Files("a table of conversations", {"kind": "table", "path": "--data"})
    use = 'predict {} "A question?"'
    main_score = "loss"
    higher_is_better = False
    unit = "trained tokens"

    def __init__(
        self, tokenizer: Tokenizer, *, length: int, generation: GenerationConfig, max_tokens: int = BATCH_TOKENS
    ) -> None:
        self.tokenizer, self.length = tokenizer, length
        self.generation = changed(generation, {"temperature": 0})
        self.batch_size = max(1, max_tokens // length)

    # --- data

    @classmethod
    def read(cls, source: Source, data: ChatData) -> list[Conversation]:
        return read_conversations(source)

    @classmethod
    def split(cls, splits: dict[str, list[Conversation]], data: ChatData) -> dict[str, list[Conversation]]:
        return split_conversations(splits, data.held_out)

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
        return (example.text,)

    def report(
        self, splits: Mapping[str, Sequence[Conversation]], encoded: Mapping[str, Answers]
    ) -> SplitsReport[ChatSplit]:
        limit, train = self.length, splits["train"]
        counts = tuple(chat_split(name, one, encoded[name], limit=limit, train=train) for name, one in splits.items())
        return SplitsReport[ChatSplit](vocab_size=self.tokenizer.vocab_size, max_length=limit, splits=counts)

    # --- training

    def packed(self, data: Answers) -> Sequence[Sequence[int]]:
        """The conversations that each row packs, by number."""
        lengths = [size - 1 for size in data.sizes]
        return [[piece.document for piece in row] for row in pack_documents(lengths, self.length, seed=0, epoch=0)]

    @cached_property
    def rows(self) -> Sequence[Sequence[int]]:
        """The rows of the training data."""
        return self.packed(self.train)

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        order = np.random.default_rng(key(seed, "rows", epoch)).permutation(len(self.rows))
        return Batches.of_size(order, self.batch_size)

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.batch(self.train, [self.rows[i] for i in examples])

    def batch(self, data: Answers, rows: Sequence[Sequence[int]]) -> Batch:
        """Rows of conversations as one batch, in which each cell is labelled with the next token of an answer."""
        turns = [[data.turns[i] for i in row] for row in rows]
        tokens = side_by_side([[one.ids[:-1] for one in row] for row in turns])
        labels = np.concatenate([np.where(one.is_answer, one.ids, IGNORED)[1:] for row in turns for one in row])
        return Batch((tokens,), torch.from_numpy(labels), n_ignored=int((labels == IGNORED).sum()))

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
        rows = self.packed(data)
        starts = range(0, len(rows), self.batch_size)
        batches = (self.batch(data, rows[i : i + self.batch_size]) for i in starts)
        nats, n = total_loss(network, batches, len(starts))
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
