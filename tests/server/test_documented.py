"""docs/server.md knows every route, query and option."""

import re
from pathlib import Path

import pytest

from stoker.compat.commands.determined.det import call
from stoker.errors import UsageError
from stoker.server.routes.logs import LogQuery
from stoker.server.settings import Config, PoolConfig
from tests.server.asking import API, ask
from tests.server.conftest import Served

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()


def test_every_route_is_in_the_table_with_its_methods(served: Served) -> None:
    paths = ask(served, "GET", f"{API}/openapi.json").json["paths"]
    routes = {(method.upper(), path.removeprefix(API)) for path, methods in paths.items() for method in methods}
    table = PAGE.partition("## REST API")[2]
    listed = set()
    for words in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE):
        methods: list[str] = []
        for *before, path in (one.split() for one in re.findall(r"`([^`]*)`", words)):
            methods = before or methods  # said once for those that follow
            listed |= {(method, path) for method in methods}

    assert routes - listed == set()
    assert listed - routes == set()


def test_det_dev_names_an_address_that_is_served(served: Served) -> None:
    with pytest.raises(UsageError) as raised:
        call(["dev", "curl"])
    path = re.findall(r"/api/\S+\.json", str(raised.value))

    assert path == [f"{API}/openapi.json"]
    assert ask(served, "GET", path[0]).json["info"]["title"] == "stoker"


@pytest.mark.parametrize("name", [*Config.model_fields, *PoolConfig.model_fields, *LogQuery.model_fields])
def test_every_option_and_query_is_documented(name: str) -> None:
    assert name in PAGE
