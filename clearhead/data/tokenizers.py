"""Text to token ids and back, through `tokenizers` and its `tokenizer.json`. Imports no torch.

What each kind does with text is in `schemes.py`; this file is what one does with a tokenizer, trained here or
read.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, Self, TypeVar

import tokenizers

from clearhead.data.merges import Merge, merge_history
from clearhead.data.schemes import BOS, EOS, PAD, SPACE, UNK, fit
from clearhead.errors import UserError
from clearhead.recipe.data import TokenizerConfig

MODEL_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
NAMES_FILE = "special_tokens_map.json"

Role = Literal["pad", "unk", "bos", "eos"]

# Where a role's token is named in tokenizer_config.json. A classifier's tokenizer has no first and last token
# by name, but marks the ends of a text all the same.
ROLES: dict[Role, tuple[str, ...]] = {
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "bos": ("bos_token", "cls_token"),
    "eos": ("eos_token", "sep_token"),
}

VISIBLE = str.maketrans({" ": SPACE, "\n": "⏎", "\t": "⇥", "\r": "␍"})

T = TypeVar("T")


class Tokenizer:
    """A `tokenizers.Tokenizer` whose special tokens are explicit; encoding adds none unless asked.

    Text that spells a special token is text: only tokenizers from elsewhere that say otherwise read it as the
    token.
    """

    def __init__(self, library: tokenizers.Tokenizer, settings: Mapping[str, object]) -> None:
        """`settings` is tokenizer_config.json: `pad_token` and the rest name the special tokens."""
        _quiet()
        library.no_padding()
        library.no_truncation()
        library.encode_special_tokens = bool(settings.get("split_special_tokens", False))
        self.library = library
        self._settings = dict(settings)
        self.pad_id = self._special("pad")
        self.unk_id = self._special("unk")
        self.bos_id = self._special("bos")
        self.eos_id = self._special("eos")
        vocabulary = library.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        """Rows an embedding needs: one more than the largest id."""

    @cached_property
    def _parts(self) -> dict[str, object]:
        """What tokenizer.json says."""
        return _json_object(self.library.to_str().encode(), MODEL_FILE)

    @cached_property
    def _is_bytes(self) -> bool:
        return '"ByteLevel"' in json.dumps(self._parts.get("decoder"))

    # --- making, reading, writing ---

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> Self:
        """Fit one to `texts`: equal texts and config give equal files. Ids 0-3 are pad, unk, bos, eos."""
        _quiet()
        n_texts = 0

        def counted() -> Iterator[str]:
            nonlocal n_texts
            for text in texts:
                n_texts += bool(text)
                yield text

        what = f"tokenizer: expected {config.kind} to train with vocab_size={config.vocab_size}"
        library = _guarded(lambda: fit(config, counted()), what)
        if not n_texts:
            raise UserError("tokenizer: expected text to train on, got none; try another source")
        settings: dict[str, object] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
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
        """Read tokenizer.json and, where there is one, the file that names its special tokens."""
        files: dict[str, bytes] = {}
        for name in (MODEL_FILE, CONFIG_FILE, NAMES_FILE):
            try:
                files[name] = (folder / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise UserError(f"{folder / name}: expected a readable file, got {error.strerror}") from None
        return cls.from_files(files, where=str(folder))

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], *, where: str = "tokenizer") -> Self:
        """The inverse of `to_files`; `where` names the folder in errors."""
        if MODEL_FILE not in files:
            raise UserError(f"{where}: expected {MODEL_FILE}, got no such file; try a folder that a run saved")
        settings = _json_object(files.get(NAMES_FILE, b"{}"), f"{where}/{NAMES_FILE}")
        settings |= _json_object(files.get(CONFIG_FILE, b"{}"), f"{where}/{CONFIG_FILE}")

        def read() -> tokenizers.Tokenizer:
            return tokenizers.Tokenizer.from_str(files[MODEL_FILE].decode("utf-8"))

        return cls(_guarded(read, f"{where}/{MODEL_FILE}: expected a tokenizer"), settings)

    def to_files(self) -> dict[str, bytes]:
        """File names and contents, for a checkpoint."""
        settings = json.dumps(self._settings, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        return {MODEL_FILE: self.library.to_str(pretty=True).encode(), CONFIG_FILE: settings.encode()}

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.to_files().items():
            (folder / name).write_bytes(content)

    def _special(self, role: Role) -> int | None:
        for key in ROLES[role]:
            value = self._settings.get(key)
            content = value.get("content") if isinstance(value, dict) else value
            if isinstance(content, str) and (found := self.library.token_to_id(content)) is not None:
                return found
        return self._unknown_of_model() if role == "unk" else None

    def _unknown_of_model(self) -> int | None:
        """What the model itself falls back on: a name, or in a unigram model an id."""
        model = self._parts["model"]
        assert isinstance(model, dict)
        name, place = model.get("unk_token"), model.get("unk_id")
        return self.library.token_to_id(name) if isinstance(name, str) else place

    # --- text to ids and back ---

    def encode(self, text: str, *, bos: bool = False, eos: bool = False) -> list[int]:
        return self.encode_batch([text], bos=bos, eos=eos)[0]

    def encode_batch(self, texts: Sequence[str], *, bos: bool = False, eos: bool = False) -> list[list[int]]:
        """The ids of each text, with the marks of its ends where asked for."""
        first = [self.need("bos")] if bos else []
        last = [self.need("eos")] if eos else []
        encodings = _guarded(
            lambda: self.library.encode_batch_fast(list(texts), add_special_tokens=False),
            "text: expected text that is valid Unicode",
        )
        return [first + encoding.ids + last for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens left out."""
        return self.library.decode(list(ids), skip_special_tokens=True)

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        return self.library.decode_batch([list(ids) for ids in batch], skip_special_tokens=True)

    def need(self, role: Role) -> int:
        """The id of a special token. Raises UserError where this tokenizer has none."""
        found = {"pad": self.pad_id, "unk": self.unk_id, "bos": self.bos_id, "eos": self.eos_id}[role]
        if found is None:
            raise UserError(f"tokenizer: expected {role}_token in {CONFIG_FILE}, got none; try naming it there")
        return found

    # --- for people to read ---

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Each token as people read it: a space as ▁, a line end as ⏎, part of a character as <0xE2>."""
        return [self._shown(self.library.id_to_token(token) or f"<{token}?>") for token in ids]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """[start, end) in characters of each token of `encode(text)`, without the space before it.

        Bytes of one character share its place; the space that stands before the text has none.
        """
        encoding = self.library.encode(text, add_special_tokens=False)
        places: list[tuple[int, int]] = []
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            piece = text[start:end]
            if not token.strip(SPACE) and piece.strip(" " + SPACE):
                end = start
            elif piece.strip(" "):
                start = end - len(piece.lstrip(" "))
            places.append((start, end))
        return places

    def merges(self, word: str) -> list[Merge]:
        """The merges that byte-pair encoding applies to `word`, in order (Sennrich et al. 2016, 3.2)."""
        encoding = self.library.encode(word, add_special_tokens=False)
        text = word if self.library.normalizer is None else self.library.normalizer.normalize_str(word)
        splitter = self.library.pre_tokenizer
        parts = [text] if splitter is None else [part for part, _ in splitter.pre_tokenize_str(text)]
        model = self._parts["model"]
        assert isinstance(model, dict)
        history = merge_history(model, parts, pieces=encoding.tokens)
        return [Merge(self._shown(m.left), self._shown(m.right), m.rank) for m in history]

    def unknown(self, text: str) -> list[str]:
        """The words of `text` that hold something the tokenizer has never seen, each once, in order."""
        encoding = self.library.encode(text, add_special_tokens=False)
        words: dict[str, None] = {}
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token == self.unk_id and text[start:end].strip():
                words.setdefault(_word_around(text, start, end))
        return list(words)

    def _shown(self, token: str) -> str:
        return (_byte_text(token) if self._is_bytes else token).translate(VISIBLE)


def _word_around(text: str, start: int, end: int) -> str:
    piece = text[start:end].strip()
    start = text.index(piece, start)
    end = start + len(piece)
    while piece[:1].isalnum() and start > 0 and text[start - 1].isalnum():
        start -= 1
    while piece[-1:].isalnum() and end < len(text) and text[end].isalnum():
        end += 1
    return text[start:end]


def _byte_values() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary (Radford et al. 2019)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


BYTE_VALUES = _byte_values()


def _byte_text(token: str) -> str:
    if any(character not in BYTE_VALUES for character in token):
        return token
    raw = bytes(BYTE_VALUES[character] for character in token)
    text = ""
    while raw:
        try:
            return text + raw.decode("utf-8")
        except UnicodeDecodeError as error:
            bad = raw[error.start : error.end]
            text += raw[: error.start].decode("utf-8") + "".join(f"<0x{byte:02X}>" for byte in bad)
            raw = raw[error.end :]
    return text


def _json_object(content: bytes, where: str) -> dict[str, object]:
    try:
        value = json.loads(content)
    except ValueError as error:  # malformed UTF-8 and malformed JSON alike
        raise UserError(f"{where}: expected JSON, got {error}; try saving the tokenizer again") from None
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


def _guarded(action: Callable[[], T], message: str) -> T:
    """The action's result; whatever the library raises becomes one line.

    A panic of the library derives from BaseException, not from Exception.
    """
    try:
        return action()
    except (KeyboardInterrupt, SystemExit, GeneratorExit, UserError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{message}, got {type(error).__name__}: {reason}") from None


def _quiet() -> None:
    # The library's threads and fork() do not mix, and it warns about it; a user's own choice stands.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
