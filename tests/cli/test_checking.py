"""`tsbench check`: what data are, what databases would make of them, and use cases proposed for recordings."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zstandard

from tests.cli.support import complaint, says
from tests.scenario.test_own_data import MAPPING, QUERIES, line, recording, rows, town
from tsbench.cli.main import main
from tsbench.scenario.use_case import read_use_case

STATES = Path(__file__).parent.parent / "scenario" / "data" / "states.toml"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSBENCH_CACHE", str(tmp_path / "cache"))


def test_points_are_described_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame, path = rows(), town(tmp_path)
    assert main(["check", str(path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    (data,) = made["data"]
    counts = frame.group_by("meter_id").len()["len"]
    assert (data["points"], data["series"]) == (len(frame), 12)
    assert (data["least_points"], data["median_points"], data["most_points"]) == (
        counts.min(), counts.median(), counts.max(),
    )  # fmt: skip
    times = frame["ts"].dt.epoch("ns")
    assert (data["first_ns"], data["last_ns"]) == (times.min(), times.max())
    gaps = frame.sort("meter_id", "ts").select(pl.col("ts").dt.epoch("s").diff().over("meter_id")).drop_nulls()["ts"]
    expected = np.percentile(gaps.to_numpy(), [5, 50, 95, 100]) * 1e9
    assert [data["gaps_ns"][name] for name in ("5 %", "median", "95 %", "most")] == pytest.approx(expected, rel=0.03)
    ends = frame.group_by("meter_id").agg(pl.col("ts").dt.epoch("ns").max())["ts"]
    span = times.max() - times.min()  # type: ignore[operator]
    assert data["end_before"] == pytest.approx((ends < times.min() + 0.9 * span).sum(), abs=1)  # type: ignore[operator]
    fields = {one["name"]: one for one in data["fields"]}
    assert fields["volts"]["missing"] == pytest.approx(frame["volts"].null_count() / len(frame))
    assert (fields["kwh"]["least"], fields["kwh"]["most"]) == (frame["energy"].min(), frame["energy"].max())
    assert (fields["mode"]["texts"], fields["ok"]["least"]) == (3, None)


def test_what_each_database_would_make_of_points_is_what_a_run_would_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = town(tmp_path)
    assert main(["check", str(path), "--json"]) == 0
    made = {one["target"]: one for one in json.loads(capsys.readouterr().out)["databases"]}
    assert {name for name, one in made.items() if not one["is_stored"]} == {"victoriametrics"}
    says(made["victoriametrics"]["why"], "holds numbers only")
    (tmp_path / "meters.csv").write_text("ts,v\n2026-01-01T00:00:00.000001Z,0.1234567890123\n2026-01-01T00:01:00Z,2\n")
    path.write_text(MAPPING[: MAPPING.index("tags =")] + '[recording.fields]\nv = "v"\n')
    assert main(["check", str(path), "--json"]) == 0
    made = {one["target"]: one for one in json.loads(capsys.readouterr().out)["databases"]}
    assert not made["influxdb1"]["why"]
    says(made["mongodb"]["why"], "it stores times to 1ms; cut them with round in recording.time")
    path.write_text(path.read_text().replace('"ts"', '{ column = "ts", round = "ms" }'))
    assert main(["check", str(path)]) == 0
    says(
        capsys.readouterr().out, "all times are whole seconds", "not stored: VictoriaMetrics cannot express 0.12345678"
    )


def test_a_simulated_use_case_is_described_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(STATES)]) == 0
    says(capsys.readouterr().out, "pump: ", "door: ", "numbers only", "as they are")


def test_a_use_case_is_proposed_that_has_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    town(tmp_path)
    own = tmp_path / "own.toml"
    assert main(["check", str(tmp_path / "meters.csv"), "--out", str(own)]) == 0
    says(capsys.readouterr().err, "then: tsbench check ")
    case = read_use_case(own)
    assert recording(own).rows == len(rows())
    assert [*case.recording[0].tags] == ["meter_id", "site"]
    assert {query.name for query in case.query} == {"rows-of-one", "newest-of-all", "by-site"}
    assert main(["check", str(own)]) == 0
    assert main(["check", str(tmp_path / "meters.csv"), "--out", str(own)]) == 2
    says(complaint(capsys.readouterr().err), "own.toml exists; give another name, or --force")


def test_proposals_have_odd_names_zones_gaps_and_keys_of_two_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = rows(4, 200).with_columns(
        pl.col("ts").dt.replace_time_zone(None),
        pl.when(pl.int_range(pl.len()) % 7 == 0).then(None).otherwise(pl.col("mode")).alias('the "mode"'),
        (pl.col("meter_id").str.slice(3).cast(pl.Int64) % 2).cast(pl.String).alias("line"),
        (pl.col("meter_id").str.slice(3).cast(pl.Int64) // 2).cast(pl.String).alias("Gerät Nr."),
    )
    frame = frame.drop("meter_id", "mode", "site")
    frame.write_csv(tmp_path / "a b.csv")
    own = tmp_path / "own.toml"
    assert main(["check", str(tmp_path / "a b.csv"), "--out", str(own), "--zone", "Asia/Tokyo", "--key", "line"]) == 0
    says(own.read_text(), 'zone = "Asia/Tokyo"', '"the \\"mode\\""')
    assert "default" not in own.read_text()
    own.write_text(own.read_text().replace('line = "line"', 'line = ["line", "Gerät Nr."]'))
    text = own.read_text()
    own.write_text(text[: text.index("[[query]]")].replace('Gerat_Nr = "Gerät Nr."\n', ""))
    made = recording(own)
    assert (made.series, made.rows) == (4, len(frame))
    assert made.tags["line"].values[0].count("/") == 1
    capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["town.toml", "--key", "x"], "says itself what its columns are"),
        (["absent.csv"], "there is no such file"),
        (["absent.toml"], "no such use case"),
        (["meters.csv", "--out", "x.csv"], "a use case is a .toml file"),
        (["meters.csv", "--time", "when"], "--time: there is no column 'when'"),
        (["meters.xlsx"], "there is no such file"),
    ],
)
def test_mistakes_are_one_line(
    options: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    town(tmp_path, MAPPING + QUERIES)
    monkeypatch.chdir(tmp_path)
    assert main(["check", *options]) == 2
    says(complaint(capsys.readouterr().err), why)


@pytest.mark.parametrize("command", ["check", "learn"])
@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("x.lp", None, "x.lp: there is no such file"),
        ("x.lp", b"", "x.lp: has no rows"),
        ("x.lp", b"# DDL\n\n", "x.lp: has no rows"),
        ("x.lp", b"a,h=x v=1 1\nnonsense\n", "x.lp: line 2: it is not `measurement,tags fields time`"),
        ("x.lp", b"\xff\x00\n", "x.lp: line 1: "),
        ("x.lp.gz", b"\x1f\x8b nothing", "x.lp.gz: is damaged"),
        ("x.lp.zst", zstandard.compress(bytes(200_000_000)), "x.lp.zst: line 1 is longer than"),
    ],
)
def test_line_protocol_that_is_none_is_one_line(
    command: str, name: str, content: bytes | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert main([command, str(tmp_path / name)]) == 2
    says(complaint(capsys.readouterr().err), why)


def test_of_measurements_without_tags_the_first_is_proposed_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.lp").write_text("".join(f"a v={i} {i}000000000\nb v=2 {i}000000000\n" for i in range(40)))
    assert main(["check", str(tmp_path / "x.lp"), "--out", str(tmp_path / "own.toml")]) == 0
    says(capsys.readouterr().err, "left out, without tags, which name series: b")
    assert {one.name: one.rows for one in recording(tmp_path / "own.toml").measurements} == {"a": 40}


def test_a_use_case_is_proposed_for_line_protocol_by_its_tags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.lp").write_text("".join(map(line, rows(4, 80).to_dicts())))
    assert main(["check", str(tmp_path / "x.lp"), "--out", str(tmp_path / "own.toml")]) == 0
    says(
        (tmp_path / "own.toml").read_text(), 'measurement = "meter"', 'tags = { meter_id = "meter_id", site = "site" }'
    )
    made = recording(tmp_path / "own.toml")
    assert {one.name: one.rows for one in made.measurements} == dict.fromkeys(["meter", "other"], len(rows(4, 80)))
    assert {query.measurements for query in read_use_case(tmp_path / "own.toml").query} == {("meter",), ("other",)}
    capsys.readouterr()
    assert main(["check", str(tmp_path / "own.toml")]) == 0
    says(capsys.readouterr().out, "meter: ", "other: ")
    capsys.readouterr()


def test_times_are_known_by_what_they_are_and_a_key_that_is_not_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "werte.csv").write_text(
        "Anlage;Zeit;Druck\n" + "".join(f"A{n % 3};01.05.2026 00:{n:02}:00;{n},5\n" for n in range(60))
    )
    assert main(["check", str(tmp_path / "werte.csv")]) == 0
    made = capsys.readouterr()
    says(made.out, 'time = "Zeit"', "tags = {}", 'name = "rows-of-one"', 'name = "by-time"')
    says(made.err, "all rows are taken for one series; if a column names it, say --key COLUMN, one of Anlage")
    assert main(["check", str(tmp_path / "werte.csv"), "--key", "Anlage"]) == 0
    made = capsys.readouterr()
    says(made.out, 'tags = { Anlage = "Anlage" }')
    assert "one series" not in made.err
    (tmp_path / "none.csv").write_text("a;b\nx1;y1\nx2;y2\n")
    assert main(["check", str(tmp_path / "none.csv")]) == 2
    says(complaint(capsys.readouterr().err), "no column looks like a time; say --time COLUMN")


def test_a_key_is_proposed_that_each_row_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "when,SensorID,flag,temp\n"
    text += "".join(f"2026-05-01T00:{n // 3:02}:00Z,{n % 3},{'' if n % 7 else 'Y'},{n}.5\n" for n in range(180))
    (tmp_path / "rows.csv").write_text(text)
    assert main(["check", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "own.toml")]) == 0
    says((tmp_path / "own.toml").read_text(), 'tags = { SensorID = "SensorID" }')
    assert main(["check", str(tmp_path / "own.toml")]) == 0
    says(capsys.readouterr().out, "rows: 180 points of 3 series")
    assert main(["check", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "devops.toml")]) == 2
    says(complaint(capsys.readouterr().err), "devops.toml: 'devops' is a built-in use case; give another name")
    (tmp_path / "rows.csv").write_bytes(text.replace("temp", "W\u00e4rme").encode("cp1252"))
    assert main(["check", str(tmp_path / "rows.csv")]) == 2
    says(complaint(capsys.readouterr().err), "rows.csv: line 1: is no UTF-8; convert the file, such as by iconv")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#group,false,false\n#datatype,string,long\n", "two.csv: is annotated CSV, .*export it with pivot"),
        ("# Station 5\nts,v\n2026-05-01T00:00:00Z,1\n", "two.csv: its first line has one name; put .* # Station 5$"),
        ("sep=;\nts;v;\n2026-05-01T00:00:00Z;1;\n2026-05-02T00:00:00Z;2;\n", ""),
        (",ts,v\n0,2026-05-01T00:00:00Z,1\n1,2026-05-02T00:00:00Z,2\n", ""),
    ],
)
def test_heads_of_exported_csv_are_read_or_named_with_a_cure(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.csv").write_text(text)
    own = tmp_path / "own.toml"
    assert main(["check", str(tmp_path / "two.csv"), "--out", str(own)]) == (2 if why else 0)
    if why:
        assert re.search(why, complaint(capsys.readouterr().err))
    else:
        assert main(["check", str(own)]) == 0
        says(capsys.readouterr().out, "two: 2 points of 1 series")
        says(own.read_text(), 'time = "ts"', 'v = "v"')


@pytest.mark.parametrize(
    ("head", "row", "time", "first"),
    [
        ("date,time", "2026-05-{0},00:{0}:00", 'time = { column = "date", clock = "time" }', "2026-05-10T00:10:00Z"),
        ("Date,Time", "{0}/05/2026,7:{0}:00", 'clock = "Time", format = "%d/%m/%Y %H:%M:%S"', "2026-05-10T07:10:00Z"),
        ("d,t", "05-{0}-2026,01:{0} PM", 'clock = "t", format = "%m-%d-%Y %I:%M %p"', "2026-05-10T13:10:00Z"),
        ("day,open", "05/{0}/2026,no", 'time = { column = "day", format = "%m/%d/%Y" }', "2026-05-10T00:00:00Z"),
        ("t,x", "{0}/05/2026 10:00:00.5,7", 'format = "%d/%m/%Y %H:%M:%S.%f" }', "2026-05-10T10:00:00.5Z"),
        ("t,x", "2026-05-{0} 10:00:00,07:00", 'time = "t"', "2026-05-10T10:00:00Z"),
    ],
)  # fmt: skip
def test_times_in_two_columns_and_days_of_one_meaning_are_proposed_as_they_are(
    head: str, row: str, time: str, first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("\n".join([f"{head},v", *(f"{row.format(n)},{n}" for n in range(10, 30))]))
    assert main(["check", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "own.toml")]) == 0
    says((tmp_path / "own.toml").read_text(), time)
    assert main(["check", str(tmp_path / "own.toml")]) == 0
    says(capsys.readouterr().out, "20 points", f"times: {first} to")


def test_words_among_numbers_and_rows_without_values_are_proposed_as_what_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("?", "?", "off"), (1.5, "n/a", 7), (2.5, "NA", 8), (3, 4, "on"), ("?", "", ""), *[(5, 6, 9)] * 5]
    text = "\n".join(["ts,a,b,state", *(f"2026-05-01T00:00:{n:02}Z,{a},{b},{c}" for n, (a, b, c) in enumerate(rows))])
    (tmp_path / "rows.csv").write_text(text)
    assert main(["check", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "own.toml")]) == 0
    says(capsys.readouterr().err, "1 of 10 rows lack a time, a key or every", "'?' among numbers is taken for none")
    made = (tmp_path / "own.toml").read_text()
    says(made, 'null = ["?", "n/a", "NA"', 'incomplete = "skip"', 'a = "a"', '{ column = "state", type = "text" }')
    assert main(["check", str(tmp_path / "own.toml")]) == 0
    says(capsys.readouterr().out, "rows: 9 points of 1 series", "1 without time, key or value")
    (tmp_path / "own.toml").write_text(made.replace('time = "ts"', 'time = { column = "ts", clock = "x" }'))
    assert main(["check", str(tmp_path / "own.toml")]) == 2
    says(complaint(capsys.readouterr().err), "recording.time.clock: there is no column 'x'")
    head = "ts,meter,v\n,,kWh\n"
    named = [f"2026-05-01T00:{n // 4:02}:00Z,{[1, 2, 3, 'main'][n % 4]},{n}" for n in range(40)]
    (tmp_path / "rows.csv").write_text(head + "\n".join(named))
    assert main(["check", str(tmp_path / "rows.csv"), "--force", "--out", str(tmp_path / "own.toml")]) == 0
    assert main(["check", str(tmp_path / "own.toml")]) == 0
    says(capsys.readouterr().out, "rows: 40 points of 4 series", "v      int")  # a unit is no value, a name no lack


def test_times_in_other_forms_are_read_as_they_are_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, form, when in (
        ("0{0}/05/2026 01:00:0{0} PM", "%d/%m/%Y %I:%M:%S %p", "2026-05-01T13:00:01Z to 2026-05-08T13:00:08Z"),
        ("0{0}/05/2026 01:00:0{0} PM", "%m/%d/%Y %I:%M:%S %p", "2026-01-05T13:00:01Z to 2026-08-05T13:00:08Z"),
        ("2026050{0}", "%Y%m%d", "2026-05-01T00:00:00Z to 2026-05-08T00:00:00Z"),
        ("2026-05-0{0} 10:00:00.5", "%Y-%m-%d %H:%M:%S.%f", "2026-05-01T10:00:00.5Z to"),
        ("2026-05-0{0} 10:00:00,250", "%Y-%m-%d %H:%M:%S,%3f", "2026-05-01T10:00:00.25Z to"),
    ):
        (tmp_path / "odd.csv").write_text("\n".join(["ts;v", *(f"{text.format(n)};{n}" for n in range(1, 9))]))
        if "/" in text:  # of which one is the month differs from country to country
            assert main(["check", str(tmp_path / "odd.csv")]) == 2
            says(complaint(capsys.readouterr().err), "'ts' has no times that are understood", "or say --time-format")
        own = ["--time-format", form, "--force", "--out", str(tmp_path / "odd.toml")]
        assert main(["check", str(tmp_path / "odd.csv"), *own]) == 0
        capsys.readouterr()
        assert main(["check", str(tmp_path / "odd.toml")]) == 0
        says(capsys.readouterr().out, f"times: {when}")
    assert main(["check", str(tmp_path / "odd.csv"), "--time-format", "%Y-%m-%d %H:%M:%S,%f"]) == 2
    says(complaint(capsys.readouterr().err), "'ts' has no times that are understood as '%Y-%m-%d %H:%M:%S,%f'")
    (tmp_path / "odd.csv").write_text("ts;v\n2026-05-01T00:00:00Z;1\n31/05/2026;2\n")
    (tmp_path / "odd.toml").write_text((tmp_path / "odd.toml").read_text().replace("%Y-%m-%d %H:%M:%S,%3f", "%d/%m/%Y"))
    assert main(["check", str(tmp_path / "odd.toml")]) == 2
    says(complaint(capsys.readouterr().err), "odd.csv: row 1: ts is '2026-05-01T00:00:00Z', which is no time")
    (tmp_path / "x.lp").write_text("m,h=1 v=1 1\nm,h=1 v=2 2\n")
    for command in ("check", "learn"):
        assert main([command, str(tmp_path / "x.lp"), "--time-format", "%Y"]) == 2
        says(complaint(capsys.readouterr().err), "--time-format %Y: the times in 'time' need none; leave it out")


def test_columns_that_are_no_fields_are_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"ts": range(8), "sensor": list("aabb") * 2, "ok": [None, True, False, False] * 2, "v": range(8)}
    of_kinds = {"none": [None] * 8, "list": [[1, 2]] * 8, "span": [timedelta(1)] * 8}
    pl.DataFrame(columns | of_kinds).write_parquet(tmp_path / "kinds.parquet")
    assert main(["check", str(tmp_path / "kinds.parquet"), "--time", "span"]) == 2
    says(complaint(capsys.readouterr().err), "'span' has no times that are understood")
    assert main(["check", str(tmp_path / "kinds.parquet")]) == 0
    made = capsys.readouterr()
    says(made.err, "left out, for lack of numbers, texts or booleans: none, list, span")
    says(made.out, 'tags = { sensor = "sensor" }', 'ok = "ok"')


def test_integers_are_shown_to_the_last_digit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"2026-01-01T00:00:0{i}Z,a,{2**60 + 33 + i}\n" for i in range(3))
    (tmp_path / "n.csv").write_text("ts,host,n\n" + rows)
    (tmp_path / "n.toml").write_text(
        'about = "n"\n[recording]\nfile = "n.csv"\nmeasurement = "n"\ntime = "ts"\ntags = { host = "host" }\n'
        '[recording.fields]\nn = "n"\n'
    )
    assert main(["check", str(tmp_path / "n.toml")]) == 0
    says(capsys.readouterr().out, f"{2**60 + 33}  {2**60 + 35}", "postgres        stored as they are")
