"""Uploads a folder to a repository on the hub, by the hub library's token and rules."""

from pathlib import Path

from clearhead.checkpoints.weights.documents import shown
from clearhead.errors import UserError, reason

NOT_SENT = ("MANIFEST.json", ".*")
"""Files that are not uploaded: the hub keeps its own checksums, and people may edit a file there."""


def upload(folder: Path, repository: str, *, private: bool) -> str:
    """Upload the folder's files to a repository of models, which is made if needed; returns its address.

    `private` makes a new repository visible only to its owner; an existing one stays as it is. Raises UserError, in one
    line, for an upload that fails.
    """
    import huggingface_hub

    api = huggingface_hub.HfApi()
    try:
        place = api.create_repo(repository, private=private, exist_ok=True, repo_type="model")
        api.upload_folder(
            repo_id=place.repo_id,
            folder_path=folder,
            ignore_patterns=[*NOT_SENT],
            commit_message="Upload by clearhead",
        )
    except Exception as error:  # errors of the hub library, its HTTP client and the system
        raise UserError(f"{shown(repository)}: {_explained(error)}") from error
    return str(place)


def _explained(error: Exception) -> str:
    from huggingface_hub import errors

    match error:
        case errors.HFValidationError():
            return "expected a name on the hub, such as owner/name, got another text; check the name"
        case errors.LocalTokenNotFoundError():
            return "expected a token that may write, got none; try `hf auth login`, or HF_TOKEN"
        case errors.HfHubHTTPError() if error.response.status_code == 401:
            return "expected a token that may write, got none that the hub knows; try `hf auth login`, or HF_TOKEN"
        case errors.HfHubHTTPError() if error.response.status_code in (403, 404):
            return (
                "expected a token that may write there, got one that may not; check the owner, and the token's rights"
            )
        case errors.HfHubHTTPError():
            status = f"{error.response.status_code} {error.response.reason_phrase}"
            return f"expected the hub to accept it, got {shown(status)}; try again later"
        case errors.OfflineModeIsEnabled():
            return "expected the hub, got HF_HUB_OFFLINE, which is set; try without it"
        case _:
            return f"expected to reach the hub, got {shown(reason(error))}; check the connection"
