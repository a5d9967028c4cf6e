"""Parts that do not learn, and parts that begin to learn later."""

import pytest
import torch

from clearhead.errors import UserError
from clearhead.storage.tensors import model_tensors
from clearhead.training.freezing import freeze
from clearhead.training.train import train
from tests.training.tiny import new_network, new_run, translation


def learnt_by(run) -> set[str]:
    """The names of the parameters that change while the run lasts."""
    before = {name: tensor.clone() for name, tensor in model_tensors(run.network).items()}
    list(train(run))
    return {name for name, tensor in model_tensors(run.network).items() if not torch.equal(tensor, before[name])}


def test_frozen_parts_do_not_change() -> None:
    run = new_run(translation(), steps=2, freeze=["embedding", "encoder.0..0", "decoder.blocks.*.ffn.*"])
    own = {name for name in model_tensors(run.network) if name.startswith("decoder.") and ".embed." not in name}
    learnt = learnt_by(run)
    assert learnt == {name for name in own if ".ffn." not in name} != own
    kept = [name for name in run.optimizer.state_tensors() if name.endswith(".step")]
    assert learnt == {name.split(".", 1)[1].removesuffix(".step") for name in kept}


@pytest.mark.parametrize("part", ["embeding", "encoder.0..1", "encoder.1", "decoder.blocks.9.*"])
def test_a_part_that_is_not_there_is_named(part: str) -> None:
    with pytest.raises(UserError, match=r"training.freeze: expected embedding, head, encoder.0..0, decoder.0..0, or a"):
        freeze(new_network(translation()), [part])


def test_parts_begin_to_learn_from_the_top() -> None:
    """Tied to the token table, this head has no weights of its own."""
    stages = [learnt_by(new_run(translation(), steps=n, unfreeze_at=[2, 3])) for n in (2, 3, 4)]
    blocks = [{name.rpartition(".blocks.")[0] for name in stage} for stage in stages]
    assert blocks == [{"decoder"}, {"decoder", "encoder"}, {"decoder", "encoder", ""}]
    assert not any(".embed." in name for name in stages[1])
