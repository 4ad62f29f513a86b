"""A server that tsbench did not start, known by its URL."""

from __future__ import annotations

from tsbench.errors import Broken
from tsbench.servers.base import Server


class ExternalServer(Server):
    """A server that is neither started, stopped nor measured; the first session finds out whether it runs."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    @property
    def endpoint(self) -> str:
        return self._endpoint

    def kill(self) -> None:
        """Raise `Broken`: the server is not ours to kill."""
        raise Broken(f"{self._endpoint} cannot be killed: tsbench did not start it")

    def cold(self) -> None:
        """Raise `Broken`: the server is not ours to restart."""
        raise Broken(f"{self._endpoint} cannot be made cold: tsbench did not start it")
