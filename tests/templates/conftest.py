"""A home of its own for every tutorial, as the end-to-end tests have it."""

from tests.e2e.conftest import home

__all__ = ["home"]
