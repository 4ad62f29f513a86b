"""A server that somebody else runs, known by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.errors import Broken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ExternalServer:
    """Nothing is started, stopped or measured here; a session finds out whether it is there."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    @property
    def endpoint(self) -> str:
        """The URL it was given."""
        return self._endpoint

    def start(self) -> None:
        """It runs already; whether it does is for the first session to say."""

    def stop(self) -> None:
        """It is not ours to stop."""

    def kill(self) -> None:
        """Not possible.

        Raises
        ------
        tsbench.errors.Broken
            Always.
        """
        raise Broken(f"{self._endpoint} cannot be killed: tsbench did not start it")

    def remove(self) -> None:
        """Nothing of ours is there."""

    def cold(self) -> None:
        """Not possible.

        Raises
        ------
        tsbench.errors.Broken
            Always.
        """
        raise Broken(f"{self._endpoint} cannot be made cold: tsbench did not start it")

    def alive(self) -> bool:
        """Taken to be so."""
        return True

    def pids(self) -> Sequence[int]:
        """Not known."""
        return ()

    def size(self) -> int:
        """Not known: 0. The session's `sizes` tell what the server says."""
        return 0

    def log(self) -> Path | None:
        """Not known."""
        return None

    def settings(self) -> Mapping[str, str]:
        """Given by others; the session's `facts` tell them."""
        return {}
