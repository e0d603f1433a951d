"""Google Cloud Storage's JSON API over the mapping of buckets, for code that talks to it by itself."""

from stoker.gateway.doorway import Doorway, is_needed, variables

__all__ = ["Doorway", "is_needed", "variables"]
