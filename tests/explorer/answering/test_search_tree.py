"""The tree of a generation holds what was written, what was dropped, and the probabilities of the model."""

import math
from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.answering.search_tree import ALTERNATIVES, GenerateSettings, configured
from clearhead.explorer.session import Session
from clearhead.model import Transformer
from clearhead.recipe.generation import GenerationConfig
from tests.explorer.asking import GENERATE, ask, session_of, start
from tests.explorer.traced import TOKENIZER, stack

NAMES = ["decoder_pre_learned", "encoder_decoder_relative", "encoder_decoder_post", "decoder_rotary_grouped"]


def generated(
    name: str, edits: list[dict[str, Any]] | None = None, **settings: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    session = session_of(name)
    run = {**start(session), "target": None, "edits": edits or []}
    return ask(session, "generate", run=run, settings={**GENERATE, **settings})[0], run


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_the_models(name: str, beams: int):
    model = session_of(name).model
    reply, run = generated(name, beams=beams, length_penalty=0.7)
    config = GenerationConfig(max_new_tokens=5, beams=beams, n_best=beams, length_penalty=0.7)
    if model.is_encoder_decoder:
        best = model.hypotheses([run["text"]], config)[0][0]
        assert reply["text"] == TOKENIZER.decode(best.tokens)
        assert reply["nodes"][reply["best"][-1]]["score"] == pytest.approx(best.score, rel=1e-4)
        assert [reply["nodes"][i]["id"] for i in reply["best"]][: len(best.tokens)] == list(best.tokens)
    elif beams == 1:
        assert reply["text"] == model.generate(run["text"], config)


@pytest.mark.parametrize("beams", [1, 4, 16])
@pytest.mark.parametrize("name", NAMES)
def test_the_tree_is_one(name: str, beams: int):
    reply, _ = generated(name, beams=beams)
    nodes = reply["nodes"]
    assert nodes[0]["parent"] == -1
    for i, node in enumerate(nodes[1:], start=1):
        above = nodes[node["parent"]]
        assert node["parent"] < i
        assert above["kept"]
        assert node["step"] == above["step"] + 1
        assert node["text"] == TOKENIZER.tokens([node["id"]])[0] == reply["words"][str(node["id"])]
    path = reply["best"]
    assert [nodes[i]["parent"] for i in path] == [0, *path[:-1]]
    assert nodes[path[-1]]["final"] == (nodes[path[-1]]["id"] in session_of(name).model.settings().end_ids)
    assert len(reply["steps"]) == len(path)
    dropped = [node for node in nodes if not node["kept"]]
    assert dropped
    if beams == 1:
        assert len(dropped) <= ALTERNATIVES * len(path)
    for node, step in zip((nodes[i] for i in path), reply["steps"], strict=True):
        probabilities = dict(map(tuple, step["top"]))
        if node["id"] in probabilities:
            assert math.exp(node["log_prob"]) == pytest.approx(probabilities[node["id"]], rel=1e-3)


def test_the_probabilities_are_over_the_whole_vocabulary_of_the_edited_model():
    name, edits = "decoder_pre_learned", [{"at": "decoder.blocks.1.ffn.out", "do": "scale", "value": -3}]
    reply, run = generated(name, edits)
    assert reply["text"] != generated(name)[0]["text"]
    session = session_of(name)
    written = [reply["nodes"][i]["id"] for i in reply["best"]]
    text = f"{run['text']} {TOKENIZER.decode(written[:1])}"
    at = f"head.logits[t={len(TOKENIZER.encode(text)) - 1}]"
    logits = ask(session, "values", run={**run, "text": text}, at=[at])[1][at]
    shares, ids = logits.softmax(-1).topk(10)
    assert [i for i, _ in reply["steps"][1]["top"]] == ids.tolist()
    torch.testing.assert_close(torch.tensor([share for _, share in reply["steps"][1]["top"]]), shares)


def test_more_beams_than_there_are_tokens():
    config = c.ModelConfig(decoder=stack(input=c.TokenInput(vocab_size=3)))
    session = Session(Model(Transformer(config).eval(), generation=GenerationConfig(banned_ids=(0,))), name="three")
    run = {"text": "1 2", "target": None, "edits": []}
    reply, _ = ask(session, "generate", run=run, settings={**GENERATE, "beams": 16, "max_new_tokens": 3})
    assert [sum(node["step"] == step for node in reply["nodes"]) for step in (-1, 0, 1)] == [1, 2, 4]
    assert all(node["id"] in (1, 2) for node in reply["nodes"][1:])
    assert reply["text"] == " ".join(str(reply["nodes"][i]["id"]) for i in reply["best"])


def test_samples_follow_the_seed():
    texts = [generated("decoder_pre_learned", temperature=3.0, top_k=9, seed=seed)[0]["text"] for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_settings_that_contradict_each_other():
    own = GenerationConfig(max_new_tokens=9, temperature=0.5, top_p=0.3, banned_ids=(4,), end_ids=(3,))
    config = configured(own, GenerateSettings(max_new_tokens=2, top_k=4))
    assert (config.top_k, config.top_p, config.temperature, config.banned_ids, config.end_ids) == (
        None,
        None,
        0,
        (4,),
        (3,),
    )
    with pytest.raises(UserError, match="beams=2 and temperature=1"):
        configured(own, GenerateSettings(max_new_tokens=2, beams=2, temperature=1.0))
    with pytest.raises(UserError, match="expected a model that writes"):
        generated("vision")
