"""Special tokens: who names them, and where a template puts them. Imports no torch."""

from collections.abc import Iterator, Mapping

import tokenizers
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing

from clearhead.data.formats.checked import AGAIN, MAX_ID, json_object, short_enough
from clearhead.errors import UserError

CONFIG_FILE = "tokenizer_config.json"
NAMES_FILE = "special_tokens_map.json"
ADDED_FILE = "added_tokens.json"
EXTRA = ("additional_special_tokens", "extra_special_tokens")
NAMED = ("pad_token", "unk_token", "bos_token", "eos_token", "cls_token", "sep_token", "mask_token")

# What a tokenizer.json without a config calls its special tokens, by custom.
CUSTOMARY = {
    "pad_token": ("<pad>", "[PAD]"),
    "unk_token": ("<unk>", "[UNK]"),
    "bos_token": ("<s>", "<bos>", "[CLS]"),
    "eos_token": ("</s>", "<eos>", "[SEP]", "<|endoftext|>"),
    "mask_token": ("<mask>", "[MASK]"),
}


def settings_of(files: Mapping[str, bytes], where: str) -> dict[str, object]:
    """tokenizer_config.json over special_tokens_map.json."""
    settings = json_object(files.get(NAMES_FILE, b"{}"), f"{where}/{NAMES_FILE}")
    return settings | json_object(files.get(CONFIG_FILE, b"{}"), f"{where}/{CONFIG_FILE}")


def content_of(value: object) -> str | None:
    """The text of a token, which files write as a string or as an object with its properties."""
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) and found else None


def name_customary(library: tokenizers.Tokenizer, settings: dict[str, object]) -> None:
    """Name the special tokens where no file does."""
    if any(key in settings for key in NAMED):
        return
    special = {token.content for token in library.get_added_tokens_decoder().values() if token.special}
    for role, names in CUSTOMARY.items():
        if (found := next((name for name in names if name in special), None)) is not None:
            settings[role] = found


def added_ids(files: Mapping[str, bytes], settings: Mapping[str, object], where: str) -> dict[str, int]:
    """{token: id} of what was added to the vocabulary after it was trained."""
    return {token.content: number for number, token in _added(files, settings, where)}


def honour(
    library: tokenizers.Tokenizer, files: Mapping[str, bytes], settings: Mapping[str, object], where: str
) -> None:
    """Put into the library every token that the files beside it add or name.

    Raises UserError where an added token would get another id than its file says.
    """
    known = {token.content for token in library.get_added_tokens_decoder().values()}
    for number, token in sorted(_added(files, settings, where), key=lambda item: item[0]):
        if token.content not in known:
            library.add_tokens([token])
        if (found := library.token_to_id(token.content)) != number:
            raise UserError(
                f"{where}: expected id {number} for the added {token.content!r}, got {found}; try its own vocabulary"
            )
    known = {token.content for token in library.get_added_tokens_decoder().values()}
    for token, is_extra in _named(settings):
        is_present = library.token_to_id(token.content) is not None
        if token.content not in known and (is_extra or is_present):
            library.add_special_tokens([token])


def _added(files: Mapping[str, bytes], settings: Mapping[str, object], where: str) -> Iterator[tuple[int, AddedToken]]:
    listed = settings.get("added_tokens_decoder")
    if isinstance(listed, dict):
        for number, value in listed.items():
            if not str(number).isdecimal() or len(str(number)) > 9 or content_of(value) is None:
                found = f"{str(number)[:40]!r}: {str(value)[:40]}"
                raise UserError(
                    f"{where}/{CONFIG_FILE}:added_tokens_decoder: expected tokens by id, got {found}; {AGAIN}"
                )
            yield int(number), _token(value, special=False)
        return
    special = {token.content for token, _ in _named(settings)}
    for content, number in json_object(files.get(ADDED_FILE, b"{}"), f"{where}/{ADDED_FILE}").items():
        if not isinstance(number, int) or not 0 <= number < MAX_ID or not content:
            raise UserError(f"{where}/{ADDED_FILE}:{content[:40]!r}: expected an id, got {str(number)[:40]}; {AGAIN}")
        yield number, _token(content, special=content in special)


def _named(settings: Mapping[str, object]) -> Iterator[tuple[AddedToken, bool]]:
    """Tokens that the settings name, and whether they are additional to those with a role."""
    for key in NAMED:
        if content_of(settings.get(key)) is not None:
            yield _token(settings[key], special=True), False
    for key in EXTRA:
        listed = settings.get(key)
        values = listed.values() if isinstance(listed, dict) else listed if isinstance(listed, list) else ()
        for value in values:
            if content_of(value) is not None:
                yield _token(value, special=True), True


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
    """Marks around a text and a pair of texts: "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"."""
    names = {part.removesuffix(":0").removesuffix(":1") for part in f"{single} {pair}".split()} - {"$A", "$B"}
    marks = [(name, number) for name in sorted(names) if (number := library.token_to_id(name)) is not None]
    library.post_processor = TemplateProcessing(single=single.split(), pair=pair.split(), special_tokens=marks)


def mark_ends(library: tokenizers.Tokenizer, bos: str | None, eos: str | None) -> None:
    """<s> $A </s> for the marks there are; a second text has its own."""
    before, after = f"{bos} " if bos else "", f" {eos}" if eos else ""
    if not bos and not eos:
        return
    kind = ":1" if bos else ""
    second = f"{bos}:1 $B:1" if bos else "$B"
    template(library, f"{before}$A{after}", f"{before}$A{after} {second}{after}{kind if eos else ''}")
