"""The tokenizer that a file carries, with which its page reads any text (ui/src/tokenizers)."""

import re
from itertools import chain
from math import isqrt
from typing import Any

from clearhead.api import Model
from clearhead.config import ClassificationHead, StackName, VectorHead
from clearhead.explorer.answering.opened import Opened
from clearhead.text.formats.bounds import TokenizerApart, steps_of
from clearhead.text.special_tokens import start_token, target_tokens
from clearhead.text.tokenizers import Tokenizer

MOST_BYTES, LONGEST = 400 << 20, 4096
"""The limit for the attention of a pass that a page computes, and for the tokens of a text."""
MAPS = 4
"""Values of a pass for each query and key of a head."""
UNLIKE = re.compile(r"\(\?>|[*+?]\+|\d\}\+|\[:")
"""Parts of regular expressions that a browser lacks."""
UNKNOWN_STEPS = frozenset({"UnicodeScripts", "FixedLength"})


def refusal(opened: Opened, *, live: bool) -> str | None:
    """The reason why a file reads only the texts it holds; None if its page reads any text.

    `live`: the file holds the model.
    """
    model = opened.model
    if model.reader.reads_images:
        return None
    if model.config.pictures is not None:
        return "the model reads pictures within a text"
    if not live:
        return "the model has too many parameters for a file; add --live int8 to hold it"
    if opened.start.target is not None and not model.is_encoder_decoder:
        return "the model reads pairs of texts"
    if isinstance(model.config.head, VectorHead):
        return "the model reads texts of one length"
    if not model.has_tokenizer:
        return None
    tokenizer = model.tokenizer
    if tokenizer.has_sides:
        return "its tokenizer has a source and a target side"
    if isinstance(tokenizer.library, TokenizerApart):
        return "the rules of its tokenizer may need too much memory or time"
    rules = tokenizer.parts
    for step in chain(steps_of(rules["normalizer"]), steps_of(rules["pre_tokenizer"])):
        pattern = step.get("pattern")
        if step["type"] in UNKNOWN_STEPS or (isinstance(pattern, dict) and UNLIKE.search(pattern.get("Regex", ""))):
            return f"its tokenizer has a rule that no browser knows, {step['type']}"
    return None


def carried(model: Model) -> dict[str, Any]:
    """The rules of the tokenizer, and what each stack reads of a text.

    Without a tokenizer there are no rules: texts are numbers of tokens.
    """
    config, generation, names = model.config, model.generation, list(model.config.stacks)
    whole: dict[str, Any] = {"before": (), "after": (), "prefix": "", "limit": None, "again": False}
    reads = {name: whole | {"most": longest(model, name)} for name in names}
    sizes = [getattr(stack.input, "vocab_size", 0) for stack in config.stacks.values()]
    made: dict[str, Any] = {"rules": None, "keeps_special": False, "unknown": None, "size": min(sizes), "reads": reads}
    if not model.has_tokenizer:
        if len(names) == 2 and generation.start_id is not None:
            reads[names[1]]["before"] = (generation.start_id,)
        return made
    tokenizer, special = model.tokenizer, model.reader.special_tokens()
    reads[names[0]] |= {
        "before": special.before, "after": special.after, "prefix": model.reader.prefix, "limit": model.reader.longest,
    }  # fmt: skip
    if len(names) == 2:
        again = isinstance(config.head, ClassificationHead)
        more = () if again else target_tokens(tokenizer, generation).before
        reads[names[1]] |= {"before": (start_token(tokenizer, generation), *more), "again": again}
    return made | rules_of(tokenizer)


def rules_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """How the page cuts a text into tokens."""
    rules = tokenizer.parts
    kept = {name: rules[name] for name in ("normalizer", "pre_tokenizer", "model", "added_tokens")}
    keeps = tokenizer.library.encode_special_tokens
    return {"rules": kept, "keeps_special": keeps, "unknown": tokenizer.unk_id}


def longest(model: Model, name: StackName) -> int:
    """The most tokens of a stack whose attention a page computes."""
    stacks = model.config.stacks
    cell = MAPS * 4 * sum(stack.n_layers * stack.n_heads for stack in stacks.values())
    return min(stacks[name].max_length or LONGEST, isqrt(MOST_BYTES // cell))
