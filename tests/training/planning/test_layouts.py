from dataclasses import replace

import pytest

from clearhead.checkpoints.families import preset
from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.recipe.training import Muon, Training
from clearhead.training.planning.layouts import (
    GB,
    KNOWN,
    LATENCY,
    LINK_SHARE,
    Alternative,
    Hardware,
    Job,
    command,
    hardware,
    option_effects,
    plan,
)

GPT2 = preset("gpt2")
H100 = KNOWN["h100"]
TOO_MANY = (
    "--batch: expected at least a sequence of 512 tokens for each of 1024 GPUs, got 64 sequences;"
    " try --batch 524288, or fewer --gpus"
)


def job(config: ModelConfig = GPT2, *, batch: int = 1 << 17, training: Training | None = None) -> Job:
    return Job(config, training or Training(), 0, 512, batch, 10**9)


def best(machine: Hardware = H100, gpus: int = 1, of: Job | None = None) -> Alternative:
    found = plan(of or job(), machine, gpus).chosen
    assert found is not None
    return found


def wide(gb: float) -> Hardware:
    return replace(H100, memory=int(gb * GB))


def large() -> ModelConfig:
    """7 thousand million parameters, of which nothing is allocated."""
    assert GPT2.decoder is not None
    stack = GPT2.decoder.model_copy(update={"d_model": 4096, "n_heads": 32, "d_ff": 16384, "n_layers": 32})
    return GPT2.model_copy(update={"decoder": stack})


def test_one_gpu_needs_no_layout() -> None:
    found, chosen = plan(job(), wide(40), 1), best(wide(40))
    assert [one.name for one in found.alternatives] == ["one GPU"]
    assert chosen.times.data == chosen.times.tensor == 0
    assert command(found, "lm") == "clearhead train lm --training.max_tokens 65536 --training.accumulate 2"


def test_less_memory_asks_for_smaller_batches_then_for_shards() -> None:
    plenty, some, little = (best(wide(gb), 8) for gb in (80, 7, 2.2))
    assert [one.name for one in (plenty, some, little)] == ["ddp x 8", "ddp x 8", "fsdp x 8"]
    assert not some.setting.checkpointed
    assert plenty.setting.accumulate < some.setting.accumulate
    for found in (plenty, some, little):
        assert found.shape.rows * found.setting.accumulate * 8 * 512 == 1 << 17


def test_large_models_are_shared_out() -> None:
    found = plan(job(large(), batch=1 << 20), H100, 64)
    assert not found.alternatives[0].fits  # 16 bytes a parameter
    assert plan(job(large()), wide(10), 8).chosen is None
    line = command(found, "big.toml")
    assert line.startswith("torchrun --nnodes 8 --nproc-per-node 8 ")
    assert "-m clearhead train big.toml --training.max_tokens " in line
    assert "--training.parallel fsdp" in line


def test_tensor_ranks_stay_in_a_node_and_divide_heads() -> None:
    found = plan(job(), H100, 16).alternatives
    names = ["ddp x 16", "fsdp x 16", "fsdp x 8, tensor x 2", "fsdp x 4, tensor x 4"]  # of 12 heads
    assert [one.name for one in found] == names
    assert found[2].times.tensor > 0


def test_more_gpus_are_faster_and_less_than_in_proportion() -> None:
    one, node, nodes = (best(gpus=gpus).tokens_per_second for gpus in (1, 8, 64))
    assert one < node <= 8 * one * 1.001
    assert node < nodes < 8 * node


def test_a_step_is_what_it_computes_and_what_nothing_hides() -> None:
    for one in plan(job(training=Training(optimizer=Muon())), H100, 16).alternatives:
        times = one.times
        assert times.step == pytest.approx(times.compute + times.optimizer + times.data + times.tensor - times.hidden)
        assert 0 <= times.hidden <= times.data
        assert one.hours * 3600 * one.tokens_per_second == pytest.approx(10**9)


def test_compute_is_six_flops_a_parameter_and_token_and_attention() -> None:
    flops = best().times.compute * 0.4 * H100.flops / (1 << 17)
    matrices = 124e6 - 1024 * 768
    assert 6 * matrices < flops < 1.2 * 6 * matrices


def test_levers_trade_memory_for_time() -> None:
    one = best(gpus=8)
    checkpointed, whole, explicit = (found for _, found in option_effects(job(), H100, one))
    assert checkpointed.memory.activations < one.memory.activations < explicit.memory.activations
    assert checkpointed.times.compute > one.times.compute
    assert whole.memory.logits > one.memory.logits


def test_weights_of_16_bits_are_for_one_gpu() -> None:
    one, asked = best(), job(training=Training(steps=1, weights="bf16"))
    name, halved = list(option_effects(job(), H100, one))[-1]
    assert name == "weights in bfloat16"
    assert halved.memory.resting < 0.75 * one.memory.resting
    assert best(of=asked).memory == halved.memory
    with pytest.raises(UserError, match=r"training\.weights: expected fp32 with 8 GPUs, got bf16"):
        plan(asked, H100, 8)


@pytest.mark.parametrize(
    ("gpus", "batch", "message"),
    [
        (0, 1 << 17, "--gpus: expected 1 or more, got 0; try 1"),
        (12, 1 << 17, "--gpus: expected whole nodes of 8, got 12; try 8, or give --gpus-per-node"),
        (1024, 512 * 64, TOO_MANY),
    ],
)
def test_impossible_jobs_are_refused(gpus: int, batch: int, message: str) -> None:
    with pytest.raises(UserError) as error:
        plan(job(batch=batch), H100, gpus)
    assert str(error.value) == message


def test_ring_moves_all_but_a_rank_s_share() -> None:
    n_bytes = 1e9
    assert H100.all_gather(n_bytes, 1) == 0
    assert H100.all_gather(n_bytes, 2) == pytest.approx(n_bytes / 2 / (LINK_SHARE * H100.link) + LATENCY)
    assert H100.all_reduce(n_bytes, 8) == 2 * H100.all_gather(n_bytes, 8)
    slow = H100.all_gather(n_bytes, 8, messages=10) - H100.all_gather(n_bytes, 8)
    assert slow == pytest.approx(9 * 3 * LATENCY)


def test_between_nodes_each_member_of_the_group_brings_its_card() -> None:
    assert H100.group_bandwidth(8) == LINK_SHARE * H100.link
    assert H100.group_bandwidth(16) == LINK_SHARE * 8 * H100.network
    assert H100.group_bandwidth(2, stride=8) == LINK_SHARE * H100.network
    assert H100.group_bandwidth(4, stride=2) == LINK_SHARE * H100.link


def test_figures_given_replace_those_known() -> None:
    found = hardware("a100", {"flops": 100, "memory": 40, "per_node": 4, "network": None})
    assert (found.flops, found.memory, found.per_node) == (100e12, 40_000_000_000, 4)
    assert found.network == KNOWN["a100"].network


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"flops": 0}, "--flops: expected more than 0, got 0; leave it out for that of h100"),
        ({"per_node": -8}, "--gpus-per-node: expected more than 0, got -8; leave it out for that of h100"),
    ],
)
def test_impossible_machines_are_refused(figures: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}$"):
        hardware("h100", figures)
