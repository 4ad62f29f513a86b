"""Manifest (env.json): the software and the machine of a run, by which readers can judge and repeat it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from tsbench.errors import UserMistake
from tsbench.results.json_files import Count, Named, Number, Part, Several, Text, read_part
from tsbench.results.rundir import FORMAT, RunDir
from tsbench.text import concealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FILE = "env.json"


class Created(Part):
    """What a run created on a server that tsbench did not start; see `run.cleanup`."""

    # As many as a server has, which may be more than reports show: the file's own limits bound them.
    endpoint: Text
    found: dict[str, Text]
    others: tuple[Text, ...] = ()
    made: dict[str, Text] | None = None


class Host(Part):
    """The machine, and what it was doing before the run."""

    cpu: Text = ""
    cores: Count = 0
    memory_bytes: Count = 0
    memory_available_bytes: Count = 0
    kernel: Text = ""
    system: Text = ""
    machine: Text = ""
    governor: Text = ""
    load_average: Several[Number] = ()


class ClockReading(Part):
    """The host's clock, and when the run began."""

    source: Text
    utc_s: Number


class Manifest(Part):
    """What a run was made with and on."""

    format: Count = FORMAT
    world_version: Count | None = None
    """The version of the simulated worlds: runs of different versions did not store the same points."""
    tsbench: Named[Text] = Field(default_factory=dict)
    host: Host | None = None
    python: Named[Text] = Field(default_factory=dict)
    packages: Named[Text] = Field(default_factory=dict)
    clock: ClockReading | None = None
    server: Named[Any] = Field(default_factory=dict)
    """The server's version and settings, and its caps with what the kernel counted under them."""
    created: Created | None = None
    warnings: Several[Text] = ()
    """What makes the results shaky, one sentence each."""

    def with_server(self, facts: Mapping[str, Any]) -> Manifest:
        """Return it with more facts about the server."""
        return self.model_copy(update={"server": {**self.server, **concealed(dict(facts))}})

    def with_warnings(self, texts: Iterable[str]) -> Manifest:
        """Return it with more warnings."""
        return self.model_copy(update={"warnings": (*self.warnings, *texts)})

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as env.json keeps it, without unknown parts."""
        content = self.model_dump()
        return {name: part for name, part in content.items() if part or name == "warnings"}

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
        return read_part(run / FILE, cls) if run.has(FILE) else None


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
