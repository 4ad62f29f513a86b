"""InfluxDB 1.x and 2.x as local processes.

The programs are `influxd-1.8`, `influxd-1.6` and `influxd-2` in `$TSBENCH_SERVERS/bin` (without that variable in
`~/.cache/tsbench-servers/bin`), or on PATH; `tsbench servers install` installs them. For `influxdb1` the setting
`version` selects one, else the newest is used. All listen on 127.0.0.1 only. Version 1 runs without log-ins: its data
is simulated, and it runs no programs for users. Version 2 needs a log-in; its random token is in a file that only its
owner may read, and the endpoint names the file.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlencode

from tsbench.errors import Broken, UserMistake
from tsbench.servers import unprivileged
from tsbench.servers.managed import request
from tsbench.servers.programs import cached_program, not_installed
from tsbench.targets.influxdb import http_api
from tsbench.targets.local import LocalHttpServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tsbench.servers.cgroup import Group

_CONFIG_S = 60.0


class InfluxServer1(LocalHttpServer):
    """InfluxDB 1.x with tsbench's configuration. Settings are `section.key`, as in its file (`data.index-version`)."""

    product = "InfluxDB"
    log_name = "influxdb1.log"
    health = "/ping"
    defaults: ClassVar = {
        # Statistics of its own, written every 10 s into the database that is measured.
        "monitor.store-enabled": "false",
        # Two lines of log for every request would be measured too.
        "http.log-enabled": "false",
        "data.query-log-enabled": "false",
        # The default, set here because any comparison depends on it: every write is synced.
        "data.wal-fsync-delay": "0s",
        # By default loads of more than 100,000 values of a tag, or a million series, are refused.
        "data.max-values-per-tag": "0",
        "data.max-series-per-database": "0",
        # Else little data is in the log only when its size is read: see `http_api.settle`.
        f"data.{http_api.COLD}": http_api.OUR_COLD,
    }

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, group: Group | None = None) -> None:
        given = dict(settings or {})
        self._version = given.pop("version", None)
        if self._version not in {None, "1.6", "1.8"}:
            raise UserMistake(f"settings: version = '{self._version}': tsbench starts 1.6 and 1.8")
        for key in given:
            if key.count(".") != 1:
                raise UserMistake(f"settings: {key}: write section.key as in influxdb.conf, such as data.index-version")
        super().__init__(directory, given, group)

    def _command(self, program: Path) -> tuple[list[str], Mapping[str, str]]:
        # Paths are relative to `place`, where it is started.
        places = {
            "meta.dir": "data/meta",
            "data.dir": "data/data",
            "data.wal-dir": "data/wal",
            "http.bind-address": self.address,
        }
        config = self.place / "influxdb.conf"
        config.unlink(missing_ok=True)
        unprivileged.write_once(config, _toml({**self.configured, **places}))
        self._check_settings(program)
        return [str(program), "-config", config.name], {}

    def _program(self) -> Path:
        wanted = [self._version] if self._version else ["1.8", "1.6"]
        program = next(filter(None, (cached_program(f"influxd-{version}") for version in wanted)), None)
        if program is None:
            raise not_installed(f"InfluxDB {' or '.join(wanted)}", f"influxd-{wanted[0]}")
        return program

    def _check_settings(self, program: Path) -> None:
        """Verify that the server accepts the settings: it ignores unknown ones, but prints all that it uses."""
        try:
            done = subprocess.run(
                [str(program), "config", "-config", "influxdb.conf"], capture_output=True, text=True, check=False,
                cwd=self.place, env={"HOME": str(self.place)}, timeout=_CONFIG_S, **unprivileged.credentials(),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Broken(f"{program} config did not end within {_CONFIG_S:g} s") from None
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            names = ", ".join(self._settings)
            raise UserMistake(f"settings: {names}: {program.name} refuses: {last[-1]}")
        known, section = set(), ""
        for line in map(str.strip, done.stdout.splitlines()):
            if line.startswith("["):
                section = line.strip("[]")
            elif "=" in line:
                known.add(f"{section}.{line.partition('=')[0].strip()}")
        for key in self._settings:
            if key not in known:
                raise UserMistake(f"settings: {key}: {program.name} has no such setting; see {program.name} config")


class InfluxServer2(LocalHttpServer):
    """InfluxDB 2.x. Settings are its options without the leading dashes (`storage-wal-fsync-delay`)."""

    product = "InfluxDB"
    log_name = "influxdb2.log"
    health = "/health"
    # The first is the default, set here because any comparison depends on it: every write is synced.
    defaults: ClassVar = {
        "storage-wal-fsync-delay": "0s",
        f"storage-{http_api.COLD}": http_api.OUR_COLD,
        "ui-disabled": "true",
    }

    @property
    def endpoint(self) -> str:
        query = urlencode({"org": "tsbench", "bucket": "tsbench", "token_file": str(self._token_file)}, safe="/")
        return f"http://{self.address}/?{query}"

    @property
    def _token_file(self) -> Path:
        return self._directory / "token"

    def _program(self) -> Path:
        program = cached_program("influxd-2")
        if program is None:
            raise not_installed("InfluxDB 2", "influxd-2")
        return program

    def _command(self, program: Path) -> tuple[list[str], Mapping[str, str]]:
        options = [f"--{name}={value}" for name, value in self.configured.items()]
        # Paths are relative to `place`, where it is started; SQLite's would end at a question mark.
        return [str(program), "--reporting-disabled", *options], {
            "INFLUXD_BOLT_PATH": "data/influxd.bolt",
            "INFLUXD_SQLITE_PATH": "data/influxd.sqlite",
            "INFLUXD_ENGINE_PATH": "data/engine",
            "INFLUXD_HTTP_BIND_ADDRESS": self.address,
        }

    def _ready(self) -> None:
        super()._ready()
        if not self._token_file.exists():
            self._set_up()

    def _set_up(self) -> None:
        """Create the first user and organisation. The password is discarded: log-ins use the token."""
        token = secrets.token_hex(32)
        first = {"username": "tsbench", "password": secrets.token_hex(16), "org": "tsbench", "bucket": "first"}
        status, body = request(self._port, "POST", "/api/v2/setup", {**first, "token": token})
        if status != 201:
            raise Broken(f"InfluxDB 2 could not be set up: {status} {body.decode(errors='replace')[:200]}")
        with os.fdopen(os.open(self._token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)


def _toml(settings: Mapping[str, str]) -> str:
    """Return the settings as InfluxDB's configuration file. Its backup service gets any free port on loopback."""
    lines = ["reporting-disabled = true", 'bind-address = "127.0.0.1:0"']
    for section in dict.fromkeys(name.partition(".")[0] for name in settings):
        lines.append(f"[{section}]")
        for name, value in settings.items():
            if name.startswith(f"{section}."):
                plain = value in {"true", "false"} or value.lstrip("-").isdigit()
                lines.append(
                    f"  {name.partition('.')[2]} = {value if plain else json.dumps(value, ensure_ascii=False)}"
                )
    return "\n".join(lines) + "\n"
