"""A place of the explorer: how long each token's state is after each block."""

from typing import TypedDict

from clearhead.explorer.places import OfRun, Opened, Place, Reply


class Lengths(TypedDict):
    """The length of the state of each token, by the address of the states."""

    tokens: dict[str, list[str]]
    lengths: dict[str, list[float]]


def state_lengths(opened: Opened, question: OfRun) -> Reply[Lengths]:
    """‖x_t‖ after each block, of the run that the page shows."""
    recording = opened.passes.get(question.run).recording
    states = {at: recording.value(at) for at in recording.tensors if at.endswith(".resid_post")}
    return Reply(
        {
            "tokens": {stack: [token.text for token in row] for stack, row in recording.tokens.items()},
            "lengths": {at: value.norm(dim=-1).tolist() for at, value in states.items()},
        }
    )


PLACE = Place(state_lengths, title="Lengths of states", script="state_lengths.js")
