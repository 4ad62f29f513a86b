"""What every target must do, as one class. A target's test class inherits it and gives

- `name`, the target's name in `TARGETS`,
- `url`, a fixture: the endpoint of an empty database,
- `stored`, a reader on the bare driver: the points of a measurement as (time_ns, series, fields..., own tags),
- `alter`, which changes stored data by the bare driver, so that defects can be planted,
- `refused_in_part`, for a database that can be made to refuse some points of a write by its bare driver,
- `absent`, the schemas that no server of the tests can store,
- `variants`, the schemas that pass only the tests `of_every_layout`, each with the one that passes all,
- `unsupported`, the kinds of query that a schema refuses, by schema (strict: what is declared must be refused).
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest

from tsbench.check.stored_rows import Flaw
from tsbench.drive.feed.encoder import Inbox, framed
from tsbench.errors import UserMistake
from tsbench.model import (
    Aggregated,
    Batch,
    Field,
    Latest,
    Measurement,
    OpError,
    Outcome,
    PartialWrite,
    Query,
    Raw,
    Stored,
    Window,
    WriteMode,
)
from tsbench.model import Kind as FieldKind
from tsbench.targets.base import Operation, Schema, Session, Statement, Unsupported
from tsbench.targets.target import Access, Target
from tsbench.testing import data
from tsbench.testing.contract_base import ALL, Action, Alteration, ContractBase, Point, form_of, of_every_layout
from tsbench.testing.data import CPU, DISK, LAG, START_NS, STATES, WIDE, S
from tsbench.testing.stand import Stand, world_of
from tsbench.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tsbench.targets.base import Payload

C = TypeVar("C", bound=ContractBase)


@pytest.mark.contract
class TargetContract(ContractBase):
    def test_a_variant_has_the_statements_and_payloads_of_the_layout_that_passes_the_whole_contract(
        self, target: Target
    ) -> None:
        for variant, whole in ((target.schemas[a], target.schemas[b]) for a, b in self.variants.items()):
            assert (variant.modes, variant.keeps_duplicates) == (whole.modes, whole.keeps_duplicates)
            assert variant.drop(ALL) == whole.drop(ALL)
            for m in ALL:
                batch = self.scattered(m, 40, seed=3)[0]
                for asked in data.queries(m, ("host_1", "host_2")):
                    assert compiled(variant, asked.query) == compiled(whole, asked.query), (variant.name, asked.name)
                for mode in variant.modes:
                    points = 1 if mode is WriteMode.SINGLE else 20
                    one, other = ([*schema.encode_each(batch, points, mode)] for schema in (variant, whole))
                    assert contents(one) == contents(other), (variant.name, m.name, mode)

    # --- tables

    @of_every_layout
    def test_creating_again_leaves_empty_tables(self, session: Session, schema: Schema) -> None:
        self.write(session, schema, self.scattered(CPU, 9, 1))
        session.run(schema.create(ALL, data.shared_tags()))
        assert [self.count(session, schema, m) for m in ALL] == [0] * len(ALL)

    def test_dropping_is_harmless_where_nothing_is(self, session: Session, schema: Schema) -> None:
        session.run(schema.drop(ALL))
        session.run(schema.drop(ALL))
        with pytest.raises(OpError):
            self.count(session, schema, CPU)

    @of_every_layout
    def test_names_and_tags_are_not_read_as_part_of_a_statement(self, target: Target, url: str, schema: Schema) -> None:
        odd = Measurement('se"lect', ("ho'st", 'the "key"'), (Field('or"der by'), Field("time zone %s $1")))
        shared = {"ho'st": data.codes(list(data.ODD)), 'the "key"': data.codes(["x"] * len(data.ODD))}
        session = target.connect(url, schema)
        session.run(schema.create([odd], shared))
        batch = Batch(
            odd, 0, 0,
            np.arange(len(data.ODD)) * S + START_NS, np.arange(len(data.ODD), dtype=np.int32), shared,
            {name: np.arange(len(data.ODD)) / 2 for name in odd.field_names},
        )  # fmt: skip
        self.write(session, schema, [batch])
        window = Window(START_NS, START_NS + 100 * S)
        for keys in (None, *((value,) for value in data.ODD), data.ODD):
            self.agrees(session, schema, Raw(odd, odd.field_names, window, keys), self.key(schema, [batch]))
        session.run(schema.drop([odd]))
        session.close()

    # --- writing

    @of_every_layout
    @pytest.mark.every_user
    def test_a_write_stores_exactly_the_points(
        self, session: Session, url: str, schema: Schema, mode: WriteMode
    ) -> None:
        for m in (CPU, DISK, LAG):
            batches = self.scattered(m, 40, seed=7)
            for batch in batches:
                single = mode is WriteMode.SINGLE
                made = [*schema.encode_each(batch, 1, mode)] if single else [schema.encode(batch, mode)]
                pieces = arrived(made)
                assert sum(session.write(p) for p in pieces) == len(batch) == sum(p.points for p in pieces)
                assert all(p.nbytes > 0 and p.measurement == m.name and p.mode is mode for p in pieces)
            assert sorted(self.stored(url, m), key=_order) == sorted(_points(batches), key=_order)

    def test_numbers_come_back_to_the_last_bit_or_are_refused(
        self, session: Session, schema: Schema, mode: WriteMode
    ) -> None:
        if mode is WriteMode.SINGLE:
            return
        floats = np.array(
            [0.1 + 0.2, 1 / 3, math.nextafter(1, 2), 1.2345678901234567e-300, -math.pi * 1e17, 5e15 + 0.5]
        )
        large = np.array([2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63) + 2, 2**62 + 1, 0])
        times = [START_NS + i * S for i in range(len(floats))]
        window = Window(START_NS, START_NS + 100 * S)
        for m in (CPU, DISK):
            made = data.batch(m, data.shared_tags(), time_ns=times, series=[0, 1, 0, 1, 0, 1])
            kinds = {f.name: f.kind for f in m.fields}
            batches = [
                replace(
                    made, fields={name: column if kind is FieldKind.INT else floats for name, kind in kinds.items()}
                )
                for column in (large, large // 2**11)
            ]
            self.write(session, schema, batches[:1], mode)
            names, key = m.field_names, self.key(schema, batches[:1])
            asked: list[Query] = [Raw(m, names, window), Latest(m, names), Stored(m)]
            for how in ("max", "min"):
                asked += [Aggregated.of(m, names, how, 100 * S, window, None, by) for by in ((), m.tags[:1])]
            for query in asked:
                self.agrees(session, schema, query, key)

    def test_points_that_the_database_does_not_take_are_refused_alone_or_with_all_others_as_declared(
        self, session: Session, target: Target, url: str, schema: Schema, mode: WriteMode
    ) -> None:
        found = None if mode is WriteMode.SINGLE else self.refused_in_part(session, target, url, schema, mode)
        if found is None:
            assert mode is WriteMode.SINGLE or not target.acknowledges_in_part
            return
        session, payload, refused = found
        with pytest.raises(OpError) as caught:
            session.write(payload)
        stored = len(self.stored(url, CPU))
        if target.acknowledges_in_part:
            assert isinstance(caught.value, PartialWrite)
            assert (caught.value.outcome, caught.value.refused) == (Outcome.PARTIAL, refused)
            assert caught.value.acknowledged == stored == payload.points - refused
        else:
            assert (caught.value.outcome, stored) == (Outcome.FAILED, 0)
        session.close()

    def test_payloads_are_the_same_by_either_way(self, schema: Schema, mode: WriteMode) -> None:
        for m in (CPU, DISK, LAG):
            batch = self.scattered(m, 40, 3)[0]
            for points in {1} if mode is WriteMode.SINGLE else {1, 3, 20, len(batch), len(batch) + 1}:
                slices = [batch.rows(i, i + points) for i in range(0, len(batch), points)]
                each, alone = schema.encode_each(batch, points, mode), [schema.encode(s, mode) for s in slices]
                found = contents([*each])
                assert found == contents(alone)
                assert {content[:2] for content in found} == {(mode, m.name)}

    def test_nothing_is_made_of_no_points(self, schema: Schema, mode: WriteMode) -> None:
        none = self.scattered(CPU, 10, 3)[0].rows(0, 0)
        assert not [*schema.encode_each(none, 1 if mode is WriteMode.SINGLE else 5, mode)]

    def test_a_single_write_of_two_points_is_refused(self, schema: Schema) -> None:
        with pytest.raises(Unsupported):
            schema.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + S]), WriteMode.SINGLE)

    def test_a_batch_larger_than_a_statement_may_be_is_stored_whole(self, session: Session, schema: Schema) -> None:
        times = (START_NS + np.arange(6_000) * S).tolist()
        batch = data.batch(WIDE, data.shared_tags(), time_ns=times)
        if WriteMode.MULTI in schema.modes:
            assert self.write(session, schema, [batch], WriteMode.MULTI) == 6_000
            everything = Raw(WIDE, WIDE.field_names, Window(START_NS, START_NS + 9_999 * S))
            self.agrees(session, schema, everything, self.key(schema, [batch]))

    @of_every_layout
    def test_two_points_of_a_series_at_one_time_are_kept_or_replaced_as_declared(
        self, session: Session, schema: Schema, mode: WriteMode
    ) -> None:
        shared = data.shared_tags()
        times = [START_NS, START_NS, START_NS, START_NS + S]
        first = data.batch(CPU, shared, time_ns=times, series=[0, 1, 0, 0], seed=1)
        again = data.batch(CPU, shared, time_ns=times[:2], series=[0, 1], seed=2)
        for batch in (first, again):
            self.write(session, schema, [batch], mode)
        assert self.count(session, schema, CPU) == (6 if schema.keeps_duplicates else 3)
        everything = Raw(CPU, CPU.field_names, Window(START_NS, START_NS + 2 * S))
        self.agrees(session, schema, everything, self.key(schema, [first, again]))

    def test_another_session_reads_what_was_acknowledged(
        self, session: Session, target: Target, url: str, schema: Schema
    ) -> None:
        other = target.connect(url, schema)
        assert self.count(other, schema, CPU) == 0
        self.write(session, schema, self.scattered(CPU, 12, 1))
        assert self.count(other, schema, CPU) == 12
        other.close()

    # --- asking

    @of_every_layout
    @pytest.mark.parametrize("measurement", [CPU, DISK, LAG], ids=lambda m: m.name)
    def test_every_answer_is_memorys(self, session: Session, schema: Schema, measurement: Measurement) -> None:
        shared = data.shared_tags()
        batches = self.scattered(measurement, 200, seed=11)
        self.write(session, schema, batches)
        key = self.key(schema, batches)
        for seed in range(2 if schema.name in self.variants else 4):  # a variant has the same statements
            for asked in data.queries(measurement, tuple(shared["host"].tolist()), seed):
                self.agrees(session, schema, asked.query, key, asked.name)

    def test_texts_and_booleans_are_stored_and_choose_rows(
        self, session: Session, schema: Schema, mode: WriteMode
    ) -> None:
        if not {field.kind for field in STATES.fields} <= schema.kinds:
            with pytest.raises(Unsupported, match="holds numbers only"):
                schema.encode(self.scattered(STATES, 3, seed=13)[0].rows(0, 1), mode)
            return
        session.run(schema.create([STATES], data.shared_tags()))
        batches = self.scattered(STATES, 120, seed=13)
        assert self.write(session, schema, batches, mode) == 120
        key = self.key(schema, batches)
        for asked in data.queries_of_states(("host_1", "host_3")):
            self.agrees(session, schema, asked.query, key, asked.name)
        session.run(schema.drop([STATES]))

    @of_every_layout
    def test_settling_changes_no_answer(self, session: Session, schema: Schema) -> None:
        batches = self.scattered(CPU, 60, seed=5)
        self.write(session, schema, batches)
        session.run(schema.settle(ALL))
        key = self.key(schema, batches)
        for asked in data.queries(CPU, ("host_1", "host_3"), 2):
            self.agrees(session, schema, asked.query, key, asked.name)

    def test_a_window_has_its_start_and_not_its_end(self, session: Session, schema: Schema) -> None:
        step_ns = self.the_target().resolution_ns
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i * step_ns for i in range(10)])
        self.write(session, schema, [batch])
        key = self.key(schema, [batch])
        beside = sorted({1 - step_ns, -1, 0, 1, step_ns - 1})
        for start in (START_NS + 2 * step_ns + d for d in beside):
            for end in (START_NS + 7 * step_ns + d for d in beside):
                self.agrees(session, schema, Raw(CPU, ("busy",), Window(start, end)), key)
                self.agrees(session, schema, Latest(CPU, ("busy",), end), key)

    def test_a_window_without_points_has_no_rows(self, session: Session, schema: Schema) -> None:
        self.write(session, schema, self.scattered(CPU, 9, 1))
        later = Window(START_NS + 9_999 * S, START_NS + 99_999 * S)
        for query in (Raw(CPU, ("busy",), later), Latest(CPU, ("busy",), START_NS - S), Raw(CPU, ("busy",), later, ())):
            assert len(self.ask(session, schema, query).records) == 0

    def test_an_unknown_key_has_no_rows(self, session: Session, schema: Schema) -> None:
        self.write(session, schema, self.scattered(CPU, 9, 1))
        for asked in data.queries(CPU, ("nobody", "no one")):
            if getattr(asked.query, "keys", None) and form_of(asked.query) not in self.unsupported.get(schema.name, ()):
                assert len(self.ask(session, schema, asked.query)) == 0, asked.name

    def test_what_is_unsupported_is_declared_and_nothing_else(self, schema: Schema) -> None:
        refused, reasons = set(), []
        for asked in data.queries(CPU, ("host_1", "host_2")):
            try:
                schema.compile(asked.query)
            except Unsupported as unsupported:
                reasons.append(str(unsupported))
                refused.add(form_of(asked.query))
        assert all(reasons)
        assert refused == set(self.unsupported.get(schema.name, ()))

    # --- errors

    def test_a_missing_table_is_a_failure_and_the_session_goes_on(self, session: Session, schema: Schema) -> None:
        missing = Measurement("missing", CPU.tags, CPU.fields)
        batch = data.batch(missing, data.shared_tags(), time_ns=[START_NS])
        for mode in schema.modes:
            with pytest.raises(OpError) as caught:
                session.write(schema.encode(batch, mode))
            assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "no table")
        with pytest.raises(OpError) as caught:
            self.count(session, schema, missing)
        assert caught.value.outcome is Outcome.FAILED
        assert self.count(session, schema, CPU) == 0

    def test_nonsense_is_a_failure(self, session: Session, schema: Schema) -> None:
        nonsense = Statement("this is nonsense")
        foreign = Operation(schema.settle([CPU])[-1].text)  # an operation is told by its type, not by its text
        for act in (
            lambda: session.run([nonsense]),
            lambda: session.run([foreign]),
            lambda: session.query(nonsense, ("x",)),
        ):
            with pytest.raises(OpError) as caught:
                act()
            assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "statement")
        assert self.count(session, schema, CPU) == 0

    def test_an_endpoint_of_another_kind_is_the_users_mistake(self, target: Target, schema: Schema) -> None:
        for endpoint in self.wrong_endpoints:
            with pytest.raises(UserMistake) as caught:
                target.connect(endpoint, schema)
            assert "\n" not in str(caught.value)

    def test_closing_twice_is_harmless(self, session: Session, schema: Schema) -> None:
        session.close()
        session.close()

    # --- checks of what is stored

    @pytest.mark.slow
    def test_defects_planted_by_the_bare_driver_are_found_and_sound_data_is_not_accused(
        self, target: Target, url: str, schema: Schema, tmp_path: Path
    ) -> None:
        world = world_of("cpu-only", 6, interval_s=60)
        stand = Stand(world, target, schema, url, 30).load().write(tmp_path, 12)
        gold = stand.gold()
        found = {"sound": stand.false_verdicts(gold)}

        def plant(name: str, action: Action, batch: Batch, row: int) -> None:
            alteration = _alteration(action, batch, row, more=0 if name == "changed back" else 1)
            self.alter(url, alteration)
            found[name] = stand.false_verdicts(gold)

        (loaded,) = islice(world.batches(0, points=30), 1)
        (written,) = islice(world.batches(0, points=10, first_tick=30), 1)
        plant("a value changed", "change", loaded, 7)
        plant("changed back", "change", loaded, 7)
        plant("a written value changed", "change", written, 9)
        plant("changed back", "change", written, 9)
        if schema.keeps_duplicates:
            plant("a row stored twice", "duplicate", loaded, 11)
        plant("a row deleted", "delete", loaded, 11)
        plant("a written row deleted", "delete", written, 3)
        assert found.pop("sound") == found.pop("changed back") == set()
        assert found.pop("a value changed") == found.pop("a written value changed") == {"rows"}
        assert found, "rows were stored twice or deleted"
        assert {frozenset(verdicts) for verdicts in found.values()} == {frozenset({"rows", "count"})}

    def test_all_that_is_stored_with_points_is_in_the_answer_whoever_stored_it(
        self, target: Target, url: str, schema: Schema, tmp_path: Path
    ) -> None:
        if not self.holds_anything:
            return
        world = world_of("cpu-only", 6, interval_s=60)
        stand = Stand(world, target, schema, url, 30).load()
        gold, query = stand.gold(), Stored(world.measurements[0])
        (loaded,) = islice(world.batches(0, points=30), 1)
        long_before = replace(loaded, time_ns=loaded.time_ns - 90 * 86_400 * S)
        host = loaded.tags["hostname"][int(loaded.series[7])]
        steps: tuple[tuple[Action, Batch, Flaw], ...] = (
            ("tag", loaded, Flaw.OTHER_TAGS),
            ("more", loaded, Flaw.EXTRA),
            ("part", long_before, Flaw.PARTIAL),
        )
        for action, batch, kind in steps:
            self.alter(url, _alteration(action, batch, 7, more=0))
            session = stand.connect()
            found = gold.differences(query, session.query(schema.compile(query), query.columns))
            limited = replace(query, end_ns=world.time_ns(0), limit=1)
            before = session.query(schema.compile(limited), query.columns)
            session.close()
            at = format_time(int(batch.time_ns[7]))
            assert (kind, host, at) in {(one.kind, one.series, one.time) for one in found}, action
            assert len(before) == (action == "part")

    # --- what it says about itself

    @pytest.mark.slow
    def test_other_processes_open_the_data_as_declared(
        self, session: Session, target: Target, url: str, schema: Schema
    ) -> None:
        assert self.opens_elsewhere(url, schema) is (target.access is Access.ANY_PROCESS)
        session.close()
        assert self.opens_elsewhere(url, schema)

    def test_it_has_counters_as_declared(self, session: Session, target: Target, schema: Schema) -> None:
        assert bool(session.counters()) is bool(session.panels) is target.has_counters
        if target.has_counters:
            self.write(session, schema, self.scattered(CPU, 9, 1))
            self.count(session, schema, CPU)
            known = session.counters().keys()
            assert session.panels
            assert [panel.title for panel in session.panels if not panel.counters.keys() & known] == []

    @of_every_layout
    def test_a_plan_has_the_rows_of_the_answer_and_no_fewer_were_examined(
        self, session: Session, schema: Schema
    ) -> None:
        batches = self.scattered(CPU, 60, seed=5)
        self.write(session, schema, batches)
        session.run(schema.settle(ALL))
        window = Window(START_NS, START_NS + 9_999 * S)
        for query in (
            Raw(CPU, ("busy",), window),
            Aggregated.of(CPU, ("busy",), "max", 60 * S, window),
            Latest(CPU, ("busy",)),
        ):
            plan = session.explain(schema.compile(query))
            if plan is None:
                continue
            assert plan.access
            assert json.loads(plan.text)
            assert plan.returned in {None, len(self.key(schema, batches).answer(query))}
            assert plan.examined is None or plan.examined >= (plan.returned or 0)

    @of_every_layout
    def test_facts_and_sizes_are_told(self, session: Session, schema: Schema) -> None:
        self.write(session, schema, self.scattered(CPU, 30, 1))
        session.run(schema.settle(ALL))
        facts, sizes = session.facts(), session.sizes(ALL)
        assert facts["version"]
        assert all(isinstance(k, str) and isinstance(v, str) for k, v in facts.items())
        assert sum(sizes.values()) > 0
        assert all(isinstance(v, int) and v >= 0 for v in sizes.values())


def round_trip(*also: str) -> Callable[[type[C]], type[C]]:
    """Return a decorator that leaves the tests `of_every_layout` and `also` these of the contract, and a class's own.

    It is for another version of a server that passes all of it, with the same session and schemas.
    """

    def shortened(contract: type[C]) -> type[C]:
        for name, test in vars(TargetContract).items():
            marks = getattr(test, "pytestmark", ())
            is_short = of_every_layout.mark in marks or name in also or getattr(contract, name, None) is not test
            if name.startswith("test_") and not is_short:
                setattr(contract, name, None)
        return contract

    return shortened


def arrived(payloads: Sequence[Payload]) -> list[Payload]:
    """Return payloads as they come from an encoder process."""
    return [Inbox().add(framed(payload))[0].message for payload in payloads]


def contents(payloads: Sequence[Payload]) -> list[tuple[Any, ...]]:
    """Return what payloads have in them when they come from an encoder process, to be compared."""
    return [
        (one.mode, one.measurement, one.text, one.points, one.nbytes, None if isinstance(one.data, Batch) else one.data)
        for one in arrived(payloads)
    ]


def compiled(schema: Schema, query: Query) -> Statement | str:
    """Return a query as the schema has it, or why it has none."""
    try:
        return schema.compile(query)
    except Unsupported as unsupported:
        return str(unsupported)


def _alteration(action: Action, batch: Batch, row: int, *, more: int) -> Alteration:
    """An alteration of a row; `more` is what a change adds to its first field."""
    series = int(batch.series[row])
    field, column = next(iter(batch.fields.items()))
    tags = {tag: texts[series] for tag, texts in batch.tags.items()}
    value = int(column[row]) + more
    return Alteration(action, batch.measurement.name, int(batch.time_ns[row]), series, tags, field, value)


def _points(batches: list[Batch]) -> list[Point]:
    found: list[Point] = []
    for b in batches:
        for i in range(len(b)):
            series = int(b.series[i]) if b.measurement.tags else None
            own = {tag: b.tags[tag][int(b.series[i])] for tag in b.measurement.own_tags} or None
            found.append((int(b.time_ns[i]), series, *(float(b.fields[f][i]) for f in b.fields), own))
    return found


def _order(point: Point) -> tuple[int, int]:
    return point[0], -1 if point[1] is None else point[1]
