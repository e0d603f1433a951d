"""The registry's part of the store: the contract on both databases."""

from collections.abc import Iterator

import pytest

from stoker.server.store.store import Store, open_store
from tests.contracts.models import ModelStoreContract


class TestSqliteModelStore(ModelStoreContract):
    """On a file; the fixture is the server's."""


@pytest.mark.slow
class TestPostgresModelStore(ModelStoreContract):
    """On a database."""

    @pytest.fixture
    def store(self, database: str) -> Iterator[Store]:
        store = open_store(database)
        yield store
        store.close()
