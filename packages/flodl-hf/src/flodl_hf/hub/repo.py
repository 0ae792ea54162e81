"""Names of repositories: an owner and a name, never a bare name."""

from __future__ import annotations

import re

from flodl_hf.errors import RepoIdError

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_REPO = re.compile(rf"{_PART}/{_PART}")
_OWNERS = (
    (re.compile(r"bert-(base|large)-.+"), "google-bert"),
    (re.compile(r"(xlm-)?roberta-(base|large)|roberta-large-mnli"), "FacebookAI"),
    (re.compile(r"distilbert-base-.+"), "distilbert"),
    (re.compile(r"albert-(base|large|xlarge|xxlarge)-v[12]"), "albert"),
    (re.compile(r"m?deberta-v[23]-.+"), "microsoft"),
)


def check_repo_id(name: str) -> str:
    """Return a legal ``owner/name``.

    Raises:
        RepoIdError: It is none; for a well-known bare name it suggests the owner.
    """
    if _REPO.fullmatch(name) and ".." not in name and "--" not in name:
        return name
    owner = next((owner for pattern, owner in _OWNERS if pattern.fullmatch(name)), None)
    raise RepoIdError(
        f"{name!r} is no local directory, and no repository id: that is owner/name, of letters, "
        "digits, '-', '_' and '.'",
        hint=f"did you mean {owner}/{name}?" if owner else "check the spelling of the path or id",
    )
