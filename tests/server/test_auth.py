"""Who is let in."""

import gzip
import http.client
import re
from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.server.auth import is_token
from tests.server.asking import API, BEARER, Answer, ask
from tests.server.conftest import TOKEN, Served

pytestmark = pytest.mark.slow

JOBS = f"{API}/jobs"


def test_health_needs_no_token_and_tells_none(served: Served) -> None:
    answer = ask(served, "GET", f"{API}/health", headers={})

    assert answer.status == 200
    assert answer.json["name"] == "stoker"
    assert answer.json["url"] == served.address.url
    assert TOKEN.encode() not in answer.body


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer "}, {"Cookie": "x=y"}],
)
@pytest.mark.parametrize("path", [JOBS, f"{API}/pools", f"{API}/openapi.json", f"{API}/events", "/nowhere"])
def test_everything_else_needs_the_token(served: Served, headers: dict[str, str], path: str) -> None:
    answer = ask(served, "GET", path, headers=headers)

    assert answer.status == 401
    assert "token" in answer.json["error"].lower()


def test_token_opens(served: Served) -> None:
    assert ask(served, "GET", JOBS).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1"])
def test_other_names_for_this_machine_are_refused(served: Served, host: str) -> None:
    answer = ask(served, "GET", JOBS, headers={**BEARER, "Host": host})

    assert answer.status in (400, 421)


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:99", "LOCALHOST"])
def test_loopback_names_are_answered(served: Served, host: str) -> None:
    assert ask(served, "GET", JOBS, headers={**BEARER, "Host": host}).status == 200


def test_large_json_is_refused_before_it_is_read(served: Served) -> None:
    answer = ask(served, "POST", JOBS, headers={**BEARER, "Content-Length": str(1 << 40)})

    assert answer.status == 413


def test_large_body_that_does_not_say_its_size_is_refused(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    headers = {**BEARER, "Transfer-Encoding": "chunked", "Content-Type": "application/json"}

    connection.request("POST", JOBS, body=iter([b" " * 4_200_000]), headers=headers, encode_chunked=True)

    assert connection.getresponse().status in (400, 413)
    connection.close()


# --- the page and its cookie


def test_page_takes_the_token_into_a_cookie_that_scripts_cannot_read(served: Served) -> None:
    answer = ask(served, "GET", f"/?token={TOKEN}", headers={})

    assert answer.status == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()

    page = ask(served, "GET", "/", headers={"Cookie": cookie.partition(";")[0]})
    assert page.status == 200
    assert b"<title>stoker</title>" in page.body
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert ask(served, "GET", JOBS, headers={"Cookie": cookie.partition(";")[0]}).status == 200


def test_page_without_its_key_says_where_to_find_it(served: Served) -> None:
    for path in ("/", "/?token=wrong"):
        answer = ask(served, "GET", path, headers={})
        assert answer.status == 401
        assert b"stoker server status" in answer.body
        assert "set-cookie" not in answer.headers


def test_page_is_whole_and_has_no_inline_script(served: Served) -> None:
    cookie = {"Cookie": f"stoker_{served.port}={TOKEN}"}
    page = ask(served, "GET", "/", headers=cookie).body.decode()

    assert "onclick" not in page
    paths = re.findall(r'(?:src|href)="(/ui/[^"]+)"', page)
    assert {path.rpartition("/")[2] for path in paths} >= {"all.js", "theme-first.js", "all.css"}
    for path in paths:
        file = ask(served, "GET", path, headers={"Accept-Encoding": "gzip"})
        assert file.status == 200
        assert "immutable" in file.headers["cache-control"]
        assert b"innerHTML" not in gzip.decompress(file.body)
    assert not re.search(r"<script(?![^>]* src=)", page)


@pytest.mark.parametrize("path", ["/ui/x/../../auth.py", "/ui/x/%2e%2e/app.py", "/ui/x/index.html"])
def test_page_gives_out_its_own_files_only(served: Served, path: str) -> None:
    assert ask(served, "GET", path, headers={}).status == 404


def test_sign_in_takes_the_token_from_our_own_form_only(served: Served) -> None:
    ours = {"Origin": served.address.url, "Content-Type": "application/x-www-form-urlencoded"}

    def sign_in(token: str, headers: dict[str, str]) -> Answer:
        return ask(served, "POST", "/jobs/mine?tab=logs", body=f"token={token}".encode(), headers=headers)

    assert sign_in(TOKEN, {**ours, "Origin": "http://127.0.0.1:1"}).status == 403
    wrong = sign_in("wrong", ours)
    assert wrong.status == 401
    assert "set-cookie" not in wrong.headers
    right = sign_in(TOKEN, ours)
    assert (right.status, right.headers["location"]) == (303, "/jobs/mine?tab=logs")
    assert "HttpOnly" in right.headers["set-cookie"]


def test_cookie_changes_things_from_our_own_page_only(served: Served) -> None:
    cookie = {"Cookie": f"stoker_{served.port}={TOKEN}"}
    path = f"{API}/jobs/nope/cancel"

    def status(**more: str) -> int:
        return ask(served, "POST", path, headers={**cookie, **more}).status

    assert status() == 401
    assert status(Origin="http://127.0.0.1:1") == 401
    assert status(Origin="null") == 401
    assert status(Origin=served.address.url) == 404


def test_empty_token_opens_nothing() -> None:
    assert not is_token("", "")
    assert not is_token(None, "")


@pytest.mark.parametrize("content", ["", "short", "\n"])
def test_home_refuses_a_token_that_is_too_short(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)

    with pytest.raises(UsageError, match="fewer than the 32"):
        Home(tmp_path).token()
