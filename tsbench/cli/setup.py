"""Commands that prepare a place for tests: files to start from, the servers of databases, and what a machine lacks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.text import Text

from tsbench import targets
from tsbench.cli.listing import empty_table, show, target_names, yes_or_no
from tsbench.cli.output import fail, say
from tsbench.errors import UserMistake
from tsbench.servers.programs import install_line
from tsbench.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from tsbench.targets.target import Requirement

TEMPLATES = Path(__file__).parent / "init"
SCRIPT = Path(targets.__file__).parent / "get-servers.sh"
_LOOK_S = 0.2
"""How often is looked whether a started server still runs."""
WORKFLOW = Path(".github/workflows/load-test.yml")


class Do(StrEnum):
    """What `tsbench servers` can do but list them."""

    INSTALL = "install"
    START = "start"


def servers(
    do: Annotated[
        Do | None, typer.Argument(help="Install those that are not found, or start one until Ctrl-C.")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Servers or targets; to install all, none.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where a started server keeps its data [./TARGET-data].")
    ] = None,
) -> int:
    """List the servers that tsbench can start, where they are and how to get the others; install them, or start one."""
    if do is None:
        show(server_table())
        return 0
    if do is Do.START:
        if len(names or ()) != 1:
            raise UserMistake("servers start: give one of `tsbench list targets`")
        return _serve((names or [""])[0], directory)
    if directory is not None:
        raise UserMistake("--dir is of `tsbench servers start TARGET`")
    bash = shutil.which("bash")
    if bash is None:
        raise UserMistake("servers are installed by a script for bash, which this machine lacks; install bash")
    wanted, code = _programs(names or [])
    if names and not wanted:
        return code
    sys.stdout.flush()
    return max(code, subprocess.run([bash, SCRIPT, *wanted], check=False).returncode)


def _serve(name: str, directory: Path | None) -> int:
    """Run a target's server until Ctrl-C, and say where it answers and where its data are."""
    from tsbench.servers.base import death
    from tsbench.targets.registry import get

    target = get(name)
    if target.embedded or not target.startable:
        needs = "runs inside the processes that open it" if target.embedded else "cannot be started by tsbench"
        raise UserMistake(f"{name} {needs}; give --endpoint {target.form}")
    server = target.new_server((directory or Path(f"{name}-data")).absolute())
    server.start()
    try:
        say(f"{target.label} answers at {server.endpoint}")
        say(f"for example: tsbench load {name} --use-case cpu-only --endpoint {shlex.quote(server.endpoint)}")
        say("Ctrl-C stops it")
        sys.stdout.flush()
        while server.alive():
            time.sleep(_LOOK_S)
        return fail(death(server).replace(" during the run", ""), 1)
    except KeyboardInterrupt:
        return 0
    finally:
        server.stop()
        say(f"stopped; its data are in {server.settings().get('data_directory', directory)}")


def server_table() -> Table:
    """Return a table of what each target's server needs, with its place or how to get it."""
    table = empty_table("target", "needs", "here", "where, or how to get it")
    for name, requirement in _requirements():
        said = ", ".join(requirement.places) if requirement.is_met else requirement.cure
        home = f"{Path.home()}/"
        table.add_row(name, requirement.part, yes_or_no(requirement.is_met), Text(said.replace(home, "~/")))
    return table


def _requirements() -> Iterator[tuple[str, Requirement]]:
    """Yield what each target needs to be started here, and its driver if that is not installed."""
    from tsbench.targets.registry import TARGETS
    from tsbench.targets.target import Requirement

    for name, target in TARGETS.items():
        yield from ((name, requirement) for requirement in target.requirements)
        driver = target.driver
        known = {module for requirement in target.requirements for module in requirement.modules}
        if known and driver is not None and driver.module not in known and find_spec(driver.module) is None:
            yield (
                name,
                Requirement(f"driver {driver.module}", f"pip install 'tsbench[{driver.extra}]'", (driver.module,)),
            )


def _programs(names: Sequence[str]) -> tuple[list[str], int]:
    """Return the programs that the script gets for these servers or targets, and 1 if something else is lacking."""
    wanted, code = [], 0
    for name in names:
        needed = [requirement for target, requirement in _requirements() if target == name]
        if not needed:
            wanted.append(name)
        for requirement in needed:
            if not requirement.how or requirement.how.endswith(install_line(*requirement.programs)):
                wanted += requirement.programs
            elif requirement.is_met:
                say(f"{requirement.part} {' '.join(requirement.places)}")
            else:
                code = fail(f"{requirement.part} is not installed by this command; {requirement.cure}", 1)
    return wanted, code


def init(
    target: Annotated[
        str | None, typer.Argument(help="A database (tsbench list targets).", autocompletion=target_names)
    ] = None,
    use_case: Annotated[
        str | None, typer.Option(metavar="FILE", help="Your own use case, whose queries are asked.")
    ] = None,
) -> None:
    """Write a scenario, a locustfile and a workflow of GitHub to start from; no file is overwritten."""
    from tsbench.run.locust_process import locustfile
    from tsbench.targets.registry import TARGETS, get

    if target is None:
        target = next(name for name, one in TARGETS.items() if one.requirements and one.startable and _is_ready(name))
    elif target in TARGETS and not get(target).requirements:
        raise UserMistake(f"'{target}' keeps nothing that could be asked for; choose another of `tsbench list targets`")
    extra = get(target).driver
    words = {"TARGET": target, "EXTRAS": f"all,{extra.extra}" if extra is not None else "all"}
    words[f"locustfiles/{locustfile(target).name}"] = "locustfile.py"
    texts = {
        Path("scenario.toml"): (TEMPLATES / "scenario.toml").read_text(encoding="utf-8"),
        Path("locustfile.py"): locustfile(target).read_text(encoding="utf-8"),
        WORKFLOW: (TEMPLATES / WORKFLOW.name).read_text(encoding="utf-8"),
    }
    if use_case is not None:
        from tsbench.scenario.starting import Start

        start = Start.of(use_case, get(target))
        texts |= {Path("scenario.toml"): start.scenario, Path("locustfile.py"): start.locustfile}
    if there := [str(path) for path in texts if path.exists()]:
        raise UserMistake(f"{', '.join(there)}: there already; nothing was written, choose an empty directory")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(re.sub("|".join(map(re.escape, words)), lambda found: words[found[0]], text))
    say(f"wrote {', '.join(map(str, texts))}; next: tsbench run scenario.toml, or: locust")


def _is_ready(target: str) -> bool:
    return all(requirement.is_met for name, requirement in _requirements() if name == target)


# --- what this machine has and lacks ----------------------------------------------------------------------------------

_FOR_DEVELOPERS = {"all", "dev", "notebook"}


def doctor(
    results: Annotated[
        Path | None, typer.Argument(metavar="[RESULTS]", help="A result set whose texts go into the --bundle.")
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE.zip", help="Write what a bug's report needs, no secrets."),
    ] = None,
) -> int:
    """Print what this machine has and lacks for running tsbench, with a cure for each lack."""
    if results is not None and archive is None:
        raise UserMistake(f"{results}: say where to: tsbench doctor {results} --bundle bundle.zip")
    table, good = machine_table()
    show(table)
    if archive is not None:
        from tsbench.cli import bundle

        names = bundle.write(archive, table, results)
        say(
            f"wrote {archive} ({len(names)} files); look through it before you publish it: it names hosts and endpoints"
        )
    return 0 if good else 1


def lacking_extras() -> dict[str, list[str]]:
    """Return the packages of each extra that are not installed, as the metadata of the installed tsbench has them."""
    from importlib import metadata

    extras: dict[str, list[str]] = {}
    for text in metadata.requires("tsbench") or ():
        package, _, marker = text.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        name = re.match(r"[\w.-]+", package)
        if extra is None or name is None or extra[1] in _FOR_DEVELOPERS:
            continue
        names = extras.setdefault(extra[1], [])
        try:
            metadata.version(name[0])
        except metadata.PackageNotFoundError:
            names.append(name[0])
    return extras


def machine_table() -> tuple[Table, bool]:
    """Return a table of what this machine has and lacks, and whether that is enough for every target."""
    from tsbench.collect import sysstat
    from tsbench.servers import cgroup
    from tsbench.targets.registry import TARGETS

    table = empty_table("part", "found", "cure, where something is missing")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    room = free > 2 * 10**9
    table.add_row("Python", sys.version.split()[0], "")
    table.add_row(
        "cores", str(os.cpu_count()), "" if (os.cpu_count() or 1) > 1 else "client and server share the only one"
    )
    table.add_row("room for data", format_size(free), "" if room else "free 2 GB, or run with --out elsewhere")
    needed = [requirement for target in TARGETS.values() for requirement in target.requirements]
    for part in needed:
        table.add_row(part.part, yes_or_no(part.is_met), "" if part.is_met else escape(part.cure))
    for extra, names in lacking_extras().items():
        cure = f"pip install 'tsbench[{extra}]'" if names else ""
        table.add_row(f"extra {extra}", f"no {', '.join(names)}" if names else "yes", escape(cure))
    sadc = sysstat.recorder() or ""
    table.add_row("sar", sadc or "no", "" if sadc else "install the system's package sysstat")
    missing = cgroup.missing()
    table.add_row("caps on servers", yes_or_no(not missing), missing)
    return table, all(part.is_met or part.is_optional for part in needed) and room
