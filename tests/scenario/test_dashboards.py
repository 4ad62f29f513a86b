# ruff: noqa: E501 - a line for each panel
"""Dashboards of Grafana, current and older ones, as scenarios: what is asked, what is named, and the answers."""

from __future__ import annotations

import json
import random
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import complaint, says
from tsbench.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Panels = list[tuple[str, Any]]
"""Titles, each with a text or a target."""

POSTGRES: Panels = [
    ("CPU by host", "SELECT $__timeGroupAlias(time,'5m'), hostname, avg(usage_user) FROM cpu WHERE $__timeFilter(time) AND hostname IN ($host) GROUP BY 1, 2 ORDER BY 1"),
    ("CPU now", "SELECT avg(usage_idle) AS idle FROM cpu WHERE $__timeFilter(time)"),
    ("CPU by region", "SELECT $__timeGroup(time, $__interval) AS time, region AS metric, max(usage_system) AS value FROM cpu WHERE $__timeFilter(time) GROUP BY 1, 2"),
    ("Busiest", "SELECT hostname, max(usage_user) FROM cpu WHERE $__timeFilter(time) GROUP BY hostname ORDER BY 2 DESC, 1 LIMIT 5"),
    ("Memory", "SELECT $__timeGroupAlias(m.time, '1m'), avg(m.used_percent) AS used FROM mem m WHERE $__timeFilter(m.time) GROUP BY 1"),
    ("Memory of a host", "SELECT time, used_percent FROM mem WHERE $__timeFilter(time) AND hostname = '$host' ORDER BY time"),
    ("Both", "SELECT c.hostname, max(c.usage_user), max(m.used_percent) FROM cpu c JOIN mem m ON m.hostname = c.hostname AND m.time = c.time WHERE $__timeFilter(c.time) GROUP BY 1"),
    ("Above", "SELECT count(*) FROM cpu WHERE $__timeFilter(time) AND usage_user > $limit"),
    ("Between", "SELECT count(*) AS n FROM cpu WHERE time BETWEEN $__timeFrom() AND $__timeTo()"),
    ("Quoted", 'SELECT "hostname", min("usage_nice") FROM "cpu" WHERE $__timeFilter("time") GROUP BY 1;'),
    ("Public", "SELECT count(DISTINCT hostname) FROM public.cpu WHERE $__timeFilter(time)"),
    ("With", "WITH x AS (SELECT hostname, avg(usage_user) AS u FROM cpu WHERE $__timeFilter(time) GROUP BY 1) SELECT count(*) FROM x WHERE u > 50"),
    ("Fill", "SELECT $__timeGroupAlias(time, 1m, 0), sum(usage_irq) FROM cpu WHERE $__timeFilter(time) GROUP BY 1"),
    ("Case", "SELECT sum(CASE WHEN usage_user > 90 THEN 1 ELSE 0 END) AS hot FROM cpu WHERE $__timeFilter(time)"),
    ("Data centers", "SELECT datacenter, count(*) FROM cpu WHERE $__timeFilter(time) AND region = ${region:sqlstring} GROUP BY 1"),
    ("Old form", "SELECT avg(usage_guest) FROM cpu WHERE $__timeFilter(time) AND region IN ([[region]])"),
    ("Disk", "SELECT hostname, max(used) FROM disk WHERE $__timeFilter(time) GROUP BY 1 HAVING max(used) > 0"),
    ("Epoch", "SELECT $__timeEpoch(time), usage_user FROM cpu WHERE $__timeFilter(time) AND hostname = '$host'"),
    ("Other table", "SELECT count(*) FROM orders WHERE $__timeFilter(created)"),
    ("Delete", "DELETE FROM cpu"),
    ("Ever", "SELECT hostname, count(*) FROM cpu GROUP BY 1"),
]  # fmt: skip
MYSQL: Panels = [  # MariaDB rounds the mean of integers to four digits
    *((title, text.replace("public.", "").replace("avg(usage", "avg(0e0 + usage")) for title, text in POSTGRES if title != "Fill"),
    ("Time", "SELECT $__time(time), usage_user FROM cpu WHERE $__timeFilter(time) AND hostname = '[[host]]'"),
]  # fmt: skip
WHERE = 'WHERE $timeFilter AND "hostname" =~ /^$host$/'
INFLUXQL: Panels = [
    *((f"Mean {field}", f'SELECT mean("{field}") FROM "cpu" {WHERE} GROUP BY time($__interval), "hostname" fill(null)') for field in ("usage_user", "usage_system", "usage_idle")),
    *((how.title(), f'SELECT {how}("usage_user") AS "value" FROM "cpu" {WHERE}') for how in ("max", "min", "last", "first", "count", "sum", "stddev")),
    ("Several", f'SELECT mean("usage_user"), mean("usage_system"), max("usage_irq") AS "irq" FROM "cpu" {WHERE} GROUP BY time(1m) fill(none)'),
    ("Raw", f'SELECT "usage_user", "usage_system" FROM "cpu" {WHERE}'),
    ("Percentile", f'SELECT percentile("usage_user", 95) FROM "cpu" {WHERE} GROUP BY time($interval)'),
    ("Rate", f'SELECT non_negative_derivative(mean("bytes_sent"), 1s) FROM "net" {WHERE} GROUP BY time($__interval) fill(null)'),
    ("Region", 'SELECT mean("used_percent") FROM "mem" WHERE "region" = \'$region\' AND $timeFilter GROUP BY time(5m), "hostname"'),
    ("Built", {"measurement": "cpu", "select": [[{"type": "field", "params": ["usage_user"]}, {"type": "mean", "params": []}]], "groupBy": [{"type": "time", "params": ["$__interval"]}, {"type": "tag", "params": ["hostname"]}, {"type": "fill", "params": ["none"]}], "tags": [{"key": "hostname", "operator": "=~", "value": "/^$host$/"}]}),
    ("Built with alias", {"measurement": "mem", "select": [[{"type": "field", "params": ["used_percent"]}, {"type": "max", "params": []}, {"type": "math", "params": [" / 100"]}, {"type": "alias", "params": ["share"]}]], "groupBy": [], "tags": [{"key": "region", "operator": "=", "value": "$region"}]}),
    ("Nameless", f'SELECT mean("usage_user") / 100 + 1, "x" + 1 FROM "cpu" {WHERE}'),
    ("Unknown variable", 'SELECT mean("usage_user") FROM "cpu" WHERE $timeFilter AND "rack" =~ /^$unheard$/'),
    ("Show", 'SHOW TAG VALUES WITH KEY = "hostname"'),
]  # fmt: skip
PROMQL: Panels = [
    *((f"{how} by host", f'{how}(cpu_usage_user{{hostname=~"$host"}}) by (hostname)') for how in ("avg", "max", "min", "sum")),
    *((f"{how} over time", f'{how}_over_time(mem_used_percent{{hostname="$host"}}[$__interval])') for how in ("avg", "max", "min", "last", "count")),
    ("Increase", 'sum(increase(net_bytes_sent[$__range])) by (region)'),
    ("Rate", 'avg(rate(net_bytes_recv{region="$region"}[$__rate_interval]))'),
    ("Top", 'topk(3, avg_over_time(cpu_usage_user[5m]))'),
    ("Ratio", 'avg(cpu_usage_user) / avg(cpu_usage_idle)'),
    ("Region", 'max by (region) (cpu_usage_system)'),
    ("Quantile", 'quantile(0.9, cpu_usage_user{region=~"^$region$"})'),
    ("Braces", 'avg(cpu_usage_nice{hostname=~"${host:regex}"})'),
    ("Limit", 'count(cpu_usage_user > $limit)'),
    ("Other metric", 'sum(rate(http_requests_total[5m]))'),
    ("Unknown variable", 'avg(cpu_usage_user{job="$job"})'),
    ("Node", 'node_load1'),
]  # fmt: skip
RANGE = 'from(bucket: v.defaultBucket) |> range(start: v.timeRangeStart, stop: v.timeRangeStop) |> filter(fn: (r) => r._measurement == "cpu" and r._field == "usage_user"'
FLUX: Panels = [
    ("Mean", f'{RANGE} and r.hostname == "${{host}}") |> aggregateWindow(every: v.windowPeriod, fn: mean, createEmpty: false)'),
    ("Last", f'{RANGE}) |> last()'),
    ("Odd", f'{RANGE}) |> sample(n: v.points)'),
]  # fmt: skip
VARIABLES: list[dict[str, Any]] = [
    {"name": "host", "type": "query", "query": 'SHOW TAG VALUES WITH KEY = "hostname"', "multi": True, "current": {"value": ["a", "b"]}},
    {"name": "region", "type": "query", "query": {"query": "label_values(region)", "refId": "x"}},
    {"name": "limit", "type": "custom", "query": "50,90", "current": {"text": "90", "value": "90"}},
    {"name": "unheard", "type": "query", "query": "SELECT x FROM y"},
]  # fmt: skip


def targets(panels: Panels, key: str) -> list[dict[str, Any]]:
    return [{"refId": "A", **(of if isinstance(of, dict) else {key: of})} for _, of in panels]


def current(panels: Panels, key: str, source: str) -> dict[str, Any]:
    """A dashboard as Grafana 11 exports it: the last third of the panels in a collapsed row."""
    made = [
        {"id": i, "title": title, "type": "timeseries", "datasource": {"type": source, "uid": "x"}, "targets": [target]}
        for i, ((title, _), target) in enumerate(zip(panels, targets(panels, key), strict=True))
    ]
    cut = len(made) * 2 // 3
    row = {"type": "row", "collapsed": True, "title": "more", "panels": made[cut:]}
    empty = {"id": 99, "type": "text", "title": "a text", "options": {"content": "hello"}}
    time = {"from": "now-30m", "to": "now"}
    return {
        "title": "Hosts",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": time,
        "templating": {"list": VARIABLES},
        "panels": [*made[:cut], row, empty],
    }


def older(panels: Panels, key: str) -> dict[str, Any]:
    """A dashboard as Grafana 4 exported it: panels in rows, sources by name; wrapped as by its API."""
    made = [
        {"id": i, "title": title, "type": "graph", "datasource": "$source", "targets": [target], "timeFrom": "15m"}
        for i, ((title, _), target) in enumerate(zip(panels, targets(panels, key), strict=True))
    ]
    rows = [{"title": "row", "panels": made[:8]}, {"title": "row", "panels": made[8:]}]
    return {
        "dashboard": {
            "title": "Hosts",
            "schemaVersion": 14,
            "time": {"from": "now-6h/h", "to": "now"},
            "templating": {"list": VARIABLES},
            "rows": rows,
        }
    }


def resource(panels: Panels, key: str, source: str) -> dict[str, Any]:
    """A dashboard as Grafana 13 exports it: a resource of version 2."""
    elements = {}
    for i, ((title, _), target) in enumerate(zip(panels, targets(panels, key), strict=True)):
        query = {"kind": "DataQuery", "group": source, "version": "v0", "datasource": {"name": "x"}, "spec": target}
        asked = {"kind": "PanelQuery", "spec": {"refId": "A", "hidden": False, "query": query}}
        group = {
            "kind": "QueryGroup",
            "spec": {"queries": [asked], "transformations": [], "queryOptions": {"maxDataPoints": 100}},
        }
        elements[f"panel-{i}"] = {"kind": "Panel", "spec": {"id": i, "title": title, "data": group, "vizConfig": {}}}
    variables = [
        {"kind": f"{one['type'].title()}Variable", "spec": {**one, "query": one["query"]}} for one in VARIABLES
    ]
    time = {"from": "now-1h", "to": "now", "autoRefresh": "5s"}
    spec = {
        "title": "Hosts",
        "elements": elements,
        "layout": {"kind": "GridLayout"},
        "timeSettings": time,
        "variables": variables,
    }
    return {"apiVersion": "dashboard.grafana.app/v2", "kind": "Dashboard", "metadata": {"name": "x"}, "spec": spec}


DASHBOARDS = {
    "postgres": (current(POSTGRES, "rawSql", "grafana-postgresql-datasource"), POSTGRES, {"Other table": "orders", "Delete": "it begins with DELETE", "Ever": "it has no condition on the time"}),
    "mysql": (older(MYSQL, "rawSql"), MYSQL, {"Other table": "orders", "Delete": "it begins with DELETE", "Ever": "it has no condition on the time"}),
    "influxql": (older(INFLUXQL, "query"), INFLUXQL, {"Nameless": "has no name", "Unknown variable": "$unheard was not understood", "Show": "it is no SELECT"}),
    "promql": (resource(PROMQL, "expr", "prometheus"), PROMQL, {"Other metric": "no metric of the use case", "Unknown variable": "$job was not understood", "Node": "no metric of the use case"}),
    "flux": ({"kind": "Dashboard", "spec": current(FLUX, "query", "influxdb")}, FLUX, {"Odd": "v.points was not understood"}),
}  # fmt: skip


def learned(place: Path, name: str, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the scenario of a dashboard, and the lines about what is not asked."""
    (place / "dashboard.json").write_text(json.dumps(DASHBOARDS[name][0]))
    words = ["learn", "--dashboard", str(place / "dashboard.json"), "--use-case", "devops", "--window", "20m"]
    assert main([*words, "--out", str(place / "s.toml"), "--force"]) == 0
    told = capsys.readouterr().err.splitlines()
    return tomllib.loads((place / "s.toml").read_text()), told


@pytest.mark.parametrize("name", DASHBOARDS)
def test_queries_of_a_dashboard_are_asked_or_named_with_what_was_not_understood(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, panels, odd = DASHBOARDS[name]
    scenario, (counts, *left_out) = learned(tmp_path, name, capsys)
    assert counts == f"{len(panels) - len(odd)} of {len(panels)} queries are asked", left_out
    for line, (title, why) in zip(left_out, odd.items(), strict=True):
        says(line, f"not asked: {title}: ", why)
    assert [query["about"] for query in scenario["query"]] == [title for title, _ in panels if title not in odd]
    assert not any("$" in text for query in scenario["query"] for text in query["text"].values())
    for query in scenario["query"]:
        (text,) = query["text"].values()
        drawn = {"hostname": query.get("series", 0), **query.get("draw", {})}
        assert {tag for tag, count in drawn.items() if count} == {
            tag for tag in ("hostname", "region") if f":{tag}" in text
        }
    if name in {"postgres", "mysql"}:
        (busiest,) = (query for query in scenario["query"] if query["name"] == "busiest")
        assert (busiest["order"], busiest["limit"]) == ("max_usage_user desc", 5)
        assert "LIMIT" not in busiest["gold"]
    assert main(["run", str(tmp_path / "s.toml"), "--dry-run"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("postgres", ["sqlite", "duckdb"]),
        pytest.param("mysql", ["mariadb", "postgres"], marks=[pytest.mark.mariadb, pytest.mark.postgres, pytest.mark.nightly]),
        pytest.param("influxql", ["influxdb1"], marks=[getattr(pytest.mark, "influxdb-1.8"), pytest.mark.nightly]),
        pytest.param("flux", ["influxdb2"], marks=[getattr(pytest.mark, "influxdb-2"), pytest.mark.nightly]),
        pytest.param("promql", ["victoriametrics"], marks=[pytest.mark.victoria, pytest.mark.nightly]),
    ],
)  # fmt: skip
def test_a_dashboards_queries_are_answered(
    name: str, targets: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, _ = learned(tmp_path, name, capsys)
    keys = [
        f"matrix.target.name={json.dumps(targets)}",
        "drive.duration=4s",
        "drive.rate=20",
        "check.answers=100",
        "world.scale=10",
    ]
    words = [word for key in keys for word in ("--set", key)]
    code = main(["run", str(tmp_path / "s.toml"), *words, "--out", str(tmp_path / "results"), "--no-report"])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    (path,) = (tmp_path / "results").glob("*/summary.json")
    of_set = json.loads(path.read_text())
    for cell in of_set["cells"]:
        answers = cell["answers"]
        assert (answers["wrong"], answers["unsupported"]) == (0, {})
        kept = (path.parent / cell["cell"] / "unproven.jsonl").read_text().splitlines()
        without_gold = {json.loads(line)["op"] for line in kept}
        assert {*answers["by_kind"], *without_gold} >= {query["name"] for query in scenario["query"]}
        failed = cell["failures"]
        assert not failed, failed


@pytest.mark.parametrize(
    ("content", "words", "why"),
    [
        ("{", (), "cannot be read as JSON"),
        ("[]", (), "is no dashboard of Grafana"),
        ('{"panels": [{"title": "x"}]}', (), "is no dashboard of Grafana: it has no panels with queries"),
        (
            json.dumps(DASHBOARDS["flux"][0]),
            ("--use-case", "stocks"),
            "none of the dashboard's queries can be asked of stocks; first Mean: ",
        ),
        (json.dumps(DASHBOARDS["flux"][0]), ("--use-case", "devopss"), "did you mean 'devops'"),
        (json.dumps(DASHBOARDS["flux"][0]), ("--window", "x"), "--window x"),
    ],
)
def test_what_is_no_dashboard_is_one_line(
    content: str, words: Sequence[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.json").write_text(content)
    of_data = words if "--use-case" in words else ("--use-case", "devops", *words)
    assert main(["learn", "--dashboard", str(tmp_path / "d.json"), *of_data]) == 2
    says(complaint(capsys.readouterr().err), why)


def damaged(content: Any, draw: random.Random) -> Any:
    """Return a dashboard in which some values are of other types, or gone."""
    if draw.random() < 0.03:
        return draw.choice([None, 5, -1.5, "", "$x", "\0", [], {}, ["x"], {"value": {}}, True])
    if isinstance(content, dict):
        return {key: damaged(one, draw) for key, one in content.items() if draw.random() > 0.01}
    return [damaged(one, draw) for one in content] if isinstance(content, list) else content


def test_any_damaged_dashboard_is_asked_in_part_or_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw, codes = random.Random(5), []
    for number in range(30):
        content = damaged([*DASHBOARDS.values()][number % len(DASHBOARDS)][0], draw)
        (tmp_path / "d.json").write_text(json.dumps(content))
        codes.append(
            main(
                [
                    "learn",
                    "--dashboard",
                    str(tmp_path / "d.json"),
                    "--use-case",
                    "devops",
                    "--out",
                    str(tmp_path / "s.toml"),
                    "--force",
                ]
            )
        )
        said = capsys.readouterr().err
        assert "Traceback" not in said
        if codes[-1]:
            complaint(said)
        else:
            assert tomllib.loads((tmp_path / "s.toml").read_text())["query"]
    assert {*codes} == {0, 2}


def test_a_dashboard_needs_the_data_that_it_is_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.json").write_text(json.dumps(DASHBOARDS["flux"][0]))
    assert main(["learn", "--dashboard", str(tmp_path / "d.json")]) == 2
    says(complaint(capsys.readouterr().err), "--dashboard needs --use-case")
    assert main(["learn", "--use-case", "devops"]) == 2
    says(complaint(capsys.readouterr().err), "give a FILE of recorded data, or --dashboard and --use-case")
