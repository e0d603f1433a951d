"""docs/server.md knows every route, query and option."""

from pathlib import Path

import pytest

from stoker.server.routes.logs import LogQuery
from stoker.server.settings import Config, PoolConfig
from tests.server.asking import API, ask
from tests.server.conftest import Served

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()


def test_every_route_is_documented(served: Served) -> None:
    paths = [path.removeprefix(API) for path in ask(served, "GET", f"{API}/openapi.json").json["paths"]]

    assert [path for path in paths if path not in PAGE] == []


@pytest.mark.parametrize("name", [*Config.model_fields, *PoolConfig.model_fields, *LogQuery.model_fields])
def test_every_option_and_query_is_documented(name: str) -> None:
    assert name in PAGE
