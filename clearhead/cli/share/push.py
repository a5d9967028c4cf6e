"""`clearhead push`: a saved model to a repository on the Hugging Face hub."""

import tempfile
from pathlib import Path

from clearhead.api import load
from clearhead.checkpoints.weights.hub import locate
from clearhead.checkpoints.weights.upload import upload
from clearhead.cli.options import tell


def push_command(name: str, repository: str, *, private: bool, revision: str | None) -> None:
    """Saves the model in the form of other libraries, uploads it and prints the address."""
    tell(f"reading {name}")
    model = load(locate(name, revision=revision))
    with tempfile.TemporaryDirectory() as temporary:
        # The card is named after its folder.
        folder = model.save(Path(temporary) / (repository.rpartition("/")[2] or "model"))
        tell(f"uploading to {repository}")
        print(upload(folder, repository, private=private), flush=True)
