"""Plans from answers to explain, in the shapes that MongoDB's documentation shows, and from FerretDB itself."""

from __future__ import annotations

from typing import Any

import pytest

from tsbench.model import Latest, Raw, Window, WriteMode
from tsbench.run.time_limits import Limits
from tsbench.scenario.parts import TimeoutPart
from tsbench.targets.mongodb import TARGET, explain
from tsbench.targets.mongodb.schemas import PER_POINT, PER_POINT_INDEXED
from tsbench.targets.registry import TARGETS
from tsbench.testing import data
from tsbench.testing.data import CPU, START_NS, S

SCAN = {"stage": "COLLSCAN", "direction": "forward"}
INDEX = {"stage": "FETCH", "inputStage": {"stage": "IXSCAN", "indexName": "time_1"}}
SLOTS = {"slots": "$a", "stages": "[2] scan"}
GROUP = {"$group": {}, "nReturned": 4, "executionTimeMillisEstimate": 9}
FOUND = {"nReturned": 12, "executionTimeMillis": 3, "totalKeysExamined": 40, "totalDocsExamined": 30}


def cursor(plan: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    return {"queryPlanner": {"winningPlan": plan, "rejectedPlans": [SCAN]}, "executionStats": found}


@pytest.mark.parametrize(
    ("answer", "figures"),
    [
        (cursor(INDEX, FOUND), ("IXSCAN time_1", 30, 12, 3.0)),
        (cursor({"queryPlan": INDEX, "slotBasedPlan": SLOTS}, FOUND), ("IXSCAN time_1", 30, 12, 3.0)),
        (
            {"stages": [{"$cursor": cursor(SCAN, FOUND)}, GROUP]},
            ("COLLSCAN", 30, 4, 9.0),
        ),
        ({"shards": {"a": cursor(SCAN, FOUND), "b": cursor(INDEX, FOUND)}}, ("COLLSCAN, IXSCAN time_1", 60, 24, 3.0)),
        ({"queryPlanner": {}}, ("unknown", None, None, None)),
    ],
    ids=["search", "slot based", "stages", "shards", "nothing"],
)  # fmt: skip
def test_the_plan_has_the_figures_of_the_chosen_plan(answer: dict[str, Any], figures: tuple[Any, ...]) -> None:
    found = explain.plan(answer)
    assert (found.access, found.examined, found.returned, found.duration_ms) == figures


@pytest.mark.mongodb
def test_a_real_server_says_which_index_it_uses_and_leaves_open_what_it_does_not_tell(mongodb_endpoint: str) -> None:
    accesses: dict[str, Any] = {}
    for schema in (PER_POINT, PER_POINT_INDEXED):
        session: Any = TARGET.connect(mongodb_endpoint, schema)
        session.run(schema.create([CPU], data.shared_tags()))
        times = [START_NS + i * S for i in range(2_000)]
        session.write(schema.encode(data.batch(CPU, data.shared_tags(), time_ns=times), WriteMode.BULK))
        window = Raw(CPU, ("busy",), Window(START_NS, START_NS + 3 * S), ("host_0",))
        accesses[schema.name] = session.explain(schema.compile(window))
        assert "cpu" in session.explain(schema.compile(Latest(CPU, ("busy",)))).text
        told = [accesses[schema.name].examined, accesses[schema.name].returned, accesses[schema.name].duration_ms]
        assert told == [None] * 3 if "FerretDB" in session.version else None not in told
        session.close()
    assert "tags.host_1_time_-1" in accesses["per-point-indexed"].access
    assert "tags.host" not in accesses["per-point"].access


@pytest.mark.mongodb
def test_a_run_gets_the_plan_through_its_limits_where_the_database_reports_it(mongodb_endpoint: str) -> None:
    statement = PER_POINT.compile(Latest(CPU, ("busy",)))
    for target, endpoint in (("mongodb", mongodb_endpoint), ("null", "null://")):
        schema = next(iter(TARGETS[target].schemas.values()))
        session = Limits(TimeoutPart(), endpoint).connect(TARGETS[target], schema)
        session.run(schema.create([CPU], data.shared_tags()))
        assert (session.explain(statement) is None) is (target == "null")
        session.close()
