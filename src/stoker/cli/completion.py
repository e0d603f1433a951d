"""`stoker completion SHELL`, and the words a shell may offer: nouns, verbs, flags, jobs, pools, files.

The scripts ask `stoker __complete WORD…` what may come at the last word; an empty answer means file names.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module

from stoker.cli.main import NOUN_ALIASES, NOUNS
from stoker.errors import StokerError
from stoker.terminal.parser import Arguments, Parser

_BASH = """\
_stoker() {
    local IFS=$'\\n' found
    found=$(stoker __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _stoker stoker
"""
_ZSH = """\
#compdef stoker
_stoker() {
    local -a found
    found=("${(@f)$(stoker __complete "${words[@]:1:$((CURRENT - 1))}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _stoker stoker
"""
_FISH = """\
function __stoker_complete
    set -l words (commandline -opc) (commandline -ct)
    stoker __complete $words[2..-1] 2>/dev/null
end
complete -c stoker -a '(__stoker_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def build(parser: Parser) -> None:
    parser.be_command(show, example='eval "$(stoker completion bash)"')
    parser.add_argument("shell", choices=sorted(SCRIPTS), help="put the script where that shell looks, or eval it")


def show(arguments: Arguments) -> None:
    print(SCRIPTS[arguments.shell], end="")


def candidates(words: list[str]) -> list[str]:
    """What may stand in place of the last word. Empty: whatever the shell thinks, which is files."""
    *before, current = words or [""]
    if "--" in before:
        return []
    if not before:
        return _starting(current, [*NOUNS, "--help", "--version"])
    before[0] = NOUN_ALIASES.get(before[0], before[0])
    if before[0] not in NOUNS:
        return []
    parser, rest = _walk(before)
    if parser.commands:
        return _starting(current, parser.commands)
    if current.startswith("-"):
        return _starting(current, _flags(parser))
    return _starting(current, _values(parser, rest))


def all_commands() -> Iterator[tuple[tuple[str, ...], Parser]]:
    """Every command there is, by its words."""
    for noun in NOUNS:
        parser, _ = _walk([noun])
        yield from _below((noun,), parser)


def _below(path: tuple[str, ...], parser: Parser) -> Iterator[tuple[tuple[str, ...], Parser]]:
    if not parser.commands:
        yield path, parser
    for verb, command in parser.commands.items():
        yield from _below((*path, verb), command)


def _walk(words: list[str]) -> tuple[Parser, list[str]]:
    """The parser of the command that these words have come to, and the words after it."""
    parser = Parser(prog="stoker", description="")
    import_module(NOUNS[words[0]].module).build(parser)
    rest = words[1:]
    while rest and rest[0] in parser.commands:
        parser, rest = parser.commands[rest[0]], rest[1:]
    return parser, rest


def _flags(parser: Parser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]


def _values(parser: Parser, rest: list[str]) -> list[str]:
    """Values of the flag before, or of the command's own argument."""
    if rest and rest[-1].startswith("-"):
        flag = next((a for a in parser._actions if rest[-1] in a.option_strings), None)
        if flag is not None and flag.nargs != 0:
            return _flag_values(flag.dest, flag.choices)
    for action in parser._actions:
        if action.option_strings:
            continue
        if action.choices:
            return [str(choice) for choice in action.choices]
        if action.metavar == "JOB" and action.dest in ("name", "names"):
            return _job_names()
    return []


def _flag_values(dest: str, choices: object) -> list[str]:
    if dest in ("pool", "region"):
        return _pool_names()
    if dest == "state":
        from stoker.schema.state import JobState

        return [state.value for state in JobState]
    return [str(choice) for choice in choices] if isinstance(choices, list | tuple) else []


def _job_names() -> list[str]:
    from stoker.client.client import connect

    try:  # a Tab must not start a server, nor complain that there is none
        return [job.id for job in connect(start=False, timeout_s=2.0).jobs(limit=200)]
    except StokerError:
        return []


def _pool_names() -> list[str]:
    from stoker.client.client import connect

    try:
        return [pool.name for pool in connect(start=False, timeout_s=2.0).pools()]
    except StokerError:
        return []


def _starting(prefix: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(prefix)]
