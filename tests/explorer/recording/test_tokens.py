"""Positions of the stacks: tokens with their places in the text, patches of an image."""

import pytest

from clearhead.api import Model
from clearhead.explorer.recording.tokens import read
from clearhead.recipe.tokenizers import ByteBPE
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.traced import CONFIGS, inputs, model_of
from tests.small_models import TEXTS


@pytest.mark.parametrize("name", CONFIGS)
def test_each_stack_reads_as_many_positions_as_it_has_tokens(name: str):
    model = model_of(CONFIGS[name])
    reading = read(model, *inputs(CONFIGS[name]))
    seen, _ = model.trace(*inputs(CONFIGS[name]))
    assert list(reading.tokens) == list(CONFIGS[name].stacks)
    for stack, tokens in reading.tokens.items():
        assert len(tokens) == seen[f"{stack}.embed.sum"].shape[1]
        if not model.reader.reads_images:
            given = reading.inputs[list(reading.tokens).index(stack)]
            assert [token.id for token in tokens] == given.ids[0].tolist()
    assert reading.grid == ((2, 2) if name == "vision" else None)


def test_patches_are_named_by_row_and_column():
    tokens = read(model_of(CONFIGS["vision"]), *inputs(CONFIGS["vision"])).tokens["encoder"]
    assert [token.text for token in tokens] == ["class", "1,1", "1,2", "2,1", "2,2"]


def test_repeated_words_have_their_own_places():
    tokens = read(model_of(CONFIGS["decoder_pre_learned"]), "two one two two").tokens["decoder"]
    assert [token.span for token in tokens] == [(0, 3), (4, 7), (8, 11), (12, 15)]


def test_what_a_model_wrote_has_places_though_it_is_cut_otherwise():
    plain = model_of(CONFIGS["encoder_decoder_post"])
    tokenizer = Tokenizer.train(TEXTS, ByteBPE(vocab_size=24 + 256))
    model = Model(plain.network, plain.tokenizer, plain.generation)
    ids = [model.tokenizer.encode(word)[0] for word in ("eins", "zwei", "eins")]
    unknown = [ids[0], model.tokenizer.unk_id or 1, ids[2]]
    text = model.tokenizer.decode(unknown)
    tokens = read(model, "one", text, written=unknown).tokens["decoder"]
    assert [token.id for token in tokens][1:] == unknown
    assert [text[slice(*token.span)] if token.span else None for token in tokens][1:] == ["eins", None, "eins"]
    assert tokenizer.encode("eins") != ids[:1]
