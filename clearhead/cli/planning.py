"""`clearhead plan` and `profile`."""

from typing import Annotated, Literal

from cyclopts import Parameter

from clearhead.cli.options import DeviceName, OneObject


def plan(
    config: str,
    /,
    *,
    gpus: int = 1,
    gpu: Literal["h100", "h200", "a100", "cpu"] = "h100",
    flops: float | None = None,
    memory: float | None = None,
    bandwidth: float | None = None,
    gpus_per_node: int | None = None,
    network: float | None = None,
    tokens: int | None = None,
    batch: int | None = None,
    length: int | None = None,
    mfu: float = 0.4,
    json: OneObject = False,
) -> None:
    """Reckon what training costs on 1 to 1,024 GPUs: memory, communication, hours, and the line that starts it.

    Runs nothing. It takes the simplest layout that fits: copies (ddp), then shards (fsdp), then blocks divided inside a
    node too (tensor); with more, smaller batches an update, and blocks computed again, where memory asks for it.

    Args:
        config: A recipe (name or .toml file), folder of a model or run, or an architecture by name, such as gpt2.
        gpus: How many; above one node, a multiple of --gpus-per-node.
        gpu: Whose figures to take, where none are given below.
        flops: TFLOP/s of a dense bfloat16 product.
        memory: GB of a GPU.
        bandwidth: GB/s of that memory.
        gpus_per_node: GPUs joined by a fast link (default: 8).
        network: GB/s that one GPU sends to other nodes (default: 50; a100: 25).
        tokens: To train on (default: 20 for each parameter).
        batch: Tokens of an update, source and target together (default: the recipe's, or 524,288).
        length: Tokens of a sequence (default: the recipe's, or the longest the model takes).
        mfu: Share of those FLOPs that computation reaches; measure it with `clearhead profile`.
    """
    from clearhead.cli.plan.plan import plan_command

    figures = {"flops": flops, "memory": memory, "bandwidth": bandwidth, "network": network, "per_node": gpus_per_node}
    plan_command(config, gpu, figures, gpus=gpus, tokens=tokens, batch=batch, length=length, mfu=mfu, as_json=json)


def profile(
    model: str,
    /,
    *changes: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    steps: int = 5,
    batch: int | None = None,
    length: int | None = None,
    device: DeviceName | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
    json: OneObject = False,
) -> None:
    """Time a training step by component, and compare it with what this machine can do.

    Says the milliseconds and the FLOPs of each component, tokens a second, and the share of the ceiling (MFU), which is
    the rate of a large matrix product in the same type, measured on the spot. A recipe whose data are there is profiled
    on its own batches (`clearhead profile lm --data.train.paths '["book.txt"]'`), any other on random tokens.

    Args:
        model: A recipe (name or .toml file), folder of a model or run, or an architecture by name, such as gpt2.
        changes: Fields of the recipe, as for train.
        steps: Training steps to time, after two to warm up.
        batch: Tokens of a batch, source and target together (default: the recipe's, or 4,096).
        length: Tokens of a sequence (default: the recipe's, or the longest the model takes).
        device: Where to compute; auto takes a GPU if there is one.
        precision: auto takes bf16 where it is faster and the losses agree.
    """
    from clearhead.cli.plan.profile import profile_command

    short = {"device": device, "precision": precision}
    profile_command(model, changes, steps=steps, batch=batch, length=length, short=short, as_json=json)
