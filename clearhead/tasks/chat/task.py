"""Chat: the answers of an assistant in conversations, by a decoder alone (Ouyang et al. 2022, 3.5)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import PositiveInt

from clearhead.config import ModelConfig
from clearhead.data.batches import Batches, pack_documents
from clearhead.data.corpus import Encoded
from clearhead.data.splits import fingerprint
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
    ChatReport,
    Conversation,
    Turns,
    chat_split,
    conversation_splits,
    read_conversations,
    split_where_rewritten,
    with_roles,
    with_template,
    written,
)
from clearhead.tasks.evaluation import Evaluation, Sample, part_of
from clearhead.tasks.measuring import continued, total_loss
from clearhead.tasks.reading import side_by_side
from clearhead.tasks.scores import Score, perplexity
from clearhead.tasks.task import (
    Batch,
    Files,
    HeadTask,
    Prediction,
    Prepared,
    Trained,
    check_decoder,
    check_length,
    check_vocabulary,
)
from clearhead.text.tokenizers import Tokenizer

N_SAMPLES = 2


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


@dataclass(frozen=True)
class Answers:
    """Conversations with a token to train on, as ids."""

    conversations: Sequence[Conversation]
    turns: Sequence[Turns]

    @classmethod
    def of(cls, conversations: Sequence[Conversation], turns: Sequence[Turns], *, limit: int) -> "Answers":
        """The conversations that have a token of an answer after their first token and within the first `limit`."""
        kept = [i for i, one in enumerate(turns) if one.is_answer[1:limit].any()]
        return cls(conversations, turns).taken(kept)

    def taken(self, rows: Sequence[int]) -> "Answers":
        """The conversations with these numbers."""
        return Answers([self.conversations[i] for i in rows], [self.turns[i] for i in rows])


class Chat(HeadTask[ChatRecipe]):
    """p(token of an answer | the conversation before it)."""

    recipe = ChatRecipe
    files = Files("a table of conversations", {"kind": "table", "path": "--data"})
    use = 'predict {} "A question?"'
    main_score = "loss"
    higher_is_better = False
    unit = "trained tokens"

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: Answers,
        valid: Answers,
        *,
        length: int,
        max_tokens: int,
        generation: GenerationConfig,
    ) -> None:
        self.tokenizer, self.train, self.valid, self.length = tokenizer, train, valid, length
        self.generation = changed(generation, {"temperature": 0})
        self.batch_size = max(1, max_tokens // length)
        self.rows = self.packed(train)

    def packed(self, data: Answers) -> Sequence[Sequence[int]]:
        """The conversations that each row packs, by number."""
        lengths = [min(len(one.ids), self.length) - 1 for one in data.turns]
        return [[piece.document for piece in row] for row in pack_documents(lengths, self.length, seed=0, epoch=0)]

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        order = np.random.default_rng(key(seed, "rows", epoch)).permutation(len(self.rows))
        return Batches.of_size(order, self.batch_size)

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.batch(self.train, [self.rows[i] for i in examples])

    def batch(self, data: Answers, rows: Sequence[Sequence[int]]) -> Batch:
        """Rows of conversations as one batch, in which each cell is labelled with the next token of an answer."""
        turns = [[data.turns[i] for i in row] for row in rows]
        tokens = side_by_side([[one.ids[: self.length][:-1] for one in row] for row in turns])
        each = [np.where(one.is_answer, one.ids, IGNORED)[: self.length][1:] for row in turns for one in row]
        labels = np.concatenate(each)
        return Batch((tokens,), torch.from_numpy(labels), n_ignored=int((labels == IGNORED).sum()))

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        check_decoder(config, "to answer", where=where, remedy=remedy)

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset nano")
        turns = [*self.train.turns, *self.valid.turns]
        longest = min(self.length, max(len(one.ids) for one in turns))
        check_length("decoder", config.output, longest, remedy="try a lower data.length")
        check_vocabulary("decoder", config.output, max(int(one.ids.max()) for one in turns))
        return config

    def evaluate(self, network: Transformer) -> Evaluation:
        """Measures the mean loss over the tokens of the answers, and writes some answers as samples."""
        valid = part_of(self.valid, self.few)
        rows = self.packed(valid)
        starts = range(0, len(rows), self.batch_size)
        batches = (self.batch(valid, rows[i : i + self.batch_size]) for i in starts)
        nats, n = total_loss(network, batches, len(starts))
        scores = Score("loss", nats / n, unit="nats a token of an answer"), perplexity(nats, n)
        samples = [self.sample(network, one) for one in self.valid.conversations[:N_SAMPLES]]
        return Evaluation(scores, tuple(samples), loss=nats / n)

    def judged_sizes(self) -> Sequence[int]:
        return [min(len(one.ids), self.length) for one in self.valid.turns]

    def sample(self, network: Transformer, conversation: Conversation) -> Sample:
        """A sample: the first answer of a conversation beside the one that the network writes."""
        text, (first, *_) = written(conversation, self.tokenizer)
        before, answer = text[: first[0]], text[slice(*first)]
        prompt = self.tokenizer.encode(before)[-(network.config.output.max_length or 1 << 30) + 1 :]
        said = continued(network, self.tokenizer, prompt, self.generation)
        return Sample(str(conversation.messages[0]["content"]), said, answer)

    @classmethod
    def prepared(cls, recipe: ChatRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data, splits = recipe.data, conversation_splits(recipe.data, recipe.data.held_out)
        if tokenizer is None:
            contents = (str(message["content"]) for one in splits["train"] for message in one.messages)
            tokenizer = with_roles(Tokenizer.train(contents, recipe.tokenizer))
        tokenizer = with_template(tokenizer)
        splits = split_where_rewritten(splits, tokenizer)
        turns = {name: [Turns.of(one, tokenizer) for one in split] for name, split in splits.items()}
        limit, train = data.length, splits["train"]
        reports = [chat_split(name, one, turns[name], limit=limit, train=train) for name, one in splits.items()]
        report = ChatReport(vocab_size=tokenizer.vocab_size, max_length=limit, splits=tuple(reports))
        own, valid = (Answers.of(splits[name], turns[name], limit=limit) for name in ("train", "valid"))
        size = recipe.training.max_tokens
        task = cls(tokenizer, own, valid, length=limit, max_tokens=size, generation=recipe.generation)
        sha = {name: fingerprint([one.text] for one in split) for name, split in splits.items()}
        return Prepared(task, Encoded(tokenizer, own, valid, report, sha))

    @classmethod
    def measured(
        cls, model: Trained, recipe: ChatRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        if source is not None:
            conversations = read_conversations(source)
        else:
            assert recipe is not None
            splits = conversation_splits(recipe.data, recipe.data.held_out)
            conversations = splits.get("test", splits["valid"])
        limit = recipe.data.length if recipe else model.network.config.output.max_length or 512
        tokenizer = with_template(model.tokenizer)
        conversations = split_where_rewritten({"": conversations}, tokenizer)[""]
        turns = [Turns.of(one, tokenizer) for one in conversations]
        chat_split("data", conversations, turns, limit=limit, train=())
        found = Answers.of(conversations, turns, limit=limit)
        return cls(tokenizer, found, found, length=limit, max_tokens=8192, generation=model.generation).evaluate(
            model.network
        )

    @classmethod
    def predicted(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Answers each text, which is the first message of a user."""
        for text in texts:
            answer = "".join(model.chat([{"role": "user", "content": text}]))
            yield Prediction(tabbed(answer), {"messages": [{"role": ANSWERS, "content": answer}]})
