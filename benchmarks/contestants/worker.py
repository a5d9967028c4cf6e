"""One contestant in a process of its own: `python -m benchmarks.contestants.worker`, told what to do on standard input.

The first line in is the task; the answer to it is the facts. Each further line is `steps N`, whose answer is a turn, or
`ceiling N`, whose answer is the FLOPs a second of a product of N x N. All is JSON, a line each.
"""

import sys
from typing import Annotated, Literal, get_args

from pydantic import Field

from benchmarks.contestants.contestant import Contestant
from benchmarks.contestants.gpt import GptWorkload
from benchmarks.contestants.workload import Workload, at_random, by_length
from clearhead.config import Config

Kind = Literal[
    "clearhead", "clearhead compiled", "nn.Transformer fp32", "nn.Transformer bf16",
    "nn.Transformer fp32, random batches", "nn.Transformer bf16, random batches", "annotated fp32, random batches",
    "plain fp32", "plain bf16", "plain fp32 compiled", "plain bf16 compiled",
    "transformers fp32", "transformers bf16", "x-transformers fp32", "x-transformers bf16",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
OURS: Kind = "clearhead"
PEERS: tuple[Kind, ...] = ("nn.Transformer fp32", "nn.Transformer bf16")


class Assignment(Config):
    """Whom to be, and on what."""

    kind: Kind
    workload: Annotated[Workload | GptWorkload, Field(discriminator="kind")]
    threads: int | None


def contestant(a: Assignment) -> Contestant:
    """Built here, so that a process imports only what its side would."""
    if a.kind.startswith(OURS):
        from benchmarks.contestants.ours import Ours

        return Ours(a.workload, a.threads, compiled=a.kind.endswith("compiled"))
    bf16 = "bf16" in a.kind
    if isinstance(a.workload, Workload):
        from benchmarks.contestants.annotated import Annotated
        from benchmarks.contestants.peer import Peer, PeerTransformer

        network = Annotated if a.kind.startswith("annotated") else PeerTransformer
        plan = at_random if a.kind.endswith("random batches") else by_length
        return Peer(a.workload, a.threads, bf16=bf16, network=network, plan=plan)
    from benchmarks.contestants.gpt import PlainPyTorch, Transformers, XTransformers

    wrapped = {"transformers": Transformers, "x-transformers": XTransformers}
    return wrapped.get(a.kind.split()[0], PlainPyTorch)(
        a.workload, a.threads, bf16=bf16, compiled=a.kind.endswith("compiled")
    )


def main() -> None:
    """Answer line by line until there are no more."""
    me = contestant(Assignment.model_validate_json(sys.stdin.readline()))
    print(me.facts().model_dump_json(), flush=True)
    for line in sys.stdin:
        what, n = line.split()
        print(me.ceiling(int(n)) if what == "ceiling" else me.turn(int(n)).model_dump_json(), flush=True)


if __name__ == "__main__":
    main()
