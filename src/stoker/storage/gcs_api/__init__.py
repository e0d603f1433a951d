"""Google Cloud Storage's JSON API over the mapping of buckets, for code that talks to it by itself."""

from stoker.storage.gcs_api.lazy_gateway import LazyGateway, is_needed, variables

__all__ = ["LazyGateway", "is_needed", "variables"]
