"""Text to token ids and back, through `tokenizers` and its `tokenizer.json`. Imports no torch.

`schemes.py` says what each kind does with text. This file holds the operations on a tokenizer, trained here or
read from files.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Literal, Self

import tokenizers

from clearhead.errors import UserError
from clearhead.recipe.tokenizers import TokenizerConfig
from clearhead.text import formats
from clearhead.text.formats.bounds import bounded
from clearhead.text.formats.byte_pairs import readable, word_around
from clearhead.text.formats.checked import guarded, json_object
from clearhead.text.formats.sentence_pieces import Pieces, Sides
from clearhead.text.formats.special import CONFIG_FILE, cleaned, cleans, content_of
from clearhead.text.schemes import BOS, EOS, PAD, SPACE, UNK, fit, quiet

Role = Literal["pad", "unk", "bos", "eos", "mask"]

# The keys of tokenizer_config.json that name a role's token. A classifier's tokenizer names no first and last
# token, but puts tokens around a text all the same.
ROLES: dict[Role, tuple[str, ...]] = {
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "bos": ("bos_token", "cls_token"),
    "eos": ("eos_token", "sep_token"),
    "mask": ("mask_token",),
}

TEXT = "text: expected text that is valid Unicode"
IDS = "ids: expected tokens that the tokenizer's rules can join"
VISIBLE = str.maketrans({" ": SPACE, "\n": "⏎", "\t": "⇥", "\r": "␍"})


class Tokenizer:
    """A `tokenizers.Tokenizer` with explicit special tokens. Encoding adds none unless asked.

    Text that spells a special token stays text, unless the files of a foreign tokenizer say otherwise.
    A tokenizer with two sides, a source and a target language, decodes the target.
    """

    def __init__(
        self,
        library: tokenizers.Tokenizer,
        settings: Mapping[str, object],
        *,
        sides: Sides | None = None,
        beside: Mapping[str, bytes] | None = None,
        is_kept: bool = False,
    ) -> None:
        """`settings` is tokenizer_config.json, where `pad_token` and the like name the special tokens.

        `beside` are files to write back byte for byte, and with `sides` or `is_kept` the only ones.
        """
        quiet()
        library.no_padding()
        library.no_truncation()
        splits = bool(settings.get("split_special_tokens", False))
        for part in (library, sides.source.segmenter, sides.target.segmenter) if sides else (library,):
            part.encode_special_tokens = splits
        self.library = library = bounded(library)
        self._sides, self._is_kept = sides, is_kept
        self._beside = dict(beside or {})
        self.settings = dict(settings)
        """The content of tokenizer_config.json."""
        self.pad_id, self.unk_id, self.bos_id, self.eos_id, self.mask_id = (self._special(role) for role in ROLES)
        vocabulary = library.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        """The number of rows an embedding needs, which is the largest id plus one."""

    @cached_property
    def parts(self) -> dict[str, object]:
        """The content of tokenizer.json."""
        return json_object(self.library.to_str().encode(), formats.MODEL_FILE)

    @cached_property
    def _is_bytes(self) -> bool:
        return '"ByteLevel"' in json.dumps(self.parts.get("decoder"))

    # --- making, reading, writing ---

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> Self:
        """Trains a tokenizer. Equal texts and config give equal files. Ids 0-3 are pad, unk, bos, eos."""
        quiet()
        n_texts = 0

        def counted() -> Iterator[str]:
            nonlocal n_texts
            for text in texts:
                n_texts += bool(text)
                yield text

        what = f"tokenizer: expected {config.kind} to train with vocab_size={config.vocab_size}"
        library = guarded(lambda: fit(config, counted()), what)
        if not n_texts:
            raise UserError("tokenizer: expected text to train on, got none; try another source")
        settings: dict[str, object] = {
            "tokenizer_class": formats.GENERIC,
            "pad_token": PAD,
            "unk_token": UNK,
            "bos_token": BOS,
            "eos_token": EOS,
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": True,
        }
        return cls(library, settings)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads a folder's tokenizer: tokenizer.json, or the pieces of an older format.

        Raises UserError, which names the known files, if there is none.
        """
        return cls.from_files(formats.read_folder(folder), where=str(folder))

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """Reads a folder's tokenizer, or returns None if it has none. Raises UserError for a malformed one."""
        files = formats.read_folder(folder)
        return cls.from_files(files, where=str(folder)) if formats.is_there(files) else None

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, where: str = "tokenizer") -> Self:
        """The inverse of `to_files`. `where` names the folder in errors."""
        opened = formats.open_files(files, where)
        kept = formats.ALL if opened.sides or opened.is_kept else formats.KEPT
        beside = {name: content for name, content in files.items() if name in kept}
        return cls(opened.library, opened.settings, sides=opened.sides, beside=beside, is_kept=opened.is_kept)

    def to_files(self, **settings: object) -> dict[str, bytes]:
        """File names and contents for a checkpoint: tokenizer.json and the settings with these, or original files."""
        if self._sides is not None or self._is_kept:
            return dict(self._beside)
        content = json.dumps({**self.settings, **settings}, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        model = self.library.to_str(pretty=True).encode()
        return {formats.MODEL_FILE: model, CONFIG_FILE: content.encode(), **self._beside}

    def ending(self) -> Self:
        """A tokenizer whose template ends a text with the end token, as an encoder-decoder's source needs."""
        return self if self.has_template else self.templated("$A {end}", "$A $B {end}")

    def templated(self, single: str, pair: str) -> Self:
        """A tokenizer with these templates for one text and for two; {begin} and {end} are its first and last token."""
        ids = {"begin": self.bos_id, "end": self.need("eos")}
        named = {name: self.library.id_to_token(i) for name, i in ids.items() if i is not None}
        library = tokenizers.Tokenizer.from_str(self.library.to_str())
        library.post_processor = tokenizers.processors.TemplateProcessing(
            single=single.format(**named),
            pair=pair.format(**named),
            special_tokens=[(token, ids[name]) for name, token in named.items()],
        )
        return self.changed(library)

    def changed(self, library: tokenizers.Tokenizer, **settings: object) -> Self:
        """A tokenizer with another library's tokenizer, and with these settings in tokenizer_config.json.

        Raises UserError for one with a source and a target side.
        """
        if self._sides is not None:
            raise UserError(
                "tokenizer: expected one for both sides, to which tokens can be added, got two; try another"
            )
        return type(self)(library, {**self.settings, **settings}, beside=self._beside)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.to_files().items():
            (folder / name).write_bytes(content)

    def _special(self, role: Role) -> int | None:
        for key in ROLES[role]:
            content = content_of(self.settings.get(key))
            if content is not None and (number := self.library.token_to_id(content)) is not None:
                return number
        return self._unknown_of_model() if role == "unk" else None

    def _unknown_of_model(self) -> int | None:
        """The unknown token of the model itself, stored as a name or, in a unigram model, as an id."""
        if not isinstance(kind := self.library.model, tokenizers.models.Unigram):
            return None if kind.unk_token is None else self.library.token_to_id(kind.unk_token)
        model = self.parts["model"]  # Long to write out and to read where the vocabulary is large.
        assert isinstance(model, dict)
        return model.get("unk_id")

    # --- text to ids and back ---

    @property
    def has_template(self) -> bool:
        """True if the tokenizer has a template of its own that puts special tokens around a text."""
        return self._sides is not None or self.library.num_special_tokens_to_add(is_pair=False) > 0

    @property
    def has_sides(self) -> bool:
        """True if the tokenizer has a source and a target side."""
        return self._sides is not None

    def encode(
        self, text: str, *, bos: bool = False, eos: bool = False, special_tokens: bool = False, target: bool = False
    ) -> list[int]:
        return self.encode_batch([text], bos=bos, eos=eos, special_tokens=special_tokens, target=target)[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        bos: bool = False,
        eos: bool = False,
        special_tokens: bool = False,
        target: bool = False,
    ) -> list[list[int]]:
        """The ids of each text, with special tokens at its ends on request.

        `special_tokens` adds those of the tokenizer's own template, such as [CLS] and [SEP]. `target` reads the
        texts as the target language if the tokenizer distinguishes the two.
        """
        if special_tokens and (bos or eos):
            raise UserError("tokenizer: expected special_tokens, or bos and eos, got both; try special_tokens alone")
        if self._sides is not None:
            side = self._sides.target if target else self._sides.source
            first, last = [self.need("bos")] if bos else [], [side.last] if eos or special_tokens else []
            return [first + pieces.ids + last for pieces in guarded(lambda: side.encode(texts), TEXT)]
        first, last = [self.need("bos")] if bos else [], [self.need("eos")] if eos else []
        encodings = guarded(
            lambda: self.library.encode_batch_fast(list(texts), add_special_tokens=special_tokens), TEXT
        )
        return [first + encoding.ids + last for encoding in encodings]

    def encode_pair(self, first: str, second: str, *, limit: int | None = None) -> tuple[list[int], list[int]]:
        """The ids of two texts in the tokenizer's template, at most `limit`, and which text each id belongs to: 0 up to
        the first [SEP], then 1, or 0 throughout.
        """
        if self._sides is not None or not self.library.num_special_tokens_to_add(is_pair=True):
            raise UserError("tokenizer: expected a template for two texts, got none; try one with [CLS] and [SEP]")
        encoding = guarded(lambda: self.library.encode(first, second), TEXT)
        if limit is None or len(encoding.ids) <= limit:
            return encoding.ids, encoding.type_ids
        kept = _within(encoding.sequence_ids, limit)
        return [*compress(encoding.ids, kept)], [*compress(encoding.type_ids, kept)]

    def _pieces(self, text: str) -> Pieces:
        if self._sides is not None:
            return self._sides.source.encode([text])[0]
        encoding = guarded(lambda: self.library.encode(text, add_special_tokens=False), TEXT)
        return Pieces(encoding.ids, encoding.tokens, encoding.offsets)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids without special tokens."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        rows = [list(ids) for ids in batch]
        texts = guarded(lambda: self.library.decode_batch(rows, skip_special_tokens=True), IDS)
        return [cleaned(text) for text in texts] if self._cleans else texts

    @cached_property
    def _cleans(self) -> bool:
        """True if decoding drops spaces before punctuation. A model with merges needs a second field for it."""
        model = self.parts["model"]
        assert isinstance(model, dict)
        return cleans(self.settings, merges="merges" in model)

    def need(self, role: Role) -> int:
        """The id of a special token. Raises UserError if this tokenizer has none."""
        if (number := self._special(role)) is None:
            raise UserError(f"tokenizer: expected {role}_token in {CONFIG_FILE}, got none; try naming it there")
        return number

    @property
    def special_tokens(self) -> dict[str, str]:
        """The special tokens that have a name, such as bos_token."""
        named = {name: content_of(value) for name, value in self.settings.items() if name.endswith("_token")}
        return {name: content for name, content in named.items() if content is not None}

    @cached_property
    def chat_template(self) -> str | None:
        """The Jinja template of a conversation, from chat_template.jinja or otherwise tokenizer_config.json."""
        if formats.TEMPLATE_FILE in self._beside:
            return self._beside[formats.TEMPLATE_FILE].decode("utf-8", "replace")
        template = self.settings.get("chat_template")
        if isinstance(template, list):  # several templates by name
            named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
            template = named.get("default")
        return template if isinstance(template, str) else None

    # --- for people to read ---

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Each token in readable form: a space as ▁, a line end as ⏎, part of a character as <0xE2>."""
        return [self._shown(self.library.id_to_token(token) or f"<{token}?>") for token in ids]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """[start, end) in characters of each token of `encode(text)`, without the space before it.

        Bytes of one character share its offsets. The space put in front of the text has an empty range.
        """
        _, tokens, offsets = self._pieces(text)
        following = [*(start for start, _ in offsets[1:]), len(text)][: len(offsets)]
        places: list[tuple[int, int]] = []
        for token, (start, end), after in zip(tokens, offsets, following, strict=True):
            piece = text[start:end]
            if not token.strip(SPACE) and (piece.replace(SPACE, " ").strip() or after < end):
                end = start
            elif piece.strip():
                start = end - len(piece.lstrip())
            places.append((start, end))
        return places

    def unknown(self, text: str) -> list[str]:
        """The words of `text` that contain something unknown to the tokenizer, each once, in order."""
        ids, _, offsets = self._pieces(text)
        unknown = self._sides.source.unknown if self._sides else self.unk_id
        words: dict[str, None] = {}
        for token, (start, end) in zip(ids, offsets, strict=True):
            if token == unknown and text[start:end].strip():
                words.setdefault(word_around(text, start, end))
        return list(words)

    def _shown(self, token: str) -> str:
        return (readable(token) if self._is_bytes else token).translate(VISIBLE)


def _within(sequences: Sequence[int | None], limit: int) -> list[bool]:
    """The tokens of two texts in their template that stay: the longer text is cut first, as `tokenizers` does.

    `sequences` says which text a token belongs to; None for one of the template's.
    """
    lengths = sequences.count(0), sequences.count(1)
    short, room = min(lengths), max(limit - sequences.count(None), 0)
    least = room // 2 if short + max(short, room - short) > room else short
    left = [least, room - least] if lengths[0] <= lengths[1] else [room - least, least]
    kept: list[bool] = []
    for text in sequences:
        kept.append(text is None or left[text] > 0)
        if text is not None:
            left[text] -= 1
    return kept
