"""The page names the scripts that it needs first, for each of its addresses."""

import re

import pytest

from stoker.server.files import files_of_page
from stoker.server.routes.page import ADDRESSES
from tests.server.asking import ask
from tests.server.conftest import TOKEN, Served

pytestmark = pytest.mark.slow


def test_addresses_are_those_of_the_router() -> None:
    router = files_of_page().files["js/core/route.js"].content.decode()
    routes = re.findall(r'\["(/[^"]*)", "\w+", \(\) => import\("\.\./pages/(\w+)\.js"\)\]', router)

    assert {re.sub(r":(\w+)", r"{\1}", pattern): module for pattern, module in routes} == ADDRESSES


@pytest.mark.parametrize("path", ["/", "/jobs/taxi", "/models/m"])
def test_page_names_its_scripts_and_those_they_import(served: Served, path: str) -> None:
    cookie = ask(served, "GET", f"/?token={TOKEN}", headers={}).headers["set-cookie"].partition(";")[0]
    module = ADDRESSES[re.sub(r"(?<=.)/(taxi|m)$", lambda found: {"taxi": "/{job}", "m": "/{name}"}[found[1]], path)]

    page = ask(served, "GET", path, headers={"Cookie": cookie}).body.decode()

    named = set(re.findall(r'modulepreload" href="/ui/\w+/([^"]+)"', page))
    assert {"js/app.js", f"js/pages/{module}.js", "js/core/dom.js"} <= named
    assert all(files_of_page().get(path) for path in named)
    assert (f"js/pages/{'experiment' if module != 'experiment' else 'jobs'}.js") not in named
