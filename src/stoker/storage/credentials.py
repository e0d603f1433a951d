"""Whether there are credentials for Google Cloud Storage. Light: every supervisor asks at its start."""

import os
from collections.abc import Mapping

CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
# Credentials that are none, for clients that will not start without: a token that never needs to be refreshed.
ANONYMOUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stoker-anonymous.json")


def has_credentials(environment: Mapping[str, str]) -> bool:
    """Whether the user has set some; stoker's own anonymous ones are none."""
    given = environment.get(CREDENTIALS, "")
    return bool(given) and os.path.basename(given) != os.path.basename(ANONYMOUS)
