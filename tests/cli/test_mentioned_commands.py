"""Every command that an error, a docstring, a page or a template tells the reader to run exists, with its flags."""

import ast
import re
import shlex
from argparse import REMAINDER, Action
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from stoker.cli.completion import all_commands
from stoker.cli.main import _DETERMINED, _GCLOUD_PREFIXES, NOUN_ALIASES, NOUNS, SHORT_FORMS
from stoker.terminal.parser import Parser

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "stoker"
IN_BACKTICKS = re.compile(r"`(stoker(?:\s[^`]*)?)`")
ON_A_LINE = re.compile(r"(?:^\s*(?:\$ )?|&& )(?:[A-Z_]+=\S+ )*(stoker [^`\n]*)$", re.MULTILINE)
FENCED = re.compile(r"^ *```(?:console|sh|bash|shell)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# A command line ends here, as it does for a shell; what follows `--` is for the user's code.
END_OF_COMMAND = {"--", "|", ";", "&", "&&", "||", ">", ">>", "<", "2>", "2>&1", "#", "\\"}
# Other people's command lines, which ours imitates: they have no parser of ours.
FOREIGN = {"gcloud", "gsutil", "docker", "det", *_GCLOUD_PREFIXES, *_DETERMINED}
PLACEHOLDER = re.compile(r"^[\[{]|…|\.\.\.|^[A-Z][A-Z_]*$")


def test_source_names_only_commands_that_exist() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: `{command}`: {problem}"
        for path in sorted(SOURCE.rglob("*.py"))
        if SOURCE / "templates" not in path.parents
        for line, text in strings(ast.parse(path.read_text()))
        for command in mentions(text)
        if (problem := problem_of(command))
    ]

    assert wrong == []


def test_docs_pages_and_templates_name_only_commands_that_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    templates = [
        path for path in (SOURCE / "templates").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    scripts = [*(SOURCE / "server" / "ui").rglob("*.js"), *(SOURCE / "server" / "ui").rglob("*.html")]

    wrong = [
        f"{path.relative_to(ROOT)}: `{command}`: {problem}"
        for path in sorted([*pages, *templates, *scripts])
        if path.name != "CHANGELOG.md"  # which also names what was removed
        for command in mentions_of_page(path)
        if (problem := problem_of(command))
    ]

    assert wrong == []


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("stoker jobs submit command --help", "stoker jobs submit has no verb 'command'"),
        ("stoker job list --frobnicate", "stoker job list has no flag --frobnicate"),
        ("stoker frobnicate", "no command 'frobnicate'"),
        ("stoker jobs list --state=RUNNING --limit 3 | head -1", ""),
        ("stoker jobs submit training NAME … -- --any-flag", ""),
        ("stoker NOUN VERB --help", ""),
        ("stoker cmd run --config-file FILE python3 train.py --epochs 3", ""),
        ("stoker e list", ""),
    ],
)
def test_a_command_that_does_not_exist_is_reported(command: str, problem: str) -> None:
    assert problem_of(command) == problem


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string literal with its line; an f-string with `{…}` for each of its values."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(p.value if isinstance(p, ast.Constant) else "{…}" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def mentions(text: str) -> Iterator[str]:
    """In backticks, or a line of its own as the examples of `--help` are."""
    yield from IN_BACKTICKS.findall(text)
    yield from ON_A_LINE.findall(text.replace("\\\n", " "))


def mentions_of_page(path: Path) -> Iterator[str]:
    text = re.sub(r"\$\{[^}]*\}|\$[A-Z_]+|@[A-Z_]+@", "{…}", path.read_text().replace("\\\n", " "))
    yield from IN_BACKTICKS.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for block in FENCED.findall(text) if path.suffix == ".md" else [text]:
        yield from ON_A_LINE.findall(block)


def problem_of(command: str) -> str:
    """Why this command line cannot be given, or an empty string. Words in capitals or dots stand for anything."""
    words = words_of(command)
    if not words or words[0].startswith(("-", "__")) or words[0] in FOREIGN or PLACEHOLDER.search(words[0]):
        return ""
    words = [*SHORT_FORMS.get(words[0], words[:1]), *words[1:]]
    noun = NOUN_ALIASES.get(words[0], words[0])
    if noun not in NOUNS:
        return f"no command {words[0]!r}"
    path, rest = f"stoker {noun}", words[1:]
    parser = parsers()[noun]
    while rest and parser.commands and rest[0] in parser._subparsers_action.choices:
        path, parser, rest = f"{path} {rest[0]}", parser._subparsers_action.choices[rest[0]], rest[1:]
    if parser.commands and rest and not rest[0].startswith("-"):
        return "" if PLACEHOLDER.search(rest[0]) else f"{path} has no verb {rest[0]!r}"
    unknown = next(unknown_flags(parser, rest), None)
    return f"{path} has no flag {unknown}" if unknown else ""


def words_of(command: str) -> list[str]:
    """What follows `stoker`, up to the end of the command."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:  # an apostrophe in a sentence
        words = command.split()
    words = words[words.index("stoker") + 1 :]
    end = next((at for at, word in enumerate(words) if word in END_OF_COMMAND), len(words))
    return [word.strip("[]();,") for word in words[:end]]


def unknown_flags(parser: Parser, words: list[str]) -> Iterator[str]:
    options: dict[str, Action] = parser._option_string_actions
    takes_the_rest = any(action.nargs == REMAINDER for action in parser._actions)
    words = list(words)
    while words:
        word = words.pop(0)
        if not re.match(r"--?[A-Za-z]", word):
            if takes_the_rest and not PLACEHOLDER.search(word):
                return
            continue
        flag, equals, _value = word.partition("=")
        if flag not in options and not flag.startswith("--"):
            flag = flag[:2]  # -rf, -p8080
        if flag not in options:
            yield flag
        elif options[flag].nargs is None and not equals and words:
            words.pop(0)


@cache
def parsers() -> dict[str, Parser]:
    """The parser of each noun, with all its verbs below it."""
    from importlib import import_module

    made = {}
    for noun, entry in NOUNS.items():
        made[noun] = Parser(prog=f"stoker {noun}", description="")
        import_module(entry.module).build(made[noun])
    return made


def test_it_knows_every_command() -> None:
    for path, _ in all_commands():
        assert problem_of(" ".join(["stoker", *path])) == ""
