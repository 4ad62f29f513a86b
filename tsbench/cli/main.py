"""The command line: each sub-command parses its arguments and calls one function."""

from __future__ import annotations

import errno
import os
import re
import sys
from enum import StrEnum
from json import dumps
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from tsbench import __version__, plugins
from tsbench.cli.checking import check
from tsbench.cli.generate import generate, queries
from tsbench.cli.learning import learn
from tsbench.cli.listing import target_names
from tsbench.cli.output import fail, say, stdout
from tsbench.cli.phases import found_place, load, query, validate
from tsbench.cli.reporting import compare, export, history, report
from tsbench.cli.running import REPEAT, run, show_cleaned
from tsbench.cli.setup import doctor, init, servers
from tsbench.errors import Broken, UserMistake
from tsbench.servers.interrupts import stoppable
from tsbench.text import CONTROL, printable_line, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence


MOST_CHARACTERS = 1_000
"""Longest message on a mistake; the middle of a longer one, which repeats a long input, is left out."""

app = typer.Typer(
    name="tsbench",
    help="Load-tests time-series databases: checked answers, honest latencies, accounted writes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_OF_PYDANTIC = (
    (re.compile(r": Value error, "), ": "),
    (re.compile(r"Input should be "), "must be "),
    (re.compile(r", unable to parse .*"), ""),
)
"""Words of pydantic's messages, which typer passes on, and the plain words for them."""


def _plain(message: str) -> str:
    for pattern, words in _OF_PYDANTIC:
        message = pattern.sub(words, message)
    return message


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 all valid and passed, 1 not, 2 the user's mistake, 130 interrupted."""
    given = _plugins_first(_with_number(sys.argv[1:] if arguments is None else arguments))
    if odd := next(filter(CONTROL.search, given), None):
        return _fail(f"'{shortened(odd)}' has a line break or another control character; write it without", 2)
    commands = typer.main.get_command(app)
    if "_TSBENCH_COMPLETE" in os.environ:  # a shell asks how a command line may go on
        commands.main([], prog_name="tsbench")
    try:
        # Not `commands(given)`, which ends without a message after Ctrl-C.
        with stoppable(), commands.make_context("tsbench", [*given]) as context:
            result = commands.invoke(context)
    except typer.Exit as done:
        result = done.exit_code
    except (TyperException, UserMistake) as error:
        return _fail(_plain(str(getattr(error, "format_message", error.__str__)())), 2)
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Broken, OSError) as error:
        is_mistake = isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG  # only what was typed is so long
        return _fail(str(error), 2 if is_mistake else 1)
    except KeyboardInterrupt as interrupt:
        return fail(str(interrupt) or "interrupted", 130)
    return int(result) if isinstance(result, int) else 0


def _with_number(given: Sequence[str]) -> list[str]:
    """Return the arguments with a number after each `--repeat` that has none."""
    after = [*given, ""][1:]
    number = [
        text == "--repeat" and not re.fullmatch(r"-?\d+", next_) for text, next_ in zip(given, after, strict=True)
    ]
    return [part for text, lacks in zip(given, number, strict=True) for part in ([text, REPEAT] if lacks else [text])]


def _plugins_first(given: Sequence[str]) -> list[str]:
    """Return the arguments with each `--plugin FILE` before the command, where people do not write it."""
    at = [i for i, text in enumerate(given) if text == "--plugin" or text.startswith("--plugin=")]
    of_plugins = {j for i in at for j in ((i, i + 1) if given[i] == "--plugin" else (i,)) if j < len(given)}
    first = [given[i] for i in sorted(of_plugins)]
    return first + [text for i, text in enumerate(given) if i not in of_plugins]


def _fail(message: str, code: int) -> int:
    return fail(shortened(printable_line(message), MOST_CHARACTERS), code)


def _version(wanted: bool) -> None:
    if wanted:
        stdout.print(f"tsbench {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _common(
    _show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.py", help="A file with a target that is not installed; may be given several times."),
    ] = None,
) -> None:
    for path in plugin or ():
        plugins.add(path)
    if plugin:
        from tsbench.targets.registry import expect_files

        expect_files()


app.command()(run)


@app.command()
def cleanup(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS|TARGET", help="A result set, one run, or a database with --endpoint.")
    ],
    endpoint: Annotated[str | None, typer.Option(help="URL of the database, if a TARGET is given.")] = None,
) -> int:
    """Remove the objects that a run created on the server at --endpoint, or all tables of tsbench's worlds."""
    from tsbench.run.cleanup import clean_target, clean_up
    from tsbench.targets.registry import TARGETS

    if endpoint is not None or (str(results) in TARGETS and not results.exists()):
        place = found_place(str(results), endpoint, None)
        return show_cleaned([clean_target(TARGETS[place["name"]], place["endpoint"])])
    places = list(clean_up(results))
    if not places:
        say(f"nothing to remove: the runs of {results} used no server of yours, or ended before they created anything")
    return show_cleaned(places)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def web(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(help="A database with a locustfile (tsbench list targets).", autocompletion=target_names)
    ],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page.")] = 8089,
    host: Annotated[
        str, typer.Option(help="The address to listen on; for others than this host set TSBENCH_WEB_PASSWORD.")
    ] = "127.0.0.1",
) -> None:
    """Open Locust's web UI for a database; what follows goes to Locust (--use-case pumps.toml, --endpoint URL, ...)."""
    from tsbench.report import expect_packages
    from tsbench.run.locust_process import locustfile, values_of
    from tsbench.run.locust_process import web as open_web
    from tsbench.scenario.starting import own_locustfile

    expect_packages()  # before Locust says that its page starts
    use_cases = values_of("--use-case", "TSBENCH_USE_CASE", context.args)
    file, words = own_locustfile(target, use_cases) or (locustfile(target), [])
    open_web(file, host, port, [*words, *context.args])


class What(StrEnum):
    """The kinds of things that `tsbench list` shows."""

    TARGETS = "targets"
    USE_CASES = "use-cases"
    QUERIES = "queries"
    SCENARIOS = "scenarios"


@app.command(name="list")
def list_(
    what: Annotated[What, typer.Argument(help="What to list.")],
    shown: Annotated[
        str | None, typer.Option("--show", metavar="NAME|FILE", help="Show one use case, with points of it.")
    ] = None,
) -> None:
    """List targets with their schemas, use cases, query kinds, or scenarios."""
    from tsbench.cli import listing

    if shown is not None:
        if what is not What.USE_CASES:
            raise UserMistake("--show belongs to `tsbench list use-cases`")
        stdout.print(listing.use_case_page(shown), markup=False, highlight=False, soft_wrap=True)
        return
    listing.show(listing.TABLES[what.value]())


@app.command()
def schema(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a page of all keys (docs/scenario-keys.md).")
    ] = False,
) -> None:
    """Print the JSON Schema of a scenario file, for editors."""
    from tsbench.scenario import reference
    from tsbench.study.claims import TABLES

    typer.echo(
        reference.markdown(TABLES) if markdown else dumps(reference.json_schema(TABLES), indent=2), nl=not markdown
    )


for command in (
    doctor,
    init,
    servers,
    report,
    export,
    history,
    compare,
    check,
    learn,
    generate,
    load,
    queries,
    query,
    validate,
):
    app.command()(command)
