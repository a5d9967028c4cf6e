"""How large a batch is."""

from dataclasses import dataclass

from clearhead.config import LanguageHead, ModelConfig, TokenInput


@dataclass(frozen=True)
class Shape:
    """The grid of one batch: the number of rows, and of positions in each stack."""

    rows: int
    source: int = 0
    target: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of both stacks."""
        return self.rows * (self.source + self.target)

    @property
    def positions(self) -> int:
        """Positions of the last stack, which the head reads."""
        return self.rows * (self.target or self.source)


def vocabulary(config: ModelConfig) -> int:
    """Logits of a position; 0 without a language head."""
    reads = config.output.input
    return reads.vocab_size if isinstance(config.head, LanguageHead) and isinstance(reads, TokenInput) else 0
