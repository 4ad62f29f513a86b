"""What servers that tsbench starts have in common, beyond `servers.managed`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tsbench.servers.managed import HttpServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class LocalHttpServer(HttpServer):
    """Base of servers of one program that answer over HTTP, with settings of tsbench's in place of their defaults."""

    defaults: ClassVar[Mapping[str, str]] = {}
    """Settings that those of a scenario precede."""
    health: ClassVar[str]
    """Path that a server answers when it is ready."""

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}/tsbench"

    @property
    def configured(self) -> dict[str, str]:
        """The settings by tsbench and the scenario; the others are the server's defaults."""
        return {**self.defaults, **self._settings}

    def settings(self) -> Mapping[str, str]:
        return {**self.configured, **super().settings()}

    def _ready(self) -> None:
        self._expect_answer(self.health)


def link_loader(place: Path, libraries: Path) -> None:
    """Put the loader where programs look for it that were installed here: in the directory where they are started.

    They name it without a directory, so that the directory of the programs may be copied to another place.
    """
    loader = place / "ld.so"
    loader.unlink(missing_ok=True)
    loader.symlink_to(libraries / loader.name)
