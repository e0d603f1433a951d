"""`stoker ui`: the page, opened by someone who may see it."""

from stoker.cli.output import say
from stoker.cli.parser import Arguments, Parser
from stoker.cli.server import page_url


def build(parser: Parser) -> None:
    parser.be_command(show, example="stoker ui --open")
    parser.add_argument("--open", action="store_true", help="open it in the browser, too")


def show(arguments: Arguments) -> None:
    from stoker.client import connect

    url = page_url(connect())
    print(url)
    if arguments.open:
        import webbrowser

        if not webbrowser.open(url):
            say("No browser could be opened from here; the address is above.")
