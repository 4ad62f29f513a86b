"""Files that sadf 12.6.1 printed of one recording: 6 s from 2026-11-20 11:29:14 UTC, the first 3 of them writing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tsbench.collect import sysstat
from tsbench.errors import UserMistake
from tsbench.results.rundir import SAR_COLUMNS

DATA = Path(__file__).parent / "data"
FIRST_S = 1_795_174_154.0
HOUR = 3_600


def test_rows_of_json_are_in_utc_and_in_bytes() -> None:
    rows = sysstat.read(DATA / "recorded.json")
    assert [row["second"] for row in rows] == [FIRST_S + n for n in range(len(rows))]
    assert all(set(row) == set(SAR_COLUMNS) for row in rows)
    raw = json.loads((DATA / "recorded.json").read_text())["sysstat"]["hosts"][0]["statistics"][1]
    row = rows[1]
    assert (row["host"], row["interval_s"], row["cpu_iowait_percent"]) == ("vm", 1.0, 29.84)
    assert row["disk_write_bytes_per_s"] == raw["io"]["io-writes"]["bwrtn"] * 512
    assert row["memory_used_bytes"] == raw["memory"]["memused"] * 1024
    states = ("user", "nice", "system", "iowait", "steal", "idle")
    assert sum(float(row[f"cpu_{state}_percent"]) for state in states) == pytest.approx(100, abs=0.1)


def test_semicolons_say_the_same_as_json() -> None:
    semicolons, whole = sysstat.read(DATA / "recorded.csv"), sysstat.read(DATA / "recorded.json")
    assert semicolons == whole


@pytest.mark.parametrize("name", ["tokyo.json", "tokyo.csv"])
def test_local_times_are_refused_unless_somebody_says_of_where(name: str) -> None:
    with pytest.raises(UserMistake, match=r"times are local \(2026-11-20 20:29:15\).*--sar-ahead"):
        sysstat.read(DATA / name)
    assert sysstat.read(DATA / name, ahead_s=9 * HOUR) == sysstat.read(DATA / "recorded.json")


def test_times_that_say_utc_are_not_moved() -> None:
    assert sysstat.read(DATA / "recorded.csv", ahead_s=9 * HOUR) == sysstat.read(DATA / "recorded.csv")


def test_the_published_studys_files_can_be_read(tmp_path: Path) -> None:
    # Its columns, of sysstat of 2016, at 5 s: one file with UTC, three with local times (peers-facts, 6.2).
    cpu, io = tmp_path / "cpu.csv", tmp_path / "io.csv"
    cpu.write_text(
        "# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle\n"
        "aird64;5;2016-03-08 16:32:05 UTC;-1;7.60;0.00;1.10;0.22;0.00;91.08\n"
        "aird64;5;2016-03-08 16:32:05 UTC;0;9.60;0.00;1.10;0.22;0.00;89.08\n"
        "aird64;-1;2016-03-08 16:32:07 UTC;LINUX-RESTART\n"
    )
    io.write_text(
        "# hostname;interval;timestamp;tps;rtps;wtps;bread/s;bwrtn/s\n"
        "aird64;5;2016-03-08 18:32:05;21.70;0.00;21.70;0.00;268.00\n"
    )
    (row,) = sysstat.read(cpu)
    (other,) = sysstat.read(io, ahead_s=2 * HOUR)
    assert row["second"] == other["second"] == 1_457_454_720.0
    assert (row["interval_s"], row["cpu_user_percent"], other["disk_write_bytes_per_s"]) == (5.0, 7.6, 268 * 512)
    assert math.isnan(float(row["disk_ops_per_s"]))


def test_interfaces_that_repeat_others_are_left_out(tmp_path: Path) -> None:
    head = "# hostname;interval;timestamp;IFACE;rxpck/s;txpck/s;rxkB/s;txkB/s\n"
    lines = [
        f"h;1;1457454720;{name};1;1;{size};{size}\n"
        for name, size in (("lo", 5), ("eth0", 2), ("eth1", 1), ("veth1", 9))
    ]
    (tmp_path / "net.csv").write_text(head + "".join(lines))
    (row,) = sysstat.read(tmp_path / "net.csv")
    assert (row["network_in_bytes_per_s"], row["loopback_bytes_per_s"]) == (3 * 1024, 5 * 1024)


@pytest.mark.parametrize("version", [{"utc": 1}, {"tz": "UTC"}])
def test_newer_versions_name_the_zone_otherwise(tmp_path: Path, version: dict[str, object]) -> None:
    document = json.loads((DATA / "recorded.json").read_text())
    for sample in document["sysstat"]["hosts"][0]["statistics"]:
        sample["timestamp"].pop("utc")
        sample["timestamp"] |= version
    (tmp_path / "new.json").write_text(json.dumps(document))
    assert sysstat.read(tmp_path / "new.json") == sysstat.read(DATA / "recorded.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hello\n", "holds no samples"),
        (b'{"x": 1}', "not sysstat's data"),
        (b"{", "not sysstat's data"),
        (b"a;b;c;d\n", "not sysstat's data"),
        (b"", "holds no samples"),
        (b"\x96\xd5 and then nothing", "sadf cannot"),
    ],
)
def test_another_file_is_answered_with_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserMistake, match=said) as mistake:
        sysstat.read(tmp_path / "x")
    assert "\n" not in str(mistake.value)
    assert str(tmp_path / "x") in str(mistake.value)


def test_a_missing_file_is_answered_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="No such file"):
        sysstat.read(tmp_path / "x")
