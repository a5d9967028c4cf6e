"""Encoders in the page: the ops that make a vector, effects on vectors and labels, masks, words for pictures."""

import pytest
import torch

from clearhead import config as c
from clearhead.api import Model
from clearhead.api.sentences import Module, Sentences
from clearhead.checkpoints.weights.modules import Listed
from clearhead.errors import UserError
from clearhead.explorer.answering.values import vector_ops, vector_weights, worded
from clearhead.explorer.session import Session
from clearhead.model.ops import KINDS, Call
from clearhead.model.sentences import Dense, Mode, Pooling, Step, Unit, VectorLayerNorm
from tests.explorer.asking import ask
from tests.explorer.traced import CONFIGS, TOKENIZER, model_of

TEXT = "one two three four"
SITE = "encoder.blocks.1.attn.z[h=0]"


def sentence_encoder(*steps: Step) -> Model:
    plain = model_of(CONFIGS["encoder_states"])
    modules = tuple(Module(Listed(str(i), f"{i}", "Step"), {}, step) for i, step in enumerate(steps))
    return Model(plain.network, TOKENIZER, plain.generation, sentences=Sentences(modules))


@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken"])
def test_the_listed_ops_make_the_vector_of_embed(mode: Mode):
    torch.manual_seed(0)
    dense = Dense(torch.randn(6, 16), torch.randn(6), "Tanh")
    model = sentence_encoder(Pooling((mode,)), dense, VectorLayerNorm(torch.rand(6), torch.rand(6)), Unit())
    session = Session(model, name="states", text=TEXT)
    ops = vector_ops(model.config, model.sentences)
    made = {ops[0].inputs[0]: ask(session, "values", run={"text": TEXT}, at=[ops[0].inputs[0]])[1][ops[0].inputs[0]]}
    weights = vector_weights(model.sentences)
    for op in ops:
        call = Call(op, [made[name] for name in op.inputs], [weights[name] for name in op.weights])
        made[op.out] = KINDS[op.op].evaluate(call)
    torch.testing.assert_close(made["head.unit"], model.embed([TEXT])[0])
    plan = ask(session, "about")[0]["plan"]["ops"]
    assert [op["out"] for op in plan[-len(ops) :]] == [op.out for op in ops]
    names = [name for op in ops for name in op.weights]
    assert set(ask(session, "weights", at=names)[1]) == set(names) == set(weights)


def test_a_prompt_is_told():
    model = model_of(CONFIGS["encoder_states"])
    model.sentences = Sentences(prompts={"query": "one"}, default_prompt="query")
    (note,) = ask(Session(model, name="states", text=TEXT), "run", run={"text": TEXT})[0]["notes"]
    assert "puts 'one' before" in note


def test_what_no_op_describes_is_not_listed():
    for steps in ([Pooling(("max",))], [Pooling(("mean", "cls"))], [Pooling(includes_prompt=False)]):
        model = sentence_encoder(*steps)
        assert vector_ops(model.config, model.sentences) == ()
    classifier = CONFIGS["encoder_classifier"]
    assert vector_ops(classifier, Sentences()) == ()


def test_effects_are_the_shift_of_the_models_own_vector():
    model = sentence_encoder(Pooling(("cls",)))
    session = Session(model, name="states", text=TEXT)
    found = ask(session, "effects", run={"text": TEXT}, at=[SITE])[0]["effects"][SITE]
    run = {"text": TEXT, "edits": [{"at": SITE, "do": "zero"}]}
    last = vector_ops(model.config, model.sentences)[0].inputs[0]
    states = [ask(session, "values", run=one, at=[last])[1][last] for one in ({"text": TEXT}, run)]
    expected = 1 - torch.cosine_similarity(states[0][0], states[1][0], dim=0).item()
    assert found == pytest.approx(expected, abs=1e-6)
    assert found > 1e-4
    with pytest.raises(UserError, match="logit: expected none"):
        ask(session, "effects", run=run, at=[SITE], logit=0)


def test_words_for_pictures_and_vectors():
    texts = {
        "image.glossary": "tokens: patches, token: patch",
        "image.class_token": "class token",
        "a": "Tokens of {token}, a token, the class token.",
        "walk.a": "A token.",
        "b": "A text.",
        "b@image": "A picture.",
        "b@vector": "A vector.",
    }
    seen = worded(texts, CONFIGS["vision"])
    assert seen["a"] == "Patches of {token}, a patch, the class token."
    assert (seen["walk.a"], seen["b"]) == ("A token.", "A picture.")
    assert not any("@" in key for key in seen)
    assert worded(texts, CONFIGS["encoder_states"])["b"] == "A vector."
    plain = worded(texts, c.ModelConfig(encoder=CONFIGS["encoder_classifier"].encoder))
    assert (plain["a"], plain["b"]) == (texts["a"], "A text.")
