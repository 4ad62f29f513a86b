"""Locust's command line, as `python -m tsbench.drive.locust_main`: for load processes, which start at each run.

gevent asks, for each module that it patches, whether a package extends that, and each time all installed packages are
read: a quarter of a second of CPU on a fast machine. Here they are read once.
"""

from __future__ import annotations

import sys
from importlib import metadata


def main() -> None:
    """Run Locust with the arguments of this process."""
    found = metadata.entry_points()
    metadata.entry_points = found.select  # which takes the same arguments
    from locust.main import main as locust  # noqa: PLC0415 - what it imports patches all modules

    sys.exit(locust())


if __name__ == "__main__":
    main()
