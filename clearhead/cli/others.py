"""The commands that other packages add through entry points, `clearhead lab` of clearhead-lab among them."""

from typing import Annotated

from cyclopts import Parameter

from clearhead.cli.app import app
from clearhead.errors import UserError
from clearhead.extensions import extensions

for name, where in extensions("commands").items():
    app.command(where, name=name)

if "lab" not in extensions("commands"):

    @app.command(name="lab", sort_key=13, help_epilogue="")
    def lab(*_: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> None:
        """Run the worked examples and the claims about the Transformer (pip install clearhead-lab)."""
        raise UserError("lab: expected the package clearhead-lab, got none; pip install clearhead-lab")
