import pytest
import torch

from clearhead import config as c
from clearhead.analysis.lens import logit_lens
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.trace import zero
from tests.analysis.kinds import CASES, spans, traced
from tests.model import small


@pytest.mark.parametrize("name", CASES)
def test_last_layer_is_the_networks_answer(name: str):
    network, inputs = CASES[name]()
    seen, logits = traced(network, inputs)
    lens = logit_lens(network, seen, k=3)
    assert len(lens.addresses) == len(lens.ids) == 3, "the embedding and two blocks"
    last = lens.probabilities[-1], lens.logsumexp[-1], lens.ids[-1]
    probabilities, logsumexp, ids = (x[:, 0] for x in last) if logits.ndim == 2 else last
    small.assert_close(logsumexp, logits.logsumexp(-1))
    expected = logits.softmax(-1)
    small.assert_close(probabilities, expected.topk(3).values)
    small.assert_close(probabilities, expected.gather(-1, ids))


def test_an_earlier_layer_is_the_network_cut_there():
    network, inputs = CASES["decoder"]()
    seen, _ = traced(network, inputs)
    lens = logit_lens(network, seen, k=small.VOCAB)
    cut = {f"decoder.blocks.1.{part}": zero for part in ("attn.out", "ffn.out")}
    _, logits = traced(network, inputs, cut)
    real = inputs[-1].padded().real  # An edit leaves padding as it is.
    expected = logits.softmax(-1).sort(-1, descending=True).values
    small.assert_close(real(lens.probabilities[1]), real(expected))
    small.assert_close(lens.probabilities.sum(-1), torch.ones(lens.logsumexp.shape))


def test_edits_show():
    network, inputs = CASES["decoder"]()
    seen, logits = traced(network, inputs, {"decoder.blocks.0.attn.out": zero})
    small.assert_close(logit_lens(network, seen).logsumexp[-1], logits.logsumexp(-1))
    small.assert_close(logit_lens(network, seen, position=2).logsumexp[-1], logits.logsumexp(-1)[:, 2:3])


def test_k_beyond_the_vocabulary_and_refusals():
    network, inputs = CASES["tags"]()
    seen, _ = traced(network, inputs)
    assert logit_lens(network, seen, k=99).ids.shape[-1] == 3
    bare = small.shaken(Transformer(c.ModelConfig(encoder=small.stack(), head=c.NoHead())))
    for refused in (bare, spans()[0]):
        seen, _ = traced(refused, inputs)
        with pytest.raises(UserError, match="logit lens: expected a head over tokens or labels"):
            logit_lens(refused, seen)
