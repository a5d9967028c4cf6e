"""A mixture of experts and the clamped gate, as data."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from clearhead.config.base import Config, Count

Number = Annotated[int, Field(ge=1, le=2**16)]


class Experts(Config):
    """Several feed-forward parts. A router chooses a few for each position (Shazeer et al. 2017)."""

    n: Number
    """Number of experts."""
    n_chosen: Number = 2
    """Experts that each position goes through."""
    d_ff: Count | None = None
    """Width inside an expert; default that of the stack."""
    scores: Literal["softmax", "sigmoid"] = "softmax"
    """What the router makes of its logits: probabilities that sum to 1, or one for each expert by itself."""
    normalised: bool = False
    """Divide the scores of the chosen experts by their sum."""
    scale: PositiveFloat | None = None
    """Factor on the scores of the chosen experts, after that; None for 1."""
    router_bias: bool = False
    """Bias of the router's logits."""
    correction: bool = False
    """A number for each expert that is added to its score for the choice alone (Wang et al. 2024)."""
    n_groups: PositiveInt | None = None
    """Groups of experts. The chosen ones lie in the `n_groups_chosen` best groups; None for one group."""
    n_groups_chosen: PositiveInt | None = None
    group_best: Annotated[int, Field(ge=1, le=2)] = 1
    """How many of its largest scores are summed to the score of a group."""
    shared: Count | None = None
    """Width inside one more expert, which every position goes through; None for no such expert."""
    shared_gate: bool = False
    """Multiply the result of that expert by the sigmoid of a linear map of the position's state."""
    layers: tuple[NonNegativeInt, ...] | None = None
    """Numbers of the layers with experts, from 0, in ascending order; None for all. The others have one feed-forward
    part of the stack's width."""
    balance: NonNegativeFloat = 0.0
    """Factor on the load-balancing loss, which training adds to the mean loss of a language head (Fedus et al. 2021,
    2.2). It is least where all experts are chosen equally often."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.n_chosen > self.n:
            raise ValueError(f"n_chosen={self.n_chosen} must be at most n={self.n}")
        if self.shared_gate and self.shared is None:
            raise ValueError("shared_gate=True needs shared, the width of the expert that it multiplies")
        groups, chosen = self.n_groups or 1, self.n_groups_chosen or self.n_groups or 1
        if self.n % groups:
            raise ValueError(f"n_groups={groups} must divide n={self.n}")
        if chosen > groups:
            raise ValueError(f"n_groups_chosen={chosen} must be at most n_groups={groups}")
        if self.group_best > self.n // groups:
            raise ValueError(f"group_best={self.group_best} must be at most the {self.n // groups} experts of a group")
        if self.n_chosen > chosen * (self.n // groups):
            raise ValueError(f"n_chosen={self.n_chosen} must be at most the experts of n_groups_chosen={chosen} groups")
        return self


class Clamp(Config):
    """A gate with limits: down((u + 1) g sigmoid(alpha g)), g = min(gate(x), limit), u = up(x) within +-limit."""

    alpha: PositiveFloat = 1.702
    limit: PositiveFloat = 7.0
