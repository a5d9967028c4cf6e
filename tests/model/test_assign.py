"""A network around given tensors: the tensors themselves, checked before anything is allocated."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.assign import assemble, new_head
from clearhead.storage.checkpoints import Checkpoint, write_folder
from clearhead.storage.tensors import model_tensors
from tests import processes
from tests.architecture.source import ROOT
from tests.model import small
from tests.model.small import assert_close, ids

WHERE = "model.safetensors"
IMAGE = c.PatchInput(image_size=8, patch_size=4)
CONFIGS = {
    **{name: c.ModelConfig(encoder=small.stack(**each), decoder=small.stack(**each), share_embeddings=True)
       for name, each in small.PAIRS.items()},
    "untied": c.ModelConfig(encoder=small.stack(), decoder=small.stack(), head=c.LanguageHead(tied=False)),
    "masked words": c.ModelConfig(encoder=small.stack(), head=c.LanguageHead(transform=True, bias=True)),
    "states": c.ModelConfig(encoder=small.stack(), head=c.NoHead(pooler=True)),
}  # fmt: skip


def given(config: c.ModelConfig) -> tuple[Transformer, dict[str, Tensor]]:
    """A network, and a copy of its tensors."""
    network = small.shaken(Transformer(config))
    return network, {name: tensor.clone() for name, tensor in model_tensors(network).items()}


def transposed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same numbers, matrices stored the other way round."""
    return {name: tensor.mT.contiguous().mT if tensor.ndim == 2 else tensor for name, tensor in tensors.items()}


def inputs(config: c.ModelConfig) -> list[Tensor]:
    return [ids(2, 6, seed=i) for i in range((config.encoder is not None) + (config.decoder is not None))]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_parameters_are_the_given_tensors(name: str):
    network, tensors = given(CONFIGS[name])
    state = torch.get_rng_state()
    assembled = assemble(network.config, transposed(tensors), where=WHERE)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.requires_grad and p.device.type == "cpu" for p in assembled.parameters())
    ours, reference = (dict(n.named_parameters(remove_duplicate=False)) for n in (assembled, network))
    assert list(ours) == list(reference)
    assert [ours[a] is ours[b] for a in ours for b in ours] == [
        reference[a] is reference[b] for a in ours for b in ours
    ]
    assert_close(assembled.eval()(*inputs(network.config)), network(*inputs(network.config)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_nothing_is_copied(dtype: torch.dtype):
    network, tensors = given(CONFIGS["masked words"])
    tensors = transposed({name: tensor.to(dtype) for name, tensor in tensors.items()})
    assembled = assemble(network.config, tensors, where=WHERE)
    for name, parameter in model_tensors(assembled).items():
        assert parameter.data_ptr() == tensors[name].data_ptr()
        assert (parameter.dtype, parameter.stride()) == (dtype, tensors[name].stride())
    assert assembled.eval()(ids(2, 6)).dtype == dtype


def test_transposed_views_train_and_are_saved(tmp_path):
    """From a file that is mapped into memory, matrices stored the other way round."""
    network, tensors = given(CONFIGS["masked words"])
    stored = {name: tensor.mT.contiguous() if tensor.ndim == 2 else tensor for name, tensor in tensors.items()}
    save_file(stored, tmp_path / WHERE)
    before = (tmp_path / WHERE).read_bytes()
    views = {name: tensor.mT if tensor.ndim == 2 else tensor for name, tensor in load_file(tmp_path / WHERE).items()}
    assembled = assemble(network.config, views, where=WHERE)
    logits = []
    for trained in (network.train(), assembled):
        optimizer = torch.optim.AdamW(trained.parameters(), lr=0.01)
        trained(ids(2, 6)).logsumexp(-1).square().mean().backward()
        optimizer.step()
        logits.append(trained.eval()(ids(2, 6)))
    assert_close(logits[1], logits[0])
    assert (tmp_path / WHERE).read_bytes() == before, "training changed the file"
    folder = write_folder(tmp_path / "saved", Checkpoint(tensors={WHERE: model_tensors(assembled)}))
    twin = assemble(network.config, load_file(folder / WHERE), where=WHERE)
    assert torch.equal(twin.eval()(ids(2, 6)), logits[1])


# --- refusals -----------------------------------------------------------------------------------------------


class Allocations(TorchDispatchMode):
    """Numbers of the tensors that appear with memory."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        new = [x for x in tree_leaves(result) if isinstance(x, Tensor) and not x.is_meta]
        self.numbers += sum(x.numel() for x in new)
        return result


TABLE = "encoder.embed.tokens.weight"
CHANGES: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "missing": ({TABLE: None}, f"{TABLE}: expected a tensor of shape [13, 16], got none"),
    "misshapen": ({TABLE: torch.zeros(13, 17)}, f"{TABLE}: expected shape [13, 16], got [13, 17]"),
    "extra": ({"lm.head": torch.zeros(2)}, "lm.head: expected no such tensor, got one of shape [2]"),
    "tied twice": (
        {"head.output.weight": torch.zeros(13, 16)},
        "head.output.weight: expected no such tensor, got one of shape [13, 16]",
    ),
    "integers": ({TABLE: torch.zeros(13, 16, dtype=torch.int8)}, f"{TABLE}: expected float numbers, got int8"),
    "norm": (
        {"encoder.blocks.1.ffn_norm.bias": None},
        "encoder.blocks.1.ffn_norm.bias: expected a tensor of shape [16], got none",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_tensor_is_named_before_anything_is_allocated(name: str):
    network, tensors = given(CONFIGS["masked words"])
    changes, message = CHANGES[name]
    tensors = {name: tensor for name, tensor in (tensors | changes).items() if tensor is not None}
    with Allocations() as allocated, pytest.raises(UserError) as error:
        assemble(network.config, tensors, where=WHERE)
    assert str(error.value) == f"{WHERE}:{message}; try the config.json it was saved with"
    assert allocated.numbers == 0


def test_errors_use_the_name_in_the_file():
    network, tensors = given(CONFIGS["masked words"])
    del tensors[TABLE]
    with pytest.raises(UserError, match=r"^model.safetensors:wte.weight: expected a tensor"):
        assemble(network.config, tensors, where=WHERE, called=lambda name: {TABLE: "wte.weight"}.get(name, name))


@pytest.mark.parametrize("positions", [c.Learned(max_length=2**32), c.Rotary(), c.ALiBi()])
def test_an_enormous_config_without_its_tensors_costs_nothing(positions: c.Positions):
    stack = small.stack(
        input=c.TokenInput(vocab_size=2**32), d_model=100_000, n_heads=1000, d_ff=2**32, positions=positions
    )
    with (
        Allocations() as allocated,
        pytest.raises(UserError, match=r"expected a tensor of shape \[4294967296, 100000\]"),
    ):
        assemble(c.ModelConfig(decoder=stack), {}, where=WHERE)
    assert allocated.numbers < 1000, "more than the frequencies of one head"


def test_assembling_and_its_summary_load_no_compiler():
    code = """
import sys, torch
from clearhead.checkpoints.families import preset
from clearhead.model.assign import assemble
from clearhead.model.meta import unallocated, weights_of
from clearhead.model.summary import summarize
before = "torch._dynamo" in sys.modules
for name in ("llama-tiny", "vit-tiny", "demo"):
    config = preset(name)
    summarize(config)
    wanted = weights_of(unallocated(config))
    network = assemble(config, {n: torch.empty(w.shape) for n, w in wanted.items() if not w.tied_to}, where="here")
sys.exit("torch._dynamo" in sys.modules and not before)
"""
    assert processes.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# --- another head -------------------------------------------------------------------------------------------


def test_a_new_head_leaves_the_rest_and_draws_its_output():
    network, tensors = given(CONFIGS["states"])
    tensors = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    head = c.ClassificationHead(n_labels=3, pooler=True)
    config, changed = new_head(network.config, tensors, head)
    assert config == network.config.model_copy(update={"head": head})
    assert changed.keys() - tensors.keys() == {"head.output.weight", "head.output.bias"}
    assert all(changed[name] is tensor for name, tensor in tensors.items()), "the pooler is kept"
    assembled = assemble(config, changed, where=WHERE)
    assert {p.dtype for p in assembled.parameters()} == {torch.bfloat16}
    output = changed["head.output.weight"].float()
    assert output.std().item() == pytest.approx(config.init.std, rel=0.5)


def test_a_new_head_in_place_of_another():
    network, tensors = given(c.ModelConfig(encoder=small.stack(), head=c.ClassificationHead(n_labels=3, pooler=True)))
    other, changed = new_head(network.config, tensors, c.ClassificationHead(n_labels=3, transform=True))
    assert "head.pooler.weight" not in changed
    assert not torch.equal(changed["head.output.weight"], tensors["head.output.weight"])
    assemble(other, changed, where=WHERE)
    tied, changed = new_head(network.config, tensors, c.LanguageHead(tied=True))
    assert assemble(tied, changed, where=WHERE)(ids(1, 3)).shape == (1, 3, small.VOCAB)
    states, changed = new_head(network.config, tensors, c.NoHead())
    assert assemble(states, changed, where=WHERE)(ids(1, 3)).shape == (1, 3, 16)


def test_a_head_that_cannot_be_is_refused():
    stack = small.stack(input=IMAGE, positions=c.Learned(max_length=IMAGE.length))
    network, tensors = given(c.ModelConfig(encoder=stack, head=c.NoHead()))
    with pytest.raises(UserError, match=r"^head: expected one for this network, got language; .*reads tokens"):
        new_head(network.config, tensors, c.LanguageHead())
