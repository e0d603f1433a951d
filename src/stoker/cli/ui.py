"""`stoker ui`: the page, opened by someone who may see it."""

import os
import sys
from argparse import BooleanOptionalAction

from stoker.cli.server import page_url
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser


def build(parser: Parser) -> None:
    parser.be_command(show, example="stoker ui")
    parser.add_argument(
        "--open",
        action=BooleanOptionalAction,
        help="open it in the browser, too (default: on a terminal of a machine with a screen)",
    )


def show(arguments: Arguments) -> None:
    from stoker.client.client import connect

    url = page_url(connect())
    print(url)
    if arguments.open or (arguments.open is None and _is_before_a_screen()):
        import webbrowser

        if not webbrowser.open(url):
            say("No browser could be opened from here; the address is above.")


def _is_before_a_screen() -> bool:
    """Whether somebody sees what is opened. Elsewhere a browser of letters might, and would take the terminal."""
    has_screen = sys.platform == "darwin" or any(os.environ.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return sys.stdout.isatty() and has_screen
