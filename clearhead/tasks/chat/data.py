"""Conversations as ids, with the tokens of the assistant's answers marked. Imports no torch.

A conversation is written by the tokenizer's chat template, as in use. What the template adds to the text from one
message to the next says where an answer begins and ends.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import AddedToken

from clearhead.brief import brief
from clearhead.config import Config
from clearhead.data.sources import cells_of
from clearhead.errors import UserError
from clearhead.randomness import key
from clearhead.recipe.data import SPLITS, Data, HeldOut, HubDataset, Source, Table, share_of
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
    def text(self) -> str:
        """Equal for equal conversations alone."""
        return json.dumps(self.messages, sort_keys=True, ensure_ascii=False)


def read_conversations(source: Source) -> list[Conversation]:
    """Every conversation of a source, in order. Raises UserError, which names the row, for one that is none."""
    if not isinstance(source, Table | HubDataset) or source.text is None:
        raise UserError(f'{source.kind}: expected a table with a column of messages, got none; try text = "messages"')
    cells = cells_of(source, [source.text])
    return [Conversation(_messages(cell, f"{where}:{source.text}"), where) for where, (cell,) in cells]


def _messages(cell: object, where: str) -> tuple[Message, ...]:
    if not isinstance(cell, list) or not cell:
        raise UserError(f"{where}: expected a list of messages, got {json.dumps(cell)[:60]}; write {EXAMPLE}")
    for number, message in enumerate(cell, start=1):
        if not isinstance(message, dict):
            raise UserError(f"{where}: message {number}: expected an object, got {json.dumps(message)[:60]}")
        for name in ("role", "content"):
            if not isinstance(message.get(name), str):
                got = json.dumps(message.get(name))[:60]
                raise UserError(f"{where}: message {number}: expected text in {name!r}, got {got}; write {EXAMPLE}")
    return tuple(cell)


def conversation_splits(data: Data, held_out: HeldOut) -> dict[str, list[Conversation]]:
    """The splits of a recipe's data. Without a source for validation, a share of the training conversations is for it.

    Equal conversations are in one split. The choice depends on the conversations alone, not on their order.
    """
    splits = {split: read_conversations(source) for split, source in data.sources.items()}
    if "valid" not in splits:
        train = splits["train"]
        texts = sorted({one.text for one in train}, key=lambda text: key("held out", text))
        if len(texts) < 10:
            raise UserError(
                f"data.train: expected at least 10 conversations to hold some out, got {len(texts)}; give data.valid"
            )
        out = {*texts[: max(1, round(share_of(held_out, len(texts), "conversations") * len(texts)))]}
        splits |= {
            "train": [one for one in train if one.text not in out],
            "valid": [one for one in train if one.text in out],
        }
    return {split: splits[split] for split in SPLITS if split in splits}


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


def split_where_rewritten(
    splits: Mapping[str, Sequence[Conversation]], tokenizer: Tokenizer
) -> dict[str, list[Conversation]]:
    """The conversations unchanged, or one for each answer, which ends with that answer and teaches only it.

    They are cut if the template rewrites earlier messages, as those do that drop the reasoning before old answers: the
    first conversation of several answers tells.
    """
    several = next((one for split in splits.values() for one in split if len(one.answers) > 1), None)
    try:
        if several is not None:
            written(several, tokenizer)
    except Rewritten:
        return {name: [part for one in split for part in _cut(one)] for name, split in splits.items()}
    return {name: [*split] for name, split in splits.items()}


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
        """Raises UserError as `written` does."""
        text, spans = written(conversation, tokenizer)
        ids = np.array(tokenizer.encode(text), np.int64)
        is_answer = np.zeros(len(ids), dtype=bool)
        begins = np.array([begin for begin, _ in tokenizer.offsets(text)], np.int64)
        for start, stop in spans:
            is_answer |= (start <= begins) & (begins < stop)
        return cls(ids, is_answer)


def written(conversation: Conversation, tokenizer: Tokenizer) -> tuple[str, list[tuple[int, int]]]:
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


MOST_NAMED = 5
"""Conversations that are named."""


class ChatSplit(Config):
    """One split."""

    name: str
    n_read: int
    n_tokens: int
    n_trained: int
    """Tokens of answers, which the network learns to write."""
    max_length: int
    n_cut: int
    """Conversations of more tokens than the limit, of which only the beginning is read."""
    untrained: tuple[str, ...]
    """The places of those that are left out, because no token of an answer is left."""
    n_duplicates: int
    n_shared: int
    """Conversations that are also in training."""

    def lines(self, limit: int) -> list[str]:
        """The findings as text."""
        n = self.n_read - len(self.untrained)
        each = f"{self.n_tokens / n:.1f} tokens each, {self.n_trained / n:.1f} of them trained"
        cut = f"; {self.n_cut:,} cut to {limit:,}" if self.n_cut else ""
        lines = [f"{self.name}: {n:,} of {self.n_read:,} conversations, {each}, at most {self.max_length:,}{cut}"]
        if self.untrained:
            lines.append(f"  {len(self.untrained):,} without a token to train on, left out: {named(self.untrained)}")
        if self.n_duplicates:
            lines.append(f"  {self.n_duplicates:,} duplicates, kept")
        if self.n_shared:
            lines.append(f"  {self.n_shared:,} ({self.n_shared / self.n_read:.1%}) are also in train")
        return lines


class ChatReport(Config):
    """All counts. `lines()` is for people, `model_dump()` for programs."""

    vocab_size: int
    max_length: int
    splits: tuple[ChatSplit, ...]

    def lines(self) -> list[str]:
        """The report as plain text, one finding a line."""
        found = [line for split in self.splits for line in split.lines(self.max_length)]
        return [f"vocabulary: {self.vocab_size:,} tokens", *found]


def named(places: Sequence[str]) -> str:
    """The first of these places, and how many more there are."""
    rest = len(places) - MOST_NAMED
    return ", ".join(places[:MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def chat_split(
    name: str,
    conversations: Sequence[Conversation],
    turns: Sequence[Turns],
    *,
    limit: int,
    train: Sequence[Conversation],
) -> ChatSplit:
    """The report on a split. Raises UserError if no conversation has a token to train on."""
    sizes = [int(one.is_answer[1:limit].sum()) for one in turns]
    untrained = tuple(one.where for one, size in zip(conversations, sizes, strict=True) if not size)
    if len(untrained) == len(conversations):
        raise UserError(
            f"{name}: expected an answer of the assistant in the first {limit} tokens of a conversation, got none:"
            f" {named(untrained)}; add answers, or try a higher data.length"
        )
    kept = [len(one.ids) for one, size in zip(turns, sizes, strict=True) if size]
    texts, known = [one.text for one in conversations], {one.text for one in train}
    return ChatSplit(
        name=name,
        n_read=len(conversations),
        n_tokens=sum(min(length, limit) for length in kept),
        n_trained=sum(sizes),
        max_length=max(kept),
        n_cut=sum(length > limit for length in kept),
        untrained=untrained,
        n_duplicates=len(texts) - len({*texts}),
        n_shared=0 if name == "train" else sum(text in known for text in texts),
    )
