"""VictoriaMetrics as a local process.

The program is `victoria-metrics` in `$TSBENCH_SERVERS/bin` (without that variable in `~/.cache/tsbench-servers/bin`),
or on PATH; `tsbench servers install` installs it. It listens on 127.0.0.1 only, without log-ins: its data is simulated.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.servers.managed import HttpServer
from tsbench.servers.programs import cached_program, not_installed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OURS = ("storageDataPath", "httpListenAddr", "httpListenAddr.useProxyProtocol", "http.pathPrefix", "tls")


class VictoriaServer(HttpServer):
    """A single node. Settings are its flags without the dashes (`inmemoryDataFlushInterval`)."""

    product = "VictoriaMetrics"
    log_name = "victoriametrics.log"

    @property
    def endpoint(self) -> str:
        """URL with the name of the data; it has a port after the first start."""
        return f"http://127.0.0.1:{self._port}/tsbench"

    def settings(self) -> Mapping[str, str]:
        """Return the settings by tsbench; the others are the server's defaults."""
        return {**self._flags(), **super().settings()}

    def _flags(self) -> dict[str, str]:
        # Simulated data may be of any year, and is deleted after a month by default. A long query ends at our limits.
        return {"retentionPeriod": "100y", "search.maxQueryDuration": "1h", **self._settings}

    def _program(self) -> Path:
        for name in _OURS:
            if name in self._settings:
                raise UserMistake(f"settings: {name} is set by tsbench")
        program = cached_program("victoria-metrics")
        if program is None:
            raise not_installed("VictoriaMetrics", "victoria-metrics")
        return program

    def _command(self, program: Path) -> tuple[list[str], Mapping[str, str]]:
        flags = {**self._flags(), "storageDataPath": "data", "httpListenAddr": f"127.0.0.1:{self._port}"}
        return [str(program), *(f"-{name}={value}" for name, value in flags.items())], {"PWD": os.fspath(self.place)}

    def _ready(self) -> None:
        self._expect_answer("/health")
