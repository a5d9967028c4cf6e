"""The report on conversations before training: sizes, lengths, trained tokens, those without any. Imports no torch."""

from collections.abc import Sequence

from clearhead.config import Config
from clearhead.data.conversations import Conversation, Turns
from clearhead.errors import UserError

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
