"""The first lines that run in each process that tsbench starts: they bind it to the life of the one that started it.

`children.Child` executes this file with Python before the program itself, in the same process. A function that Python
runs between fork and exec (`preexec_fn`) could do the same, but may block for ever if its parent has threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def bind(parent: int, death_signal: int) -> None:
    """Let the kernel send this process a signal when the thread that started it ends; exit if `parent` has ended."""
    _libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:  # it ended before: the signal will never come
        os._exit(1)


def unbind() -> None:
    """Let this process outlive the thread that started it."""
    _libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def main(parent: str, death_signal: str, account: str, groups: str, *command: str) -> None:
    """Change to the user `uid:gid`, if given, and become the command, in the control groups of these open files."""
    if account:
        uid, gid = map(int, account.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    bind(int(parent), int(death_signal))  # now: the kernel forgets the signal when the user changes
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and then by each program that it becomes
        signal.signal(ignored, signal.SIG_DFL)
    for number in map(int, groups.split()):
        os.write(number, b"0")  # 0 means the writing process
        os.close(number)
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main(*sys.argv[1:])
