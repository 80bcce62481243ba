"""Fetching a model's `config.json` from the Hugging Face hub, on request alone; nothing else here uses the network."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .model import UnknownModel
from .resolve import MAX_CONFIG_BYTES, forget, may_be_on_hub, resolve

if TYPE_CHECKING:
    from .model import Model

FILE = "config.json"

TIMEOUT = 20
"""Seconds that the hub has to answer."""


class FetchError(Exception):
    """Why there is no config.json of a model, in one line."""


def fetch(name: str, root: str, revision: str | None = None) -> tuple[str, Model]:
    """Write `models/ORG/NAME/config.json` under `root` and return its path and the model that it describes.

    A file that is there is replaced: that is how a model is brought up to date. Raises FetchError.
    """
    if not may_be_on_hub(name):
        raise FetchError(f"{name} is not a model id on the Hub (ORG/NAME)")
    text = _download(name, revision)
    path = os.path.join(root, "models", *name.split("/"), FILE)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text)
    except OSError as error:
        raise FetchError(f"{path} cannot be written: {error.strerror}") from None
    forget()
    try:
        return path, resolve(name, root, root)
    except UnknownModel as error:
        raise FetchError(f"wrote {os.path.relpath(path)}, but it is not usable: {error}") from None


def _download(name: str, revision: str | None) -> bytes:
    try:
        from huggingface_hub import errors, get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status
    except ImportError:
        raise FetchError("`models add` needs huggingface-hub: pip install 'gpulint[hub]'") from None
    try:
        answer = get_session().get(
            hf_hub_url(name, FILE, revision=revision), headers=build_hf_headers(), timeout=TIMEOUT
        )
        hf_raise_for_status(answer)
    except errors.GatedRepoError:
        raise FetchError(f"{name} is gated: accept its terms on the Hub, then `hf auth login`") from None
    except errors.RepositoryNotFoundError:
        raise FetchError(f"{name} is not on the Hub, or is private: `hf auth login`") from None
    except errors.RevisionNotFoundError:
        raise FetchError(f"{name} has no revision {revision}") from None
    except errors.EntryNotFoundError:
        raise FetchError(f"{name} has no {FILE}") from None
    except Exception as error:  # whatever its HTTP library raises
        raise FetchError(f"{name}: cannot reach the Hub ({type(error).__name__})") from None
    content = bytes(answer.content)
    if len(content) > MAX_CONFIG_BYTES:
        raise FetchError(f"{name}: its {FILE} is too large for one")
    return content
