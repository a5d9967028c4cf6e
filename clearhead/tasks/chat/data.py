"""Conversations as ids, with the tokens of the assistant's answers marked. Imports no torch.

A conversation is written by the tokenizer's chat template, as in use. What the template adds to the text from one
message to the next says where an answer begins and ends.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import AddedToken

from clearhead.brief import brief
from clearhead.data.sources import cells_of
from clearhead.data.splits import ReportedSplit
from clearhead.errors import UserError
from clearhead.randomness import key
from clearhead.recipe.data import SPLITS, HeldOut, HubDataset, Source, Table, share_of
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


def split_conversations(splits: dict[str, list[Conversation]], held_out: HeldOut) -> dict[str, list[Conversation]]:
    """The splits. Without a source for validation, a share of the training conversations is for it.

    Equal conversations are in one split. The choice depends on the conversations alone, not on their order.
    """
    if "valid" not in splits:
        train = splits["train"]
        texts = sorted({one.text for one in train}, key=lambda text: key("held out", text))
        if len(texts) < 10:
            raise UserError(
                f"data.train: expected at least 10 conversations to hold some out, got {len(texts)}; give data.valid"
            )
        out = {*texts[: max(1, round(share_of(held_out, len(texts), "conversations") * len(texts)))]}
        splits = splits | {
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
                f" {named(self.untrained)}; add answers, or try a higher data.length"
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


MOST_NAMED = 5
"""Conversations that are named."""


class ChatSplit(ReportedSplit):
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


def named(places: Sequence[str]) -> str:
    """The first of these places, and how many more there are."""
    rest = len(places) - MOST_NAMED
    return ", ".join(places[:MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def chat_split(
    name: str, read: Sequence[Conversation], found: Answers, *, limit: int, train: Sequence[Conversation]
) -> ChatSplit:
    """The report on a split. Raises UserError if no conversation has a token to train on."""
    found.require(name, limit)
    texts, known = [one.text for one in read], {one.text for one in train}
    return ChatSplit(
        name=name,
        n_read=len(read),
        n_tokens=sum(found.sizes),
        n_trained=sum(one.n_trained for one in found.turns),
        max_length=max(found.lengths),
        n_cut=sum(length > limit for length in found.lengths),
        untrained=found.untrained,
        n_duplicates=len(texts) - len({*texts}),
        n_shared=0 if name == "train" else sum(text in known for text in texts),
    )
