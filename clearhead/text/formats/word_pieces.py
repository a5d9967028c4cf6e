"""WordPiece from its list, vocab.txt: a piece's line is its id (Wu et al. 2016; Devlin et al. 2019).

Imports no torch.
"""

from collections.abc import Mapping

import tokenizers
from tokenizers import decoders, models
from tokenizers.normalizers import BertNormalizer as WordNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer as WordSplitter

from clearhead.errors import UserError
from clearhead.text.formats.checked import flag, lines
from clearhead.text.formats.special import content_of, template

SPECIAL = {
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def numbers(content: bytes, where: str) -> dict[str, int]:
    """{piece: its line}, counted from 0."""
    ids: dict[str, int] = {}
    for number, piece in enumerate(lines(content, where)):
        if ids.setdefault(piece, number) != number:
            raise UserError(
                f"{where}:{number + 1}: expected each piece once, got {piece[:40]!r} again after line {ids[piece] + 1};"
                " try the file the checkpoint came with"
            )
    return ids


def word_normalizer(settings: Mapping[str, object]) -> WordNormalizer:
    """Cleans, separates ideographs, and drops case and accents as the settings say."""
    accents = settings.get("strip_accents")
    return WordNormalizer(
        clean_text=True,
        handle_chinese_chars=flag(settings, "tokenize_chinese_chars", True),
        strip_accents=None if accents is None else flag(settings, "strip_accents", False),
        lowercase=flag(settings, "do_lower_case", True),
    )


def open_list(content: bytes, added: dict[str, int], settings: dict[str, object], where: str) -> tokenizers.Tokenizer:
    """Opens a list, with the template [CLS] first [SEP] second [SEP]. Names the special tokens in `settings`."""
    ids = numbers(content, where)
    for token, number in added.items():
        ids.setdefault(token, number)
    for role, name in SPECIAL.items():
        if settings.get(role) is None and name in ids:
            settings[role] = name
    unknown, first, last = (content_of(settings.get(role)) for role in ("unk_token", "cls_token", "sep_token"))
    if unknown is None or unknown not in ids:
        raise UserError(f"{where}: expected {unknown or '[UNK]'} among the pieces, got none; try the file it came with")
    library = tokenizers.Tokenizer(models.WordPiece(ids, unk_token=unknown))
    library.normalizer = word_normalizer(settings)
    library.pre_tokenizer = WordSplitter()
    library.decoder = decoders.WordPiece(prefix="##")
    if first in ids and last in ids:
        template(library, f"{first} $A {last}", f"{first} $A {last} $B:1 {last}:1")
    settings.setdefault("model_input_names", ["input_ids", "token_type_ids", "attention_mask"])
    return library
