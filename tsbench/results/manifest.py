"""Manifest: on what a run was made, as env.json keeps it, so that a reader can judge it and somebody can repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake
from tsbench.results.rundir import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tsbench.results.rundir import RunDir

FILE = "env.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a run was made with and on.

    Parameters
    ----------
    world_version
        The version of the simulated worlds: runs of different versions did not store the same points. None in results
        of formats 1 and 2.
    tsbench, host, python, packages, clock
        Versions, and what the machine is and was doing before the run. `clock` has `source` and `utc_s`, when it began.
    server
        The server's version and settings, and its caps with what the kernel counted under them.
    created
        What the run created on a server that tsbench did not start (see `run.cleanup`).
    warnings
        What makes the results shaky, one sentence each.
    more
        Whatever else an older file has.
    """

    world_version: int | None = None
    tsbench: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    clock: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    created: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def with_server(self, facts: Mapping[str, Any]) -> Manifest:
        """Return it with more facts about the server."""
        return replace(self, server={**self.server, **facts})

    def with_warnings(self, texts: Iterable[str]) -> Manifest:
        """Return it with more warnings."""
        return replace(self, warnings=(*self.warnings, *texts))

    def to_json(self) -> dict[str, Any]:
        """Return it as env.json keeps it; parts of which nothing is known are left out."""
        own = {name: getattr(self, name) for name in _OWN if getattr(self, name)}
        return {"format": FORMAT, **own, **self.more, "warnings": list(self.warnings)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Manifest:
        """Return what env.json says, in this format or an earlier one; a part of another shape is kept in `more`."""
        version, warnings = content.get("world_version"), content.get("warnings")
        parts = {name: content[name] for name in _PARTS if isinstance(content.get(name), Mapping)}
        left = {name: part for name, part in content.items() if name not in {*parts, *_NO_PARTS}}
        return cls(
            world_version=version if isinstance(version, int) else None,
            warnings=tuple(map(str, warnings)) if isinstance(warnings, list) else (),
            more=left,
            **parts,
        )

    def write(self, run: RunDir) -> None:
        """Write it into a run directory."""
        run.write_json(FILE, self.to_json())

    @classmethod
    def read(cls, run: RunDir) -> Manifest | None:
        """Return the manifest of a run; None if it ended before it had one.

        Raises
        ------
        UserMistake
            If the file is damaged.
        """
        return cls.from_json(run.read_json(FILE)) if run.has(FILE) else None


_OWN = tuple(each.name for each in fields(Manifest) if each.name not in {"warnings", "more"})
_PARTS = tuple(name for name in _OWN if name != "world_version")
_NO_PARTS = {"format", "world_version", "warnings"}


def check_world(run: RunDir, known: int, *, may_be_earlier: bool = False) -> None:
    """Refuse a run whose data are of another version of the simulated worlds than the `known` one.

    To show an earlier one's figures, which were checked when it was made, it `may_be_earlier`.

    Raises
    ------
    UserMistake
        One line with the cure.
    """
    version = _world_version(run)
    if version is None or version == known or (version < known and may_be_earlier):
        return
    other = "a newer tsbench" if version > known else "an earlier tsbench"
    cure = "update tsbench" if version > known else "run the scenario anew, without --resume"
    text = f"{run.path} holds data of {other} (world version {version}, now {known}), which are not the same; {cure}"
    raise UserMistake(text)


def check_same_world(runs: Sequence[RunDir]) -> None:
    """Refuse to compare runs that did not store the same points.

    Raises
    ------
    UserMistake
        One line that names a run of each of two versions.
    """
    first: tuple[RunDir, int] | None = None
    for run in runs:
        version = _world_version(run)
        if version is None:
            continue
        if first is not None and first[1] != version:
            both = f"{first[0].path} (world version {first[1]}) and {run.path} (world version {version})"
            raise UserMistake(f"{both} did not store the same data; report them one by one")
        first = first or (run, version)


def _world_version(run: RunDir) -> int | None:
    """Return the version that a run recorded; None if it ended before, or if its manifest is old or damaged."""
    try:
        manifest = Manifest.read(run)
    except UserMistake:  # the report has a note of it
        return None
    return manifest.world_version if manifest is not None else None
