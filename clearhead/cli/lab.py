"""`clearhead lab` where clearhead-lab, which adds that command, is not installed."""

from typing import Annotated

from cyclopts import Parameter

from clearhead.errors import UserError


def lab(*_: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> None:
    """Run the worked examples and the claims about the Transformer (pip install clearhead-lab)."""
    raise UserError("lab: expected the package clearhead-lab, got none; pip install clearhead-lab")
