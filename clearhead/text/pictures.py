"""The marks of pictures within a text: where each picture stands, and the tokens that its vectors replace."""

from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.config import PictureInput
from clearhead.errors import UserError
from clearhead.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Marks:
    """The marks that a model's texts have for pictures."""

    seen: PictureInput
    tokenizer: Tokenizer

    @property
    def name(self) -> str:
        """What a text says where a picture belongs."""
        first, mark, last = self._tokens
        return f"{first}{mark}{last}" if self.seen.any_size else first or mark

    @property
    def reserved(self) -> list[str]:
        """What no text beside a prompt may say: the mark of a picture, its token, and that of a video."""
        own = (self._token(i) for i in (self.seen.mark_id, self.seen.video_id))
        return [one for one in (self.name, *own) if one]

    @property
    def begins(self) -> bool:
        """True if pictures stand before the begin token, which the spelled text then holds."""
        return self.seen.sees == "prompt"

    def placed(self, text: str, n: int) -> str:
        """The text with a mark for each of n pictures, which stand before a text that has none.

        Raises UserError unless there are as many marks as pictures.
        """
        name = self.name
        if n and name not in text:
            text = ("" if self.begins or self.seen.any_size else "\n").join([name] * n + [text])
        if (found := text.count(name)) != n:
            remedy = f"put one {name} where each picture belongs, or none for pictures before the text"
            raise UserError(f"image: expected {found} pictures, one for each {name}, got {n}; {remedy}")
        return text

    def spelled(self, text: str, grids: Sequence[tuple[int, int]]) -> str:
        """A placed text with a mark for each vector.

        `grids` are the rows and columns of the tiles of each picture, or of its patches if it has any size.
        """
        first, mark, last = self._tokens
        before, *parts = text.split(self.name)
        if self.begins:
            parts[-1] = f"{self._token(self.tokenizer.need('bos'))}{parts[-1]}\n"
        read = (self.seen.spelled(first, mark, last, grid) + part for grid, part in zip(grids, parts, strict=True))
        return "".join([before, *read])

    @property
    def _tokens(self) -> tuple[str, str, str]:
        return self._token(self.seen.first_id), self._token(self.seen.mark_id), self._token(self.seen.last_id)

    def _token(self, i: int | None) -> str:
        return "" if i is None else self.tokenizer.library.id_to_token(i) or ""
