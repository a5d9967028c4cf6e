"""Special tokens: which files name them, and where a template puts them. Imports no torch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing

from clearhead.errors import UserError
from clearhead.text.formats.checked import AGAIN, MAX_ID, flag, json_object, short_enough

CONFIG_FILE = "tokenizer_config.json"
NAMES_FILE = "special_tokens_map.json"
ADDED_FILE = "added_tokens.json"
EXTRA, OLDER_EXTRA = "extra_special_tokens", "additional_special_tokens"
OF_MODEL = "model_specific_special_tokens"
"""A table of special tokens by name. EXTRA may be one too."""
LISTED = "added_tokens_decoder"
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Roles of special tokens, in the order in which the reference library adds new ones."""

CLEANS = "clean_up_tokenization_spaces"
CLEANS_MERGES = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
CLEANED = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"))
CLEANED += ((" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))
"""The replacements of cleaning up, in order."""

# Customary names of special tokens, for a tokenizer.json without a config.
CUSTOMARY = {
    "pad_token": ("<pad>", "[PAD]"),
    "unk_token": ("<unk>", "[UNK]"),
    "bos_token": ("<s>", "<bos>", "[CLS]"),
    "eos_token": ("</s>", "<eos>", "[SEP]", "<|endoftext|>"),
    "mask_token": ("<mask>", "[MASK]"),
}


def settings_of(files: Mapping[str, bytes], where: str) -> dict[str, object]:
    """The settings of tokenizer_config.json, overridden by special_tokens_map.json.

    The map counts only if tokenizer_config.json does not list the added tokens. Newer versions of the reference
    library write both files and read only the former.
    """
    settings = json_object(files.get(CONFIG_FILE, b"{}"), f"{where}/{CONFIG_FILE}")
    if not settings.get(EXTRA) and OLDER_EXTRA in settings:
        settings[EXTRA] = settings.pop(OLDER_EXTRA)
    if LISTED in settings:
        return settings
    named = json_object(files.get(NAMES_FILE, b"{}"), f"{where}/{NAMES_FILE}")
    before, more = settings.get(EXTRA), named.get(EXTRA)
    if isinstance(before, list) and isinstance(more, list):
        named[EXTRA] = [*before, *(one for one in more if one not in before)]
    return settings | named


def content_of(value: object) -> str | None:
    """The text of a token. Files write a token as a string or as an object with its properties."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) and content else None


def cleans(settings: Mapping[str, object], *, merges: bool) -> bool:
    """True if decoding cleans up. A model with merges needs a second field for it."""
    return flag(settings, CLEANS, False) and (not merges or flag(settings, CLEANS_MERGES, False))


def cleaned(text: str) -> str:
    """The text without the spaces that splitting at punctuation added."""
    for before, after in CLEANED:
        text = text.replace(before, after)
    return text


def name_customary(library: tokenizers.Tokenizer, settings: dict[str, object]) -> None:
    """Names the special tokens by custom if no file names any."""
    if any(key in settings for key in NAMED):
        return
    special = {token.content for token in library.get_added_tokens_decoder().values() if token.special}
    for role, names in CUSTOMARY.items():
        if (token := next((name for name in names if name in special), None)) is not None:
            settings[role] = token


@dataclass(frozen=True)
class ByClass:
    """The tokens that a tokenizer's class adds to those that files name."""

    tokens: Mapping[str, str]
    """Role -> token, used if no file names one."""
    extras: Sequence[AddedToken]
    """Special tokens without a role, used if no file lists any."""
    lstrip: Sequence[str] = ()
    """Roles whose token absorbs the space before it."""
    plain: bool = False
    """True if special tokens lose the properties that files give them."""


def honour(
    library: tokenizers.Tokenizer,
    files: Mapping[str, bytes],
    settings: dict[str, object],
    where: str,
    *,
    by_class: ByClass | None = None,
    present: Iterable[tuple[int, AddedToken]] = (),
) -> None:
    """Adds to the library every token that the other files add or name, in the reference library's order.

    `present` are the added tokens of tokenizer.json. Names the tokens with a role in `settings`. Raises UserError if
    an added token would get another id than its file states.
    """
    added = dict(_added(files, settings, where))
    if LISTED not in settings:
        added |= dict(present)
    there = {token.content for token in library.get_added_tokens_decoder().values()}
    there |= {token.content for token in added.values()}
    named = _named(settings, by_class, {token.content: token for token in added.values()})
    roles = {token.content for token in named.values()}
    new = [token for _, token in sorted(added.items(), key=lambda item: item[0])]
    for token in new:
        token.special = token.special or token.content in roles
    extras = _extras(settings, by_class)
    new += [token for token in [*named.values(), *extras] if token.content not in there]
    library.add_tokens(new)
    if by_class is not None and by_class.plain:
        special = dict.fromkeys(token.content for token in [*named.values(), *extras])
        library.add_tokens([AddedToken(name, special=True) for name in special])
    for number, token in added.items():
        if (got := library.token_to_id(token.content)) != number:
            file = CONFIG_FILE if LISTED in settings else ADDED_FILE if ADDED_FILE in files else "tokenizer.json"
            raise UserError(
                f"{where}/{file}: expected id {number} for the added {token.content!r}, got {got}; try its own"
                " vocabulary"
            )
    for role, token in named.items():
        if role in NAMED and settings.get(role) is None:
            settings[role] = token.content


def _added(files: Mapping[str, bytes], settings: Mapping[str, object], where: str) -> Iterator[tuple[int, AddedToken]]:
    if LISTED in settings:
        listed = settings[LISTED]
        for number, value in listed.items() if isinstance(listed, dict) else [("", listed)]:
            if not str(number).isdecimal() or len(str(number)) > 9 or content_of(value) is None:
                got = f"{str(number)[:40]!r}: {str(value)[:40]}"
                raise UserError(f"{where}/{CONFIG_FILE}:{LISTED}: expected tokens by id, got {got}; {AGAIN}")
            yield int(number), _token(value, special=False)
        return
    special = {str(content_of(settings.get(role))) for role in NAMED}
    special |= {str(content_of(value)) for value in _listed(settings, EXTRA)}
    for content, number in json_object(files.get(ADDED_FILE, b"{}"), f"{where}/{ADDED_FILE}").items():
        if not isinstance(number, int) or not 0 <= number < MAX_ID or not content:
            raise UserError(f"{where}/{ADDED_FILE}:{content[:40]!r}: expected an id, got {str(number)[:40]}; {AGAIN}")
        yield number, _token(content, special=content in special)


def _named(
    settings: Mapping[str, object], by_class: ByClass | None, added: Mapping[str, AddedToken]
) -> dict[str, AddedToken]:
    """Tokens with a name, such as bos_token, in the reference library's order."""
    values = {**(by_class.tokens if by_class else {}), **settings}
    own_names = [
        name
        for name, value in settings.items()
        if name.endswith("_token") and name not in NAMED and isinstance(value, str)
    ]
    named: dict[str, AddedToken] = {}
    for role in dict.fromkeys([*NAMED, *own_names]):
        value = values.get(role)
        if (content := content_of(value)) is None:
            continue
        strips = by_class is not None and role in by_class.lstrip and isinstance(value, str)
        token = AddedToken(content, lstrip=True, special=True) if strips else _token(value, special=True)
        named[role] = added.get(content, token)
    # One table or the other: tokens of the class's own replace the second.
    tables = [settings.get(EXTRA), *([] if own_names else [settings.get(OF_MODEL)])]
    for name, value in next((one for one in tables if isinstance(one, dict)), dict[str, Any]()).items():
        if content_of(value) is not None:
            named[name] = added.get(str(content_of(value)), _token(value, special=True))
    return named


def _extras(settings: Mapping[str, object], by_class: ByClass | None) -> list[AddedToken]:
    """Special tokens without a name."""
    if EXTRA in settings and not isinstance(settings[EXTRA], dict):
        return [_token(value, special=True) for value in _listed(settings, EXTRA)]
    if by_class is not None:
        return [*by_class.extras]
    return [_token(value, special=True) for value in _listed(settings, OLDER_EXTRA)]


def _listed(settings: Mapping[str, object], key: str) -> list[object]:
    listed = settings.get(key)
    return [value for value in listed if content_of(value) is not None] if isinstance(listed, list) else []


def _token(value: object, *, special: bool) -> AddedToken:
    says = value if isinstance(value, dict) else {}
    special = special or says.get("special") is True
    return AddedToken(
        short_enough(str(content_of(value)), CONFIG_FILE),
        single_word=says.get("single_word") is True,
        lstrip=says.get("lstrip") is True,
        rstrip=says.get("rstrip") is True,
        normalized=says.get("normalized", not special) is True,
        special=special,
    )


def template(library: tokenizers.Tokenizer, single: str, pair: str) -> None:
    """Sets the special tokens around one text and around a pair: "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"."""
    names = {part.removesuffix(":0").removesuffix(":1") for part in f"{single} {pair}".split()} - {"$A", "$B"}
    special = [(name, number) for name in sorted(names) if (number := library.token_to_id(name)) is not None]
    library.post_processor = TemplateProcessing(single=single.split(), pair=pair.split(), special_tokens=special)


def set_end_template(library: tokenizers.Tokenizer, bos: str | None, eos: str | None) -> None:
    """Sets the template <s> $A </s> with the given tokens. A second text gets its own."""
    before, after = f"{bos} " if bos else "", f" {eos}" if eos else ""
    if not bos and not eos:
        return
    kind = ":1" if bos else ""
    second = f"{bos}:1 $B:1" if bos else "$B"
    template(library, f"{before}$A{after}", f"{before}$A{after} {second}{after}{kind if eos else ''}")
