"""The command line: each command parses its arguments and calls one function."""

from __future__ import annotations

import sys


def start() -> int:
    """Run the command line and return its exit code; Ctrl-C while anything is imported is no traceback either."""
    try:
        from tsbench.cli.main import main  # noqa: PLC0415 - it takes 0.3 s

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("tsbench: interrupted\n")
        return 130
    finally:  # all is done: a second Ctrl-C would only replace the exit code
        import signal  # noqa: PLC0415 - the first to be imported otherwise, before `try`

        signal.signal(signal.SIGINT, signal.SIG_IGN)
