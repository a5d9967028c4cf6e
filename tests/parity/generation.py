"""Texts token by token as the reference writes them: greedy and by beams, in batches with padding, in float64.

Each side reads its settings from the folder's generation_config.json.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from clearhead.api import load
from clearhead.api.transcribing import heard_language, written
from clearhead.generation import complete
from clearhead.model import Tokens
from tests.parity.harness import Case, reference

WRITERS = ("LMHeadModel", "ForCausalLM", "ForConditionalGeneration", "MTModel")
VARIANTS = ("base", "opus", "flan")
"""What is compared: classes that write, in these variants."""
LENGTHS = (6, 3, 4)
NEW = 64
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
SEARCHES: dict[str, dict[str, float]] = {
    "greedy": {"num_beams": 1},
    "beams-for-short-texts": {"num_beams": 4, "length_penalty": 0.6},
    "beams-for-long-texts": {"num_beams": 4, "length_penalty": 2.0},
}


def writer(case: Case) -> Any:
    """A reference model with room for the text, whose next word depends on more than the last one."""
    room = {
        name: NEW + max(LENGTHS)
        for name in ("n_positions", "max_position_embeddings", "max_seq_len", "max_target_positions")
        if name in case.config
    }
    theirs = reference(replace(case, config={**case.config, **room}), dtype=torch.float64)
    tables = ("embed", "shared", "wte", "wpe", "lm_head", "relative")
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if parameter.ndim == 2 and not any(part in name for part in tables):
                parameter.mul_(2.5)
            elif name.endswith("bias"):
                parameter.mul_(0.1)
    return theirs


def settings(theirs: Any, search: dict[str, float]) -> Any:
    """The model's own settings and this search; special tokens where its config has none of this vocabulary."""
    config = theirs.generation_config
    said = config.to_dict()
    for name, token in SPECIAL.items():
        if said.get(name) is None or said[name] >= theirs.config.vocab_size:
            config.update(**{name: token})
    config.update(max_new_tokens=NEW, max_length=None, **search)
    if theirs.config.is_encoder_decoder:
        # Random encoder-decoders say one word for ever. (With padding on the left, to the reference padding is text.)
        config.update(no_repeat_ngram_size=3, min_new_tokens=20)
    return config


def writes(case: Case) -> bool:
    """Whether a case is one whose texts are compared."""
    return case.variant in VARIANTS and case.architecture.endswith(WRITERS)


OF_THE_DEFAULT_TYPE = ("xglm",)
"""Models whose attention makes numbers of PyTorch's default type, which float32 cannot hold."""


@contextmanager
def default_type(theirs: Any) -> Iterator[None]:
    """PyTorch's default type is that of the model, if its code needs it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(theirs.dtype if theirs.config.model_type in OF_THE_DEFAULT_TYPE else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def is_rwkv(theirs: Any) -> bool:
    """Whether the reference reads padding as words, and leaves states where they are when it reorders beams."""
    return theirs.config.model_type == "rwkv"


def texts_of(theirs: Any, rows: Sequence[Sequence[int]], batch: Tokens) -> list[list[int]]:
    """What the reference writes, without prompts: in one batch, or one by one where padding becomes a word or nan.

    Its eager attention masks with the least float64, which is -inf in the float32 of its softmax.
    """
    assert batch.valid is not None
    cross, mask = theirs.config.is_encoder_decoder, batch.valid.long()
    if not cross:
        with torch.no_grad():
            if is_rwkv(theirs) or theirs(batch.ids, attention_mask=mask).logits.isnan().any():
                return [theirs.generate(torch.tensor([row]))[0, len(row) :].tolist() for row in rows]
    return theirs.generate(batch.ids, attention_mask=mask)[:, 1 if cross else batch.grid[1] :].tolist()


def compare_texts(case: Case, folder: Path) -> None:
    """AssertionError where a text is not token-equal to the reference's."""
    theirs = writer(case)
    theirs.save_pretrained(folder)
    if theirs.main_input_name == "input_features":
        compare_transcripts(theirs, folder)
        return
    cross = theirs.config.is_encoder_decoder
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(3, theirs.config.vocab_size, (n,), generator=generator).tolist() for n in LENGTHS]
    batch = Tokens.pad(rows, left=not cross)
    assert batch.valid is not None
    words: set[int] = set()
    for name, search in [*SEARCHES.items()][: 1 if is_rwkv(theirs) else None]:
        settings(theirs, search).save_pretrained(folder)
        with default_type(theirs):
            texts = texts_of(theirs, rows, batch)
        model = load(folder)
        assert model.generation.max_new_tokens == NEW
        source, prompts = (rows, None) if cross else (None, rows)
        written = complete(model.network, prompts, source=source, config=model.generation)
        found = [list(best[0].tokens) for best in written]
        for text, expected in zip(found, texts, strict=True):
            assert text == expected[: len(text)], name
            rest = expected[len(text) :]
            assert not rest or rest[0] in model.generation.end_ids, name
            assert set(rest) <= {model.generation.pad_id, *model.generation.end_ids}, name
            words |= {*text}
    assert len(words) > 5, "texts of a few words show little"


def compare_transcripts(theirs: Any, folder: Path) -> None:
    """AssertionError where a text of a sound is not token-equal, or begins with another language."""
    config = theirs.config
    generator = torch.Generator().manual_seed(1)
    shape = 3, config.num_mel_bins, 2 * config.max_source_positions
    sounds = torch.randn(shape, generator=generator, dtype=torch.float64)
    last = config.vocab_size - 1  # What comes after it would be times.
    own = {
        "lang_to_id": {"<|en|>": last - 4, "<|de|>": last - 3},
        "task_to_id": {"transcribe": last - 2, "translate": last - 1},
        "no_timestamps_token_id": last,
        "is_multilingual": True,
        "suppress_tokens": [*range(last - 4, last + 1)],
        "begin_suppress_tokens": [2, 7, 8, 9],
    }
    for name, value in own.items():  # `update` leaves out what other models do not have.
        setattr(theirs.generation_config, name, value)
    found: set[int] = set()
    for name, search in SEARCHES.items():
        settings(theirs, search).save_pretrained(folder)
        model = load(folder)
        speech, start = model.generation.speech, model.generation.start_id
        assert speech is not None
        assert start is not None
        for i, task in enumerate(("transcribe", "translate", None)):
            asked = {} if task is None else {"task": task}
            language = None if task else "de"
            expected = theirs.generate(sounds[i : i + 1], language=language, **asked)[0].tolist()
            frames = sounds[i : i + 1].mT
            spoken = language or heard_language(model, frames, start, speech)
            prompt = [start, *speech.after_start(spoken, task)]
            (best,) = written(model, frames, prompt, model.generation)
            text = list(best.tokens)
            assert text == expected[: len(text)], (name, text, expected)
            assert set(expected[len(text) :]) <= {model.generation.pad_id, *model.generation.end_ids}, name
            found |= {*text}
    assert len(found) > 5, "texts of a few words show little"
