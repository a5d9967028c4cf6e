"""The whole network: against PyTorch's own, from its first loss on, and what it says to a wrong call."""

import math

import pytest
import torch
from torch import nn

from clearhead import config as c
from clearhead.config.adapter import AdapterConfig
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.adapter import adapt
from clearhead.model.summary import summarize
from tests.model import small
from tests.model.small import ids

# --- the first loss -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tied", "scale"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("norm", small.NORMS)
@pytest.mark.parametrize("shape", ["decoder", "encoder_decoder"])
def test_first_loss_is_about_ln_v(tied: bool, scale: bool, norm: str, shape: str):
    v = 500
    stack = small.stack(
        input=c.TokenInput(vocab_size=v, scale=scale), d_model=128, d_ff=256, n_layers=3, **small.NORMS[norm]
    )
    for matrices in ("normal", "xavier"):
        network = Transformer(
            c.ModelConfig(
                encoder=stack if shape == "encoder_decoder" else None,
                decoder=stack,
                head=c.LanguageHead(tied=tied),
                init=c.Init.model_validate({"matrices": matrices}),
            )
        )
        text = torch.randint(0, v, (4, 33))
        source = [torch.randint(0, v, (4, 20))] if shape == "encoder_decoder" else []
        with torch.no_grad():
            logits = network(*source, text[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        assert loss.item() == pytest.approx(math.log(v), abs=0.5), matrices


def test_depth_scaling_shrinks_what_writes_to_the_residual_stream():
    stack = small.stack(d_model=64, d_ff=128, n_layers=4)
    networks = [
        Transformer(c.ModelConfig(encoder=stack, decoder=stack, init=c.Init(depth_scaled=scaled)))
        for scaled in (True, False)
    ]
    for name in ("encoder.blocks.1.attn.out", "decoder.blocks.3.cross.out", "decoder.blocks.0.ffn.down"):
        scaled, plain = (n.get_parameter(f"{name}.weight").std().item() for n in networks)
        branches = 8 if name.startswith("encoder") else 12
        assert scaled / plain == pytest.approx(branches**-0.5, rel=0.1)
    plain = networks[1].get_parameter("encoder.blocks.0.attn.q.weight").std().item()
    assert plain == pytest.approx(0.02, rel=0.1)


# --- tying and calling --------------------------------------------------------------------------------------


def test_tied_and_shared_tables_are_one_tensor():
    network = small.encoder_decoder()
    table = network.get_parameter("encoder.embed.tokens.weight")
    assert network.get_parameter("decoder.embed.tokens.weight") is table
    assert network.get_parameter("head.output.weight") is table
    network.load_state_dict({name: value.clone() for name, value in network.state_dict().items()}, assign=True)
    network.tie()
    assert network.get_parameter("head.output.weight") is network.get_parameter("encoder.embed.tokens.weight")


def test_untied_tables_are_their_own():
    stack = small.stack()
    network = Transformer(c.ModelConfig(encoder=stack, decoder=stack, head=c.LanguageHead(tied=False)))
    names = ("encoder.embed.tokens.weight", "decoder.embed.tokens.weight", "head.output.weight")
    assert len({id(network.get_parameter(name)) for name in names}) == 3


def test_blocks_of_a_group_are_one():
    network = small.encoder(n_layers=6, n_groups=2)
    blocks = network.last_stack.blocks
    found = [block.get_parameter("attn.q.weight") for block in blocks]
    assert [weight is found[0] for weight in found] == [True] * 3 + [False] * 3
    assert summarize(network.config).parameters == sum(p.numel() for p in network.parameters())
    assert network.config.output.repeats == 3
    with pytest.raises(UserError, match="adapter: expected blocks with weights of their own, got n_groups=2"):
        adapt(network, AdapterConfig())


def test_a_wrong_number_of_inputs_is_named():
    with pytest.raises(UserError, match=r"has 2 stack\(s\).*got 1"):
        small.encoder_decoder()(ids(1, 3))
    with pytest.raises(UserError, match=r"has 1 stack\(s\).*got 2"):
        small.decoder()(ids(1, 3), ids(1, 3))


@pytest.mark.parametrize("positions", small.POSITIONS)
def test_on_meta_and_then_on_the_machine(positions: str):
    """A network built without memory and then given weights is whole: nothing is left behind on meta."""
    network = small.decoder(**small.POSITIONS[positions])
    with torch.device("meta"):
        late = Transformer(network.config)
    late.load_state_dict(network.state_dict(), assign=True)
    late.tie()
    assert torch.equal(late.eval()(ids(1, 5)), network(ids(1, 5)))


@pytest.mark.parametrize("positions", small.POSITIONS)
def test_bfloat16_positions_are_as_exact_as_the_weights(positions: str):
    """Far from 0 a position rounded to bfloat16 would be another position."""
    network = small.decoder(**small.POSITIONS[positions], n_layers=1)
    where = torch.arange(6)[None] + (1001 if positions != "learned" else 0)
    tokens = Tokens(ids(1, 6), positions=where)
    with torch.no_grad():
        reference = network(tokens)
        rounded = network.bfloat16()(tokens).float()
    assert (rounded - reference).abs().max() < 0.05 * reference.abs().max()
