"""The page comes in few files: all of its scripts are one, whatever its address."""

import re

import pytest

from stoker.server.live.wakeups import Wakeups
from stoker.server.page_bundle import bundle
from stoker.server.page_files import files_of_page
from stoker.server.routes.page import ADDRESSES
from stoker.server.store.store import Store
from stoker.server.views.columns import TrialColumns
from tests.processes import wait_until
from tests.server.asking import ask
from tests.server.conftest import TOKEN, Served

pytestmark = pytest.mark.slow


def test_addresses_are_those_of_the_router() -> None:
    router = files_of_page().files["js/core/route.js"].content.decode()
    routes = re.findall(r'\["(/[^"]*)", "\w+", \(\) => import\("\.\./pages/\w+\.js"\)\]', router)

    assert tuple(re.sub(r":(\w+)", r"{\1}", pattern) for pattern in routes) == ADDRESSES


@pytest.mark.parametrize("path", ["/", "/jobs/taxi", "/models/m"])
def test_page_names_one_script_and_one_style_beside_the_theme(served: Served, path: str) -> None:
    cookie = ask(served, "GET", f"/?token={TOKEN}", headers={}).headers["set-cookie"].partition(";")[0]

    page = ask(served, "GET", path, headers={"Cookie": cookie}).body.decode()

    named = set(re.findall(r'(?:src|href)="/ui/\w+/([^"]+)"', page))
    assert named == {"js/theme-first.js", "js/all.js", "css/all.css", "icon.svg"}
    assert all(files_of_page().get(path) for path in named)


def test_bundle_has_every_module_once_and_no_import_is_left() -> None:
    files = files_of_page().files
    text = files["js/all.js"].content.decode()
    names = [name for name in files if name.startswith("js/") and name not in ("js/all.js", "js/theme-first.js")]

    assert [text.count(f'"{name}": () => {{') for name in names] == [1] * len(names)
    assert not re.search(r"^import\b|\bimport\(", text, re.MULTILINE)
    assert re.findall(r"^export .*", text, re.MULTILINE) == [
        "export function use(name) { return (made[name] ??= modules[name]()); }"
    ]


@pytest.mark.parametrize(
    "line", ['import "./x.js";', "export default 1;", 'export { a } from "./x.js";', "export let a;"]
)
def test_bundle_refuses_what_it_would_get_wrong(line: str) -> None:
    with pytest.raises(AssertionError, match="cannot bundle"):
        bundle({"js/app.js": f"{line}\n"}, first="js/app.js")


def test_what_the_page_of_a_job_asks_for_is_made_when_somebody_who_may_opens_it(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[str] = []
    monkeypatch.setattr(TrialColumns, "prepare", lambda _self, job: prepared.append(job))
    served: Served = request.getfixturevalue("served")
    cookie = ask(served, "GET", f"/?token={TOKEN}", headers={}).headers["set-cookie"].partition(";")[0]

    assert ask(served, "GET", "/jobs/theirs", headers={}).status == 401
    for path in ("/", "/jobs/taxi/logs", "/jobs/taxi"):
        assert ask(served, "GET", path, headers={"Cookie": cookie}).status == 200

    wait_until(lambda: prepared, what="the columns")
    assert prepared == ["taxi"]


def test_preparing_for_a_job_that_there_is_not_is_nobodys_trouble(store: Store, wakeups: Wakeups) -> None:
    TrialColumns(store, wakeups).prepare("nobody")
