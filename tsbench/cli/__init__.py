"""The command line: each command parses its arguments and calls one function."""

from __future__ import annotations

import os
import sys


def start() -> int:
    """Run the command line and return its exit code; Ctrl-C while anything is imported is no traceback either."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts as many; nothing here needs them, nor do children
    try:
        from tsbench.cli.main import main  # noqa: PLC0415 - it takes 0.3 s

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("tsbench: interrupted\n")
        return 130
    finally:  # all is done: a second Ctrl-C would only replace the exit code
        import signal  # noqa: PLC0415 - the first to be imported otherwise, before `try`

        signal.signal(signal.SIGINT, signal.SIG_IGN)
