"""The objects that a run creates on a server which tsbench did not start: their record in the manifest, their removal.

The record is `created` in env.json: `found` has the containers (a namespace, a database, a file) that existed before
the run, `others` the tables like ours that existed before and are of no measurement of its scenario, `made` what
existed after its tables had been created and not before, by name with the database's own id.
`found` is written before anything is created. A run that was killed before it wrote `made` may have made all that
exists now and is not in `found`.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from tsbench.errors import Broken, UserMistake, one_line
from tsbench.model import OpError
from tsbench.results.manifest import Created, Manifest
from tsbench.results.reading import damaged
from tsbench.results.rundir import find_runs
from tsbench.run import keeping
from tsbench.run.standing import server_directory
from tsbench.run.time_limits import Limits
from tsbench.scenario.parts import DEFAULTS
from tsbench.scenario.spec import Job, spec_of
from tsbench.scenario.use_case import built_in_cases
from tsbench.scenario.validation import schema_of
from tsbench.servers.embedded import makes_file
from tsbench.targets import registry
from tsbench.targets.registry import TARGETS
from tsbench.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tsbench.model import Measurement
    from tsbench.results.rundir import RunDir
    from tsbench.targets.base import ServerObject, Session
    from tsbench.targets.target import Target

# --- the record -------------------------------------------------------------------------------------------------------


def is_new(spec: Job, target: Target) -> bool:
    """Return True if the first session will make the file of the endpoint's database."""
    return bool(spec.target.endpoint) and target.embedded and makes_file(spec.target.endpoint or "")


def note_found(spec: Job, session: Session, *, new: bool) -> Created | None:
    """Return `created` for the manifest before anything is created; `new` as `is_new` was before the session."""
    if not spec.target.endpoint:
        return None
    measurements = spec.measurements()
    there = () if new else session.objects(measurements)
    others = session.inventory(measurements, series=False).tables
    identities = {one.name: one.id for one in there if one.holds is not None}
    return Created(endpoint=spec.target.endpoint, found=identities, others=tuple(others))


def note_made(run: RunDir, spec: Job, session: Session) -> None:
    """Add what was created to the manifest."""
    manifest = Manifest.read(run)
    if manifest is None or manifest.created is None:
        return
    earlier = manifest.created.found
    made = {
        one.name: one.id
        for one in session.objects(spec.measurements())
        if one.holds is None or earlier.get(one.name) != one.id
    }
    created = manifest.created.model_copy(update={"made": made})
    manifest.model_copy(update={"created": created}).write(run)


def note_nothing_made(run: RunDir) -> None:
    """Take the record out of the manifest of a run that creates nothing."""
    manifest = Manifest.read(run)
    if manifest is not None:
        manifest.model_copy(update={"created": None}).write(run)


# --- what is left -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Leftovers:
    """What the runs of a result set created in one place, as far as they have recorded it."""

    spec: Job
    measurements: dict[str, Measurement] = field(default_factory=dict)
    made: dict[str, set[str]] = field(default_factory=dict)
    """Ids by name."""
    unsure: list[Mapping[str, str]] = field(default_factory=list)
    """For each run that did not record what it made: the containers that it found."""

    def add(self, spec: Job, created: Created) -> None:
        """Add what one run recorded."""
        self.measurements |= {measurement.name: measurement for measurement in spec.measurements()}
        if created.made is None:
            self.unsure.append(created.found)
        for name, number in (created.made or {}).items():
            self.made.setdefault(name, set()).add(number)

    def has(self, one: ServerObject) -> bool:
        """Return True if one of the runs made the object."""
        maybe = any(one.holds is None or known.get(one.name) != one.id for known in self.unsure)
        return maybe or one.id in self.made.get(one.name, ())


def leftovers(results: Path) -> list[Leftovers]:
    """Return what the runs of a result set, or one run, have left, by endpoint and schema.

    Raises
    ------
    UserMistake
        If the directory holds no run, or a file of a run is damaged.
    """
    objects: dict[tuple[str, ...], Leftovers] = {}
    for run in find_runs(results):
        manifest = Manifest.read(run)
        if manifest is None or manifest.created is None:
            continue
        spec = _spec(run)
        place = spec.target.name, spec.target.endpoint or "", spec.target.schema_ or ""
        objects.setdefault(place, Leftovers(spec)).add(spec, manifest.created)
    return list(objects.values())


def _spec(run: RunDir) -> Job:
    try:
        return spec_of(run.read_json("spec.json"))
    except ValidationError as error:
        raise damaged(run / "spec.json", error.errors()[0]["msg"]) from None


def described(names: Iterable[str]) -> str:
    """Return names of objects, each "kind name", as a list in which every kind comes once."""
    kinds: dict[str, list[str]] = {}
    for name in names:
        kind, _, rest = name.partition(" ")
        kinds.setdefault(kind, []).append(rest)
    return ", ".join(f"{kind}{'s' * (len(some) > 1)} {', '.join(some)}" for kind, some in kinds.items())


def left_lines(results: Path) -> list[str]:
    """Return a line for each server of the user on which the runs of a result set have left something."""
    if not any(results.glob("*/spec.json")):  # it ended before it could begin
        return []
    return [
        f"left on {left.spec.target.endpoint}: {described(left.made) or 'some of the tables'}; "
        f"remove it with: tsbench cleanup {os.path.relpath(results)}"
        for left in leftovers(results)
    ]


# --- the removal ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How one place was cleaned up: one line for people, and the command's exit code."""

    text: str
    code: int = 0


def clean_up(results: Path) -> Iterator[Cleaned]:
    """Remove what the runs of a result set, or one run, have left, and yield what was done in each place.

    Raises
    ------
    UserMistake
        As `leftovers`, or if one of the runs has not ended.
    """
    left = leftovers(results)
    if kept := keeping.end(results):
        yield Cleaned(kept)
    for run in find_runs(results):
        if run.is_held():
            raise UserMistake(f"{run.path} is the run of a tsbench that has not ended; stop it first")
    for one in left:
        yield _clean(one)
    yield from _started_here(find_runs(results))


def _clean(left: Leftovers) -> Cleaned:
    endpoint = left.spec.target.endpoint or ""
    target = registry.get(left.spec.target.name)
    try:
        if target.embedded and makes_file(endpoint):
            return Cleaned(f"nothing of this run is left on {endpoint}")
        limits = Limits(left.spec.timeout, endpoint)
        with closing(limits.connect(target, schema_of(left.spec, target), "create")) as session:
            return _removed(left, session, endpoint)
    except UserMistake as error:
        return Cleaned(one_line(error), 2)
    except (OpError, Broken, OSError) as error:
        return Cleaned(f"{described(left.made)} may be left on {endpoint}: {one_line(error)}", 1)


def clean_target(target: Target, endpoint: str) -> Cleaned:
    """Remove the tables of all simulated worlds from a database, whichever run or load made them.

    What contains them (a namespace, a database, a file) stays, and so do tables that files of other names made.
    """
    cases = built_in_cases().values()
    worlds = [case.measurement(one) for case in cases for form in case.forms.values() for one in form]
    measurements = list({m.name: m for m in worlds}.values())
    if target.embedded and makes_file(endpoint):
        return Cleaned(f"nothing of tsbench is left on {endpoint}")
    try:
        with closing(Limits(DEFAULTS, endpoint).connect(target, next(iter(target.schemas.values())), "create")) as one:
            tables = [each for each in one.objects(measurements) if each.holds is None]
            for each in tables:
                one.run(each.remove)
            others = one.inventory(measurements, series=False).tables
    except UserMistake as error:
        return Cleaned(one_line(error), 2)
    except (OpError, Broken, OSError) as error:
        return Cleaned(f"tables may be left on {endpoint}: {one_line(error)}", 1)
    text = f"removed {described(each.name for each in tables)} from" if tables else "nothing of tsbench is left on"
    rest = f"; {listed(others)} are of no world, so that only `tsbench cleanup RESULTS` of their load removes them"
    return Cleaned(f"{text} {endpoint}{rest if others else ''}")


def _removed(left: Leftovers, session: Session, endpoint: str) -> Cleaned:
    """Remove the runs' tables or buckets, then their containers if these are empty."""
    measurements = list(left.measurements.values())
    removed = []
    for one in session.objects(measurements):
        if one.holds is None and left.has(one):
            session.run(one.remove)
            removed.append(one.name)
    containers = [one for one in session.objects(measurements) if one.holds is not None and left.has(one)]
    for one in containers:
        if not one.holds:
            session.run(one.remove)
            removed.append(one.name)
    text = f"removed {described(removed)} from {endpoint}" if removed else f"nothing of this run is left on {endpoint}"
    kept = [one.name for one in containers if one.holds]
    return Cleaned(f"{text}; kept {described(kept)}, which holds something else" if kept else text)


def _started_here(runs: Iterable[RunDir]) -> Iterator[Cleaned]:
    """Remove the data of servers that tsbench started and, because it was killed, did not remove."""
    for run in runs:
        for directory in (run / "server", server_directory(run)):
            if directory.exists():
                spec = _spec(run)
                spec.server.new(TARGETS[spec.target.name], directory, spec.target.settings).remove()
                yield Cleaned(f"removed the data directory of the server of {run.path}")
