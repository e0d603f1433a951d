"""Keep old clients anonymous: google-auth of before 2020 passes over the token in stoker's credentials file."""

from __future__ import annotations

from typing import Any

_OWN = "stoker"  # client_id of storage/stoker-anonymous.json


def lead(module: Any) -> None:
    """Of google.oauth2.credentials: credentials that are stoker's are never asked of Google."""
    refresh = module.Credentials.refresh

    def call(self: Any, request: Any) -> Any:
        if getattr(self, "_client_id", None) != _OWN:
            return refresh(self, request)
        self.token, self.expiry = "anonymous", None
        return None

    module.Credentials.refresh = call
