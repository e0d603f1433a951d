"""`determined.common.api`: of its REST bindings only the errors are here, for code that catches them."""

from stoker.compat.determined.common.api import errors

__all__ = ["errors"]
