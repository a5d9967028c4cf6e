"""Builds a tokenizer from a vocabulary and settings alone, as a class of the reference library does.

Imports no torch.
"""

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, models
from tokenizers.models import Model
from tokenizers.processors import RobertaProcessing as PairProcessing

from clearhead.errors import UserError
from clearhead.text.formats.checked import flag
from clearhead.text.formats.classes import Settings, TokenizerClass, Vocabulary, filled, language, languages, numbered
from clearhead.text.formats.sentence_pieces import build as build_pieces
from clearhead.text.formats.special import CONFIG_FILE, OLDER_EXTRA, ByClass, content_of, template
from clearhead.text.formats.splitting import LETTERS, SPLITTING, WORD_END, longer_tokens

# --- the pipeline ---


def build(vocabulary: Vocabulary, kind: TokenizerClass, settings: Settings, where: str) -> tokenizers.Tokenizer:
    """Builds model, normaliser, splitter and decoder. `set_template` adds the template once all tokens exist."""
    if vocabulary.exact is not None:
        return build_pieces(vocabulary.exact, {})
    library = tokenizers.Tokenizer(_model(vocabulary, kind, settings, where))
    normalizer, splits, joins = SPLITTING[kind.splitting](vocabulary, settings)
    if normalizer is not None:
        library.normalizer = normalizer
    library.pre_tokenizer = splits
    library.decoder = joins
    if kind.splitting == LETTERS:
        library.add_tokens(longer_tokens(vocabulary.ids))
    return library


def _model(vocabulary: Vocabulary, kind: TokenizerClass, settings: Settings, where: str) -> Model:
    unknown = token_of(kind, settings, "unk_token")
    match kind.algorithm:
        case "WordPiece":
            return models.WordPiece(dict(vocabulary.ids), unk_token=unknown or "None")
        case "WordLevel":
            return models.WordLevel(dict(vocabulary.ids), unk_token=unknown or "None")
        case "Unigram":
            return models.Unigram(vocabulary.scores, _unknown_id(vocabulary, kind, settings, where), False)
        case "BPE":
            options: dict[str, Any] = {"end_of_word_suffix": WORD_END} if kind.splitting == "ended_words" else {}
            if kind.fuses or kind.splitting in ("unsplit", "ended_words"):
                options["unk_token"] = unknown
            whole = kind.splitting in ("unsplit", "whole")
            fuses = whole or kind.fuses
            return models.BPE(dict(vocabulary.ids), vocabulary.merges, fuse_unk=fuses, byte_fallback=whole, **options)


def _unknown_id(vocabulary: Vocabulary, kind: TokenizerClass, settings: Settings, where: str) -> int:
    unknown = token_of(kind, settings, "unk_token")
    if isinstance(kind.unknown, int):
        place = kind.unknown if kind.unknown < len(vocabulary.scores) else None
    elif kind.unknown == "scored":
        pieces = vocabulary.scores
        default = settings.get("unk_id", 1)
        place = pieces.index((unknown, 0.0)) if unknown is not None and (unknown, 0.0) in pieces else default
        place = place if isinstance(place, int) and 0 <= place < len(pieces) else None
    elif kind.unknown == "named":
        place = next((i for i, (piece, _) in enumerate(vocabulary.scores) if piece == unknown), 0)
    else:
        place = next((i for i, one in enumerate(vocabulary.scores) if i and one == (unknown, 0.0)), None)
    if place is None:
        raise UserError(
            f"{where}/{CONFIG_FILE}:unk_token: expected the name of a piece with the score 0, got {unknown!r};"
            " try the tokenizer's own files"
        )
    return place


def token_of(kind: TokenizerClass | None, settings: Settings, role: str) -> str | None:
    """The token of a role, from the settings or otherwise from the class."""
    return content_of(settings.get(role, kind.tokens.get(role) if kind else None))


# --- special tokens and the template ---

ENDS = ("bos", "eos")
LANGUAGE, OLDER_MARKS = "src_lang", "legacy_behaviour"
"""The setting with the language of the texts, and the one for an older place of its mark."""


def tokens_of_class(kind: TokenizerClass, vocabulary: Vocabulary, settings: Settings, where: str) -> ByClass:
    """The special tokens that the class itself adds."""
    listed = settings.get(OLDER_EXTRA)
    given = vocabulary.controls or (*(listed if isinstance(listed, list) else ()),)
    own = [name for name in (_role(name, kind, settings) for name in kind.extras) if name]
    own += [name for place in ("first", "last") for name, _ in numbered(kind, settings, place, where)]
    given_names = [str(content_of(token) or token) for token in given]
    if kind.extras_are == "default":
        names = given or own
    elif kind.extras_are == "more":
        stem = kind.numbered.pattern.partition("{")[0] if kind.numbered else ""
        names = given if any(stem in name for name in given_names) else [*given, *own]
    else:
        names = [name for name in own if name not in given_names or name not in kind.extras]
    if not vocabulary.is_json:
        names = [*names, *(name for name in languages(kind, settings, where) if name not in given_names)]
    extras = [AddedToken(name, special=True) if isinstance(name, str) else name for name in names]
    return ByClass(kind.tokens, extras, kind.lstrip, kind.plain)


def _role(name: str, kind: TokenizerClass, settings: Settings) -> str | None:
    role = name.strip("{}")
    return name if role == name else token_of(kind, settings, role)


def set_template(
    library: tokenizers.Tokenizer, vocabulary: Vocabulary, kind: TokenizerClass, settings: Settings, where: str
) -> None:
    """Sets the class's special tokens around a text."""
    roles = {role: token_of(kind, settings, role) for role in (*kind.tokens, "bos_token", "eos_token")}
    roles[LANGUAGE] = language(kind, content_of(settings.get(LANGUAGE)) or kind.language)
    if kind.language and flag(settings, OLDER_MARKS, False):
        raise UserError(f"{where}/{CONFIG_FILE}:{OLDER_MARKS}: expected false, got true; try saving it without")
    if kind.single == "joined":
        last, first = (filled(f"{{{role}}}", roles, where) for role in ("sep_token", "cls_token"))
        ids = library.get_vocab(with_added_tokens=True)
        trims = flag(settings, "trim_offsets", True)
        prefix = flag(settings, "add_prefix_space", False)
        library.post_processor = PairProcessing((last, ids[last]), (first, ids[first]), trims, prefix)
    elif kind.single and kind.single != "asked":
        single, pair = (
            " ".join(_place(part, roles, where) for part in text.split()) for text in (kind.single, kind.pair)
        )
        template(library, single, pair)
    elif vocabulary.is_json and kind.single != "asked":
        if vocabulary.post_processor is not None:
            library.post_processor = vocabulary.post_processor
    else:
        # Beside a tokenizer.json the library drops these settings.
        asked = [not vocabulary.is_json and flag(settings, f"add_{end}_token", False) for end in ENDS]
        bos, eos = (roles[f"{end}_token"] if wanted else None for end, wanted in zip(ENDS, asked, strict=True))
        parts = [[*([bos] if bos else []), text, *([eos] if eos else [])] for text in ("$A", "$B")]
        first, second = (" ".join(f"{part}:{kind}" for part in row) for kind, row in enumerate(parts))
        template(library, first, f"{first} {second}")


def _place(part: str, roles: Mapping[str, str | None], where: str) -> str:
    """One part of a template, such as {cls_token}:0."""
    name, colon, kind = part.partition(":")
    return f"{filled(name, roles, where)}{colon}{kind}"
