"""A server that tsbench did not start, known by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.errors import Broken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ExternalServer:
    """A server that is neither started, stopped nor measured; the first session finds out whether it runs."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    @property
    def endpoint(self) -> str:
        return self._endpoint

    def start(self) -> None:
        """Do nothing: the server runs already."""

    def stop(self) -> None:
        """Do nothing: the server is not ours to stop."""

    def kill(self) -> None:
        """Raise an error: the server is not ours to kill.

        Raises
        ------
        tsbench.errors.Broken
            Always.
        """
        raise Broken(f"{self._endpoint} cannot be killed: tsbench did not start it")

    def remove(self) -> None:
        """Do nothing: the server's data is not ours to delete."""

    def cold(self) -> None:
        """Raise an error: the server is not ours to restart.

        Raises
        ------
        tsbench.errors.Broken
            Always.
        """
        raise Broken(f"{self._endpoint} cannot be made cold: tsbench did not start it")

    def alive(self) -> bool:
        """Return True, without asking the server."""
        return True

    def ended(self) -> str:
        return ""

    def pids(self) -> Sequence[int]:
        """Return no ids: tsbench does not know the processes."""
        return ()

    def size(self) -> int:
        """Return 0: tsbench does not know the files; the session's `sizes` asks the server."""
        return 0

    def log(self) -> Path | None:
        """Return None: tsbench does not know the log."""
        return None

    def settings(self) -> Mapping[str, str]:
        """Return no settings: tsbench sets none; the session's `facts` asks the server."""
        return {}
