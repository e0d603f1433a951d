"""The command line's grammar on argparse: errors that are ours, help with an example, user args kept apart.

argparse, because it is imported and built in a tenth of the time that typer or click take for the flags of
`jobs submit training` (15 ms against 190 ms here), and every submit pays that.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from stoker.errors import UsageError

Arguments = argparse.Namespace
Command = Callable[[Arguments], int | None]


class Parser(argparse.ArgumentParser):
    """One command or group of commands. `run` calls the function of the command that was chosen."""

    def __init__(self, *, example: str = "", **settings: Any) -> None:
        settings.setdefault("formatter_class", _Formatter)
        epilog = f"Example:\n{_indented(example)}" if example else None
        super().__init__(allow_abbrev=False, epilog=epilog, **settings)
        self.example = example
        self.commands: dict[str, Parser] = {}
        self._subparsers_action: Any = None

    def add_command(
        self,
        name: str,
        run: Command,
        *,
        help: str,
        example: str,
        user_args: bool = False,
        usage: str | None = None,
        aliases: Sequence[str] = (),
    ) -> "Parser":
        """A verb. `example` is shown in its help, and a test asks for one of every command."""
        command = self._add(name, help=help, example=example, usage=usage, aliases=aliases)
        command.set_defaults(run=run, takes_user_args=user_args)
        return command

    def add_group(self, name: str, *, help: str) -> "Parser":
        """A verb with verbs of its own (`jobs submit training`)."""
        return self._add(name, help=help, example="")

    def be_command(self, run: Command, *, example: str, user_args: bool = False) -> None:
        """A noun without verbs (`stoker ui`)."""
        self.example = example
        self.epilog = f"Example:\n{_indented(example)}"
        self.set_defaults(run=run, takes_user_args=user_args)

    def allow_no_verb(self, run: Command, *, options: Callable[["Parser"], object]) -> None:
        """What a noun with verbs does with `options` of its own alone (`stoker server --database URL`)."""
        options(self)
        self._subparsers_action.required = False
        self.set_defaults(run=run, takes_user_args=False)

    def run(self, arguments: Arguments, user_args: Sequence[str] | None) -> int:
        if user_args is not None and not arguments.takes_user_args:
            raise UsageError(f"`--` and what follows it mean nothing to `{self.prog}` here. Leave them out.")
        arguments.user_args = None if user_args is None else tuple(user_args)
        command: Command = arguments.run
        return command(arguments) or 0

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{_plainly(message)} See `{self.prog} --help`.")

    def _add(
        self, name: str, *, help: str, example: str, usage: str | None = None, aliases: Sequence[str] = ()
    ) -> "Parser":
        if self._subparsers_action is None:
            self._subparsers_action = self.add_subparsers(
                title="verbs", metavar="VERB", required=True, parser_class=Parser
            )
        command: Parser = self._subparsers_action.add_parser(
            name, help=help, description=_sentence(help), example=example, usage=usage, aliases=aliases
        )
        self.commands[name] = command
        return command


def split_user_args(words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """What is ours, and what follows the first `--` (None if there is none)."""
    if "--" not in words:
        return list(words), None
    cut = list(words).index("--")
    return list(words[:cut]), list(words[cut + 1 :])


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Wide enough for long flags, and the example left as it was written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _plainly(message: str) -> str:
    """argparse's words, ended like a sentence."""
    message = message.replace("the following arguments are required:", "Missing:")
    return message[:1].upper() + message[1:].rstrip(".") + "."
