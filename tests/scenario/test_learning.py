"""Use cases learned from recordings: what is guessed, what fits, and files that are odd or damaged."""

from __future__ import annotations

import gzip
import json
import random
import tomllib
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from tests.cli.support import complaint, says
from tsbench.cli.main import main
from tsbench.errors import UserMistake
from tsbench.scenario.learning import Learned, learn
from tsbench.scenario.parts import WorldPart
from tsbench.scenario.recording import read, recording
from tsbench.scenario.use_case import UseCaseFile, read_use_case, resolved

if TYPE_CHECKING:
    from pathlib import Path

T = 600


def meters(series: int = 40) -> pl.DataFrame:
    """Readings of every quarter of an hour: noise with a day, a counter, a walk, a state, rare bursts, gaps, texts."""
    draw = np.random.default_rng(3)
    parts = []
    for i in range(series):
        load = 2 + 1.2 * np.sin(2 * np.pi * (np.arange(T) / 96)) + draw.normal(0, 0.4, T)
        parts.append(
            pl.DataFrame(
                {
                    "ts": np.datetime64("2026-03-20T00:00:00", "ms") + np.arange(T) * np.timedelta64(900_000, "ms"),
                    "meter_id": [f"M{i:05}"] * T,
                    "site": [f"site {i % 8}"] * T,
                    "region": [["north", "south"][i % 8 // 4]] * T,
                    "floor": [i % 3] * T,
                    "load kW": np.where(draw.random(T) < 0.05, np.nan, load.round(3)),
                    "energy": (np.cumsum(draw.uniform(0, 1, T)) + draw.uniform(0, 1e5)).round(3),
                    "temp": (40 + np.cumsum(draw.normal(0, 0.05, T))).round(2),
                    "volt": draw.normal(230, 2, T).round(1),
                    "rpm": draw.integers(1_000, 2_000, T),
                    "slow": ((draw.pareto(1.6, T) + 1) * 80).round(2),
                    "took": draw.lognormal(1, 0.8, T).round(3),
                    "mode": np.repeat(draw.integers(0, 4, T // 50), 50),
                    "status": np.where(draw.random(T) < 0.02, "ERR", "OK"),
                    "fixed": [7] * T,
                }
            ).with_columns(pl.col("load kW").fill_nan(None))
        )
    return pl.concat(parts).sort("ts", maintain_order=True)


@pytest.fixture(scope="module")
def learned() -> Learned:
    return learn("meters", recording(meters()))


def fields(of: Learned) -> dict[str, Any]:
    import tomllib

    document = tomllib.loads(of.text)
    UseCaseFile.model_validate(document, context="file")
    return {"tags": document["tags"], **document["measurement"][0]["fields"]}


def test_series_tags_and_processes_are_those_of_the_recording(learned: Learned) -> None:
    found = fields(learned)
    assert (learned.series, learned.interval_ns) == (40, 900 * 10**9)
    assert found["tags"] == {
        "meter_id": {"number": "M{:05}"},
        "site": {"of": [f"site {i}" for i in found_order(found, "site")]},
        "floor": {"of": found["tags"]["floor"]["of"], "weights": [14, 13, 13]},
        "region": {"of": found["tags"]["region"]["of"], "per": "site"},
    }
    assert found["load_kW"]["normal"] == pytest.approx([2.0, 0.4], abs=0.05)
    assert found["load_kW"]["daily"] == pytest.approx(1.2, abs=0.05)
    assert found["load_kW"]["null"] == pytest.approx(0.05, abs=0.01)
    assert found["energy"]["is"] == "energy_first + energy_rise"
    assert found["energy_rise"]["counter"] == pytest.approx(0.5, abs=0.02)
    assert found["temp"]["walk"] == pytest.approx(0.05, abs=0.005)
    assert found["volt"]["normal"] == pytest.approx([230, 2], abs=0.1)
    assert found["rpm"] == {"uniform": [1_000, 1_999], "type": "int"}
    assert found["slow"]["pareto"] == pytest.approx([1.6, 80], abs=0.1)
    assert found["took"]["is"] == "exp(took_log)"
    assert found["mode"]["of"] == [0, 1, 2, 3]
    assert 30_000 < int(found["mode"]["stays"].removesuffix("s")) < 70_000, "50 readings of 15 minutes"
    assert found["status"]["of"] == ["ERR", "OK"]
    assert found["fixed"] == {"constant": 7, "type": "int"}


def found_order(found: dict[str, Any], tag: str) -> list[int]:
    return [int(text.split()[1]) for text in found["tags"][tag]["of"]]


def test_what_is_simulated_is_near_to_what_was_recorded(learned: Learned) -> None:
    for name, (recorded, simulated) in learned.fields.items():
        spread = max(recorded.p95 - recorded.p5, 1e-9)
        if name != "temp":  # how far a walk gets is chance
            assert simulated.p50 == pytest.approx(recorded.p50, abs=0.15 * spread), name
            assert simulated.p95 - simulated.p5 == pytest.approx(spread, rel=0.2, abs=1e-6), name
        assert simulated.same == pytest.approx(recorded.same, abs=0.05), name
        assert simulated.missing == pytest.approx(recorded.missing, abs=0.02), name
        if name not in {"energy", "temp"}:
            assert simulated.nbytes == pytest.approx(recorded.nbytes, rel=0.25, abs=0.02), name


@pytest.mark.parametrize("name", ["m.csv", "m.csv.gz", "m.parquet", "m.tsv"])
@pytest.mark.slow
def test_a_file_is_learned_written_and_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame, path = meters(6), tmp_path / name
    if name.endswith(".parquet"):
        frame.write_parquet(path)
    else:
        text = frame.write_csv(separator="\t" if ".tsv" in name else ",").encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    own = tmp_path / "own.toml"
    assert main(["learn", str(path), "--out", str(own)]) == 0, capsys.readouterr().err
    says(capsys.readouterr().err, "gap, s", "recorded", "simulated", "own.toml, then: tsbench check ")
    assert read_use_case(own).world.items() >= {"scale": 6, "interval": "15m"}.items()
    assert main(["learn", str(path), "--out", str(own)]) == 2
    says(complaint(capsys.readouterr().err), "exists", "--force")
    if name != "m.csv":
        return
    (tmp_path / "s.toml").write_text(
        'question = "?"\nworld = { use_case = "own.toml" }\nload.window = "48h"\n'
        'drive = { users = 1, warmup = "0s", duration = "1s" }\ntarget.name = "sqlite"\ncheck.answers = 6\n'
        'op = [{ write = 20 }, { query = "rows-of-one" }, { query = "newest-of-all" }, { query = "by-site" }]\n'
    )
    main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "r")])
    (summary,) = (tmp_path / "r").glob("*/*/summary.json")
    answers = json.loads(summary.read_text())["validity"]["checks"]["answers"]
    assert (answers["state"], answers["counts"]["wrong"]) == ("valid", 0), capsys.readouterr()


def test_of_line_protocol_one_measurement_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{m},host=h{i % 3} v={i % 7} {i}000000000" for i in range(90) for m in ("cpu", "disk")]
    (tmp_path / "x.lp").write_text("\n".join(lines), encoding="utf-8")
    for options, name in (([], "cpu"), (["--measurement", "disk"], "disk")):
        assert main(["learn", str(tmp_path / "x.lp"), *options]) == 0
        shown = capsys.readouterr()
        assert UseCaseFile.model_validate(tomllib.loads(shown.out), context="file").measurement[0].name == name
        says(shown.err, f"only {name} is described, of cpu, disk; --measurement chooses another one")
    assert main(["learn", str(tmp_path / "x.lp"), "--measurement", "dsk"]) == 2
    says(complaint(capsys.readouterr().err), "has no 'dsk'; did you mean 'disk'?")


def test_texts_and_booleans_lack_as_often_as_they_did() -> None:
    draw = random.Random(1)
    rows = [
        {"ts": 1_767_225_600 + 10 * i, "dev": d, "v": draw.gauss(5, 1), "state": draw.choice(["run", "idle", None]),
         "on": draw.choice([True, False, None, None])}
        for i in range(2_000) for d in "abc"
    ]  # fmt: skip
    learned = learn("devices", recording(pl.DataFrame(rows)))
    fields = UseCaseFile.model_validate(tomllib.loads(learned.text), context="file").measurement[0].fields
    assert fields["state"].null == pytest.approx(1 / 3, abs=0.03)
    assert fields["on"].null == pytest.approx(0.5, abs=0.03)
    assert fields["v"].null is None
    for name in ("state", "on"):
        recorded, simulated = learned.fields[name]
        assert simulated.missing == pytest.approx(recorded.missing, abs=0.03)


def test_names_of_tags_can_be_left_out() -> None:
    text = learn("meters", recording(meters(6)), hashed=True).text
    assert not {"site 0", "north", "M0"} & {*text.replace('"', " ").split("  ")}
    assert 'region = { of = ["region-0", "region-1"]' in text


def csv(tmp_path: Path, text: str, name: str = "x.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def of_text(tmp_path: Path, text: str, **how: Any) -> Learned:
    return learn("x", recording(read(csv(tmp_path, text), 1_000), **how))


def rows(form: str, count: int = 40) -> str:
    return "".join(form.format(i=i, t=1_700_000_000 + 10 * i, d=i % 2, v=i * 7 % 13 / 4) + "\n" for i in range(count))


@pytest.mark.parametrize(
    ("head", "form", "series", "interval_s"),
    [
        ("time,device,v\n", "{t},d{d},{v}", 2, 20),
        ("time,device,v\n", "{t}000,d{d},{v}", 2, 20),
        ("time,device,v\n", "{t}000000,d{d},{v}", 2, 20),
        ("time,device,v\n", "{t}000000000,d{d},{v}", 2, 20),
        ("time,device,v\n", "{t}.5,d{d},{v}", 2, 20),
        ("\ufefftime,v\n", "{t},{v}", 1, 10),
        ("when;device;v\n", "2026-01-01 00:{i:02}:00;d{d};{v}", 2, 120),
        ('"time","device id","v"\n', '{t},"d, ""{d}""",{v}', 2, 20),
        ("time,device,v,w\n", "{t},d{d},{v},NA", 2, 20),
        ("time,device,v,time_2,tags,v.\n", "{t},d{d},{v},{i},{v},{v}", 2, 20),
        ("time,größe °C,v\n", "{t},{v},{i}", 1, 10),
        ("ts,a,b,v\n", "{t},x{d},y{d},{v}", 1, 10),
    ],
)
def test_forms_of_files_are_understood(head: str, form: str, series: int, interval_s: int, tmp_path: Path) -> None:
    learned = of_text(tmp_path, head + rows(form), key="device" if ",device," in head else None)
    fields(learned)
    assert (learned.series, learned.interval_ns / 10**9) == (series, interval_s)


@pytest.mark.parametrize(
    ("gaps_s", "world", "jitter_s"),
    [
        (lambda draw: np.full(1_000, 10.0), 'interval = "10s"', None),
        (lambda draw: np.where(draw.random(1_000) < 0.2, 20.0, 10.0), 'interval = "10s", missing = 0.1', None),
        (lambda draw: 10 + np.diff(draw.uniform(0, 3, 1_001)), 'interval = "10s"', 3.0),
        (lambda draw: draw.exponential(10, 1_000), 'interval = "', 10.0),
    ],
    ids=["a clock", "with gaps", "late by up to 3 s", "at random"],
)
def test_when_points_come_is_simulated(
    gaps_s: Any, world: str, jitter_s: float | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(1)
    times = [
        np.datetime64("2026-01-01", "ms") + (gaps_s(draw).cumsum() * 1e3).astype("timedelta64[ms]") for _ in "abcd"
    ]
    frame = pl.DataFrame(
        {"ts": np.concatenate(times), "key": np.repeat([*"abcd"], 1_000), "v": draw.normal(5, 1, 4_000).round(2)}
    )
    learned = learn("x", recording(frame, key="key"))
    recorded, simulated = learned.gaps
    assert world in learned.world
    (tmp_path / "own.toml").write_text(learned.text)
    asked = WorldPart.model_validate(resolved({"use_case": "own.toml", "scale": 7}, tmp_path))
    assert (asked.scale, asked.interval) == (7, learned.interval_ns), "a scenario says the rest"
    (tmp_path / "own.toml").write_text(learned.text.replace("scale =", "scal ="))
    own = str(tmp_path / "own.toml")
    for command in (
        ["check", own],
        ["list", "use-cases", "--show", own],
        ["init", "sqlite", "--use-case", own],
        ["generate", "--use-case", own, "--out", str(tmp_path / "x.lp")],
        ["queries", "--use-case", own, "--type", "newest-of-all"],
    ):
        assert main(command) == 2
        says(complaint(capsys.readouterr().err), "own", ": world.scal: unknown key; did you mean 'scale'?")
    assert ("missing" in world) == ("missing" in learned.world)
    part = UseCaseFile.model_validate(tomllib.loads(learned.text), context="file").measurement[0]
    assert part.jitter / 1e9 == pytest.approx(jitter_s or 0, rel=0.1)
    if jitter_s is not None:
        assert simulated.mean == pytest.approx(recorded.mean, rel=0.05)
        assert 0.4 < simulated.sd / recorded.sd < 1.2
        assert simulated.nbytes == pytest.approx(recorded.nbytes, rel=0.5)


def test_decimal_commas_zones_and_doubled_hours(tmp_path: Path) -> None:
    text = "zeit;geraet;wert\n" + "".join(
        f"2026-10-25 {hour:02}:{minute:02}:00;g1;{hour},{minute}\n" for hour in range(5) for minute in range(0, 60, 5)
    )
    of = recording(read(csv(tmp_path, text), 1_000), time="zeit", zone="Europe/Berlin")
    assert of.frame["wert"].dtype == pl.Float64
    assert of.frame["time of tsbench"][0] == 1_792_879_200 * 10**9, "midnight in Berlin is 22 h UTC"
    with pytest.raises(UserMistake, match="--zone"):
        recording(read(csv(tmp_path, text), 1_000), time="zeit", zone="Mars/Crater")


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("", [], "x.csv: "),
        ("1700000000,5,3\n1700000010,6,3\n", [], "its first line has no names of columns"),
        ("a,b\n1,2\n3,4\n", [], "no column looks like a time; say --time COLUMN, one of a, b"),
        ("time,v\nyesterday,2\nlater,4\n", [], "'time' has no times that are understood"),
        ("time,v\n1700000000,2\n", ["--key", "w"], "--key: there is no column 'w'; there are time, v"),
        ("time,v\n1700000000,2\n", ["--time", "w"], "--time: there is no column 'w'"),
        ("time,v\n1700000000,2\n", ["--tag", "w"], "--tag: there is no column 'w'"),
        ("time\n1700000000\n", [], "its first line has one name"),
        ("time,v\n", [], "has no rows"),
        ("time,v\n1700000000,2\n", ["--zone", "Asia/Tokyo"], "the times in 'time' need none; leave it out"),
        ("time,v\n1700000000,2\n", ["--out", "y.txt"], "a use case is a .toml file"),
    ],
)
def test_a_file_that_is_no_recording_is_one_line(
    text: str, options: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", str(csv(tmp_path, text)), *options]) == 2
    says(complaint(capsys.readouterr().err), why)


def test_line_protocol_has_no_zone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.lp").write_text("m,host=a v=1 1451606400000000000\n")
    for command in ("check", "learn"):
        assert main([command, str(tmp_path / "x.lp"), "--zone", "Asia/Tokyo"]) == 2
        says(complaint(capsys.readouterr().err), "--zone Asia/Tokyo: the times in 'time' need none; leave it out")


def test_other_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content, why in (
        ("absent.csv", None, "there is no such file"),
        ("x.xlsx", b"PK", "it is '.xlsx'"),
        ("x.parquet", b"PAR1 nothing", "x.parquet: "),
        ("x.csv.gz", b"\x1f\x8b nothing", "x.csv.gz: "),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        assert main(["learn", str(tmp_path / name)]) == 2, name
        says(complaint(capsys.readouterr().err), name, why)


@pytest.mark.slow
def test_damaged_files_are_learned_or_named_and_never_more(tmp_path: Path) -> None:
    whole = meters(3).write_csv().encode()[:6_000].rpartition(b"\n")[0]
    draw, lines = random.Random(5), []
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(damaged))
            damaged[at : at + draw.randint(0, 3)] = bytes(
                draw.choices(b',;"\n\r\t 0123abz-.\xff\x00', k=draw.randint(0, 3))
            )
        (tmp_path / "x.csv").write_bytes(damaged)
        try:
            fields(learn("x", recording(read(tmp_path / "x.csv", 10_000))))
        except UserMistake as error:
            lines.append(str(error))
    assert not any("\n" in line for line in lines)
    refused = len(lines)
    assert 0 < refused < 300
