"""Splitters at spaces, which become part of the pieces: those of multilingual models. Imports no torch."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tokenizers import Regex, decoders, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from clearhead.text.formats.checked import flag
from clearhead.text.schemes import SPACE

if TYPE_CHECKING:
    from clearhead.text.formats.rebuilt import Pipeline, Settings, Vocabulary


def spaced(vocabulary: "Vocabulary", settings: "Settings") -> "Pipeline":
    """At each white space, after SentencePiece's table of characters."""
    # Here null means false, and only an absent field means true.
    scheme = "always" if flag(settings, "add_prefix_space", "add_prefix_space" not in settings) else "never"
    splits = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)]
    normalizer = normalizers.Precompiled(vocabulary.charsmap) if vocabulary.charsmap else None
    return normalizer, pre_tokenizers.Sequence(splits), decoders.Metaspace(SPACE, prepend_scheme=scheme)


def always_spaced(vocabulary: "Vocabulary", _: "Settings") -> "Pipeline":
    """The same, with a space before every text."""
    return spaced(vocabulary, {})


def spaced_as_it_is(vocabulary: "Vocabulary", _: "Settings") -> "Pipeline":
    """The same, without the table of characters."""
    return None, *spaced(vocabulary, {})[1:]


def without_accents(vocabulary: "Vocabulary", settings: "Settings") -> "Pipeline":
    """In lower case and without accents, unless the settings say otherwise."""
    table, splits, joins = spaced(vocabulary, settings)
    steps: list[Normalizer] = [normalizers.Replace(quotes, '"') for quotes in ("``", "''")]
    if not flag(settings, "keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if flag(settings, "do_lower_case", True):
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps if table is None else [*steps, table]), splits, joins


def collapsed(vocabulary: "Vocabulary", _: "Settings") -> "Pipeline":
    """Several spaces become one."""
    steps: list[Normalizer] = [normalizers.Replace(Regex(" {2,}"), " ")]
    if vocabulary.charsmap:
        steps.insert(0, normalizers.Precompiled(vocabulary.charsmap))
    splits = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
    return normalizers.Sequence(steps), splits, decoders.Metaspace(SPACE)


def collapsed_by_table(vocabulary: "Vocabulary", settings: "Settings") -> "Pipeline":
    """The same, but only after a table of characters."""
    normalizer, splits, joins = collapsed(vocabulary, settings)
    return normalizer if vocabulary.charsmap else None, splits, joins


def lines(vocabulary: "Vocabulary", settings: "Settings") -> "Pipeline":
    """Several spaces become one, and so does the end of a line."""
    normalizer, splits, joins = collapsed(vocabulary, settings)
    if not vocabulary.charsmap:
        normalizer = normalizers.Sequence([normalizers.Replace("\n", " "), normalizers.Replace(Regex(" {2,}"), " ")])
    return normalizer, splits, joins


def composed_spaces(_: "Vocabulary", settings: "Settings") -> "Pipeline":
    """White space becomes one space, accents are joined to their letters, and punctuation is split off if asked for."""
    steps: list[Normalizer] = [normalizers.Lowercase()] if flag(settings, "do_lower_case", False) else []
    steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
    steps.append(normalizers.Strip(left=False, right=True))
    scheme = "always" if flag(settings, "add_prefix_space", "add_prefix_space" not in settings) else "first"
    splits: list[PreTokenizer] = [pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)]
    if flag(settings, "split_by_punct", False):
        splits.insert(0, pre_tokenizers.Punctuation(behavior="isolated"))
    joins = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    return normalizers.Sequence(steps), pre_tokenizers.Sequence(splits), joins


PUNCTUATION = r"[!-/:-@\[-`{-~]"


def unpunctuated(vocabulary: "Vocabulary", settings: "Settings") -> "Pipeline":
    """Without ASCII punctuation, and in lower case unless the settings say otherwise: those of SigLIP."""
    table, splits, joins = spaced(vocabulary, {})
    steps: list[Normalizer] = [normalizers.Lowercase()] if flag(settings, "do_lower_case", True) else []
    steps += [normalizers.Replace(Regex(PUNCTUATION), ""), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence(steps if table is None else [*steps, table]), splits, joins


SPACED: Mapping[str, Callable[["Vocabulary", "Settings"], "Pipeline"]] = {
    "spaced": spaced,
    "always_spaced": always_spaced,
    "spaced_as_it_is": spaced_as_it_is,
    "without_accents": without_accents,
    "unpunctuated": unpunctuated,
    "collapsed": collapsed,
    "composed_spaces": composed_spaces,
    "collapsed_by_table": collapsed_by_table,
    "lines": lines,
}
