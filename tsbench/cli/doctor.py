"""`tsbench doctor`: what this machine has for running tsbench, and what it lacks."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from importlib import metadata
from typing import TYPE_CHECKING

from rich.markup import escape

from tsbench.cli.listing import empty_table, yes_or_no
from tsbench.collect import sar
from tsbench.servers import cgroup
from tsbench.targets.registry import TARGETS
from tsbench.units import format_size

if TYPE_CHECKING:
    from rich.table import Table


_FOR_DEVELOPERS = {"all", "dev", "notebook"}


def lacking_extras() -> dict[str, list[str]]:
    """Return the packages of each extra that are not installed, as the metadata of the installed tsbench has them."""
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
    sadc = sar.recorder() or ""
    table.add_row("sar", sadc or "no", "" if sadc else "install the system's package sysstat")
    missing = cgroup.missing()
    table.add_row("caps on servers", yes_or_no(not missing), missing)
    return table, all(part.is_met or part.is_optional for part in needed) and room
