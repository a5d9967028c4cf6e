"""Bytes as characters, the patterns that split text into words, and tiktoken's ranks. Imports no torch.

Older files do not store such a pattern. It follows from the vocabulary: every piece was learned inside one word, so the
right pattern leaves every piece whole.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers

from clearhead.errors import UserError
from clearhead.text.formats.checked import MAX_ID, MAX_PIECE_BYTES, lines
from clearhead.text.formats.sentence_pieces import all_splits


def _byte_values() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


BYTE_VALUES = _byte_values()
SHOWN = str.maketrans({chr(byte): character for character, byte in BYTE_VALUES.items()})


def shown(raw: bytes) -> str:
    """One printable character for each byte."""
    return raw.decode("latin-1").translate(SHOWN)


def hidden(piece: str) -> bytes | None:
    """The bytes of a piece, or None for a special token."""
    try:
        return bytes([BYTE_VALUES[character] for character in piece])
    except KeyError:
        return None


def readable(piece: str) -> str:
    """The text of a piece, with partial characters as <0xE2>."""
    raw = hidden(piece)
    if raw is None:
        return piece
    text = ""
    while raw:
        try:
            return text + raw.decode("utf-8")
        except UnicodeDecodeError as error:
            bad = raw[error.start : error.end]
            text += raw[: error.start].decode("utf-8") + "".join(f"<0x{byte:02X}>" for byte in bad)
            raw = raw[error.end :]
    return text


def word_around(text: str, start: int, end: int) -> str:
    """The word that contains this part of a text."""
    piece = text[start:end].strip()
    start = text.index(piece, start)
    end = start + len(piece)
    while piece[:1].isalnum() and start > 0 and text[start - 1].isalnum():
        start -= 1
    while piece[-1:].isalnum() and end < len(text) and text[end].isalnum():
        end += 1
    return text[start:end]


LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SPACES = r"\s+(?!\S)|\s+"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"

# Radford et al. 2019, then tiktoken's by growing vocabulary.
WORDS_2019 = rf"'(?:[sdmt]|ll|ve|re)| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{SPACES}"
SINGLE_DIGITS = rf"{CONTRACTIONS}|{LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{SPACES}"
THREE_DIGITS = rf"{CONTRACTIONS}|{LETTERS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{SPACES}"
CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|{SPACES}"
)
PATTERNS = (WORDS_2019, SINGLE_DIGITS, THREE_DIGITS, CASED)
MIN_WHOLE = 0.999
"""Minimum share of whole pieces, since a vocabulary may hold a few tokens that no text produced."""

END = "<|endoftext|>"
FILL = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|endofprompt|>")
# Number of ranks -> ids of the published encoding's special tokens, which the ranks leave out.
PUBLISHED: dict[int, dict[str, int]] = {
    50256: {END: 50256},
    50280: {END: 50256},
    100256: {END: 100257} | dict(zip(FILL, (100258, 100259, 100260, 100276), strict=True)),
    199998: {END: 199999, "<|endofprompt|>": 200018},
}


def read_merges(content: bytes, ids: Mapping[str, int], where: str) -> list[tuple[str, str]]:
    """The lines of merges.txt, each two pieces of the vocabulary."""
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(lines(content, where), start=1):
        if not line.strip() or line.startswith("#version"):
            continue
        left, space, right = line.rstrip().partition(" ")
        if not space or " " in right:
            raise UserError(f"{where}:{number}: expected two pieces, got {line[:40]!r}; try the file it came with")
        if missing := [piece for piece in (left, right, left + right) if piece not in ids]:
            raise UserError(
                f"{where}:{number}: expected pieces of vocab.json, got {missing[0][:40]!r}; try its own vocab.json"
            )
        merges.append((left, right))
    return merges


def open_ranks(content: bytes, settings: dict[str, object], where: str) -> tokenizers.Tokenizer:
    """Opens tiktoken's ranks. Two pieces merge sooner the lower the rank of their union. The rank is the id."""
    ranks = _ranks(content, where)
    ids = dict(ranks)
    special = PUBLISHED.get(len(ranks), {})
    for token, number in special.items():
        ids.setdefault(token, number)
    merges = all_splits(list(ranks), {piece: (rank, rank) for piece, rank in ranks.items()})
    library = tokenizers.Tokenizer(models.BPE(ids, merges, ignore_merges=True))
    library.pre_tokenizer = splitter(pattern_of(ranks, where, among=PATTERNS), prefix=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([tokenizers.AddedToken(token, normalized=False, special=True) for token in special])
    if END in special:
        settings.setdefault("bos_token", END)
        settings.setdefault("eos_token", END)
    return library


def is_ranks(content: bytes) -> bool:
    """True if a file starts as tiktoken's files do."""
    return re.match(rb"[A-Za-z0-9+/]{1,1024}={0,2} \d{1,8}\r?\n", content) is not None


def _ranks(content: bytes, where: str) -> dict[str, int]:
    ranks: dict[str, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line:
            continue
        encoded, _, rank = line.partition(b" ")
        try:
            raw = base64.b64decode(encoded[: 2 * MAX_PIECE_BYTES], validate=True)
        except binascii.Error:
            raw = b""
        if not raw or len(encoded) > MAX_PIECE_BYTES or not rank.isdigit() or len(rank) > 8 or int(rank) >= MAX_ID:
            text = line[:40].decode("utf-8", "replace")
            raise UserError(
                f"{where}:{number}: expected a piece in base64 and its rank, got {text!r}; try fetching it again"
            )
        ranks[shown(raw)] = int(rank)
    if len(set(ranks.values())) < len(ranks) or any(character not in ranks for character in BYTE_VALUES):
        raise UserError(
            f"{where}: expected every byte and each rank once, got {len(ranks)} pieces; try fetching it again"
        )
    return ranks


def splitter(pattern: str, *, prefix: bool) -> pre_tokenizers.PreTokenizer:
    """Splits text into words by a pattern, then into bytes. `prefix` puts a space in front of the text."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False),
        ]
    )


def pattern_of(pieces: Iterable[str], where: str, *, among: Sequence[str]) -> str:
    """The first pattern that leaves the pieces whole."""
    # "'r" is a step towards "'re": the pattern takes "'re" as a word, but not "'r".
    texts = [text for piece in pieces if (text := _text(piece)) and not text.startswith("'")]
    for pattern in among:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        allowed = int(len(texts) * (1 - MIN_WHOLE))
        for text in texts:
            if len(split.pre_tokenize_str(text)) > 1:
                allowed -= 1
                if allowed < 0:
                    break
        else:
            return pattern
    raise UserError(
        f"{where}: expected pieces that a known pattern leaves whole, got others; try a folder with tokenizer.json"
    )


def _text(piece: str) -> str:
    """The text of a piece, or "" if it holds part of a character."""
    try:
        return (hidden(piece) or b"").decode("utf-8")
    except UnicodeDecodeError:
        return ""
