"""Which lines are line protocol: what our reader takes and refuses, beside what InfluxDB does with the same lines."""

from __future__ import annotations

import gzip
import json
import random
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tsbench.encode.file_columns import of_lines
from tsbench.encode.line_grammar import NotALine, kind_of, numbers_of, parse, parsed_head, why_no_line
from tsbench.encode.point_files import Lines, opened, read_lines
from tsbench.errors import Broken
from tsbench.model import Kind
from tsbench.run.file_tables import Refused, Tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tsbench.servers.base import Server

T = 1_609_459_200_000_000_000
TAKEN = (
    "m v=1 T", "m v=.5 T", "m v=5. T", "m v=1E+5 T", "m v=-3i T", "m v=01 T", "m v=00i T", "m  v=1   T ", "  m v=1 T",
    "m=x v=1 T", "m\\=x v=1 T", "m\\,n,a=b v=1 T", "m,a=b\\ c v=1 T", "m,a\\=b=c v=1 T", "m,a=b\\nc v=1 T",
    "m v\\ w=1 T", "m v\\,w=1 T", "m v\\=w=1 T", "m v=t T", "m v=TRUE T", "m v=False,w=2 T", 'm v="x\\"y" T',
    'm v="x\\\\" T', 'm v="a,b=1 c" T', 'm,a="b" v=1 T', "m v=1 -T", "m v=1 007", "é,è=☃ 😀=1 T", "m #v=1 T",
    "m v=1 9223372036854775806", 'm v"w=1 T', "m v=1 \tT",
)  # fmt: skip
REFUSED = (
    "m v=+1 T", "m v=1e T", "m v=1e5i T", "m v=+3i T", "m v=- T", "m v=1_000 T", "m v=1_000i T", "m v=0x10 T",
    "m v=nan T", "m v=inf T", "m v=1e400 T", "m v=9223372036854775808i T", "m v=1.0i T", "m,a= v=1 T", "m,=b v=1 T",
    "m,a=1,a=2 v=1 T", "m,a=b c=d v=1 T", "m,a=b=c v=1 T", "m,a=b\\ v=1 T", "m,a=b\\\\ v=1 T", "m v=w=1 T",
    "m v=1, T", "m v=1,,w=1 T", "m ,v=1 T", "m v= T", "m =1 T", "m, v=1 T", ",a=b v=1 T", "m v=tRUE T", 'm v="x T',
    "m v='x' T", "m v=1 +T", "m v=1 T.0", "m v=1 1_609", "m v=1 9223372036854775807", "m v=1 " + "9" * 5_000,
    "m,a=b,c v=1 T", "m,a v=1 T", "m", "m T", "m\tv=1 T", "m,a=b v=1 T # x", 'm,a="b c" v=1 T',
)  # fmt: skip
MEANT = {
    "m v=8u T": "an unsigned integer",  # which 2.7 takes
    "m v=1": "it has no time",  # the server would say when
    "m v=1,v=2 T": "it has the field 'v' twice",  # InfluxDB stores the last one
    'm v="x"y T': "something stands right behind",  # InfluxDB stores a text of two letters
    'm" v="x"T': "something stands right behind",  # InfluxDB stores it at the moment at which it comes
    "m \t=1 T": "its fields are not",  # InfluxDB stores a field without a name
    'm v="x y T': "a text goes on behind the end of its line",  # which InfluxDB may find in the next one
    'm v"w=1,x="y T': "a text goes on behind the end of its line",
}
"""Lines that InfluxDB takes and our reader refuses, each with a part of what it says."""


def of(text: str) -> bytes:
    return re.sub(r"\bT\b", str(T), text).encode()


def taken(line: bytes) -> dict[str, Any] | None:
    """Return what is in a line; None if it is refused."""
    try:
        parsed = parse(line)
    except NotALine:
        return None
    name, tags = parsed_head(parsed.head)
    fields: dict[str, Any] = {}
    for field, value in zip(parsed.names, parsed.values, strict=True):
        kind = kind_of(field, value)
        text = re.sub(rb"\\([\"\\])", rb"\1", value[1:-1]).decode() if kind is Kind.TEXT else None
        numbers = None if text is not None else numbers_of([value], kind)
        number = None if numbers is None else numbers[0].item()
        fields[field] = text if text is not None else bool(number) if kind is Kind.BOOL else number
    return {"name": name, "tags": tags, "fields": fields, "time": parsed.time_ns}


@pytest.mark.parametrize("text", [*TAKEN, *REFUSED])
def test_a_line_is_taken_or_refused_by_itself_and_among_others_of_any_form(text: str) -> None:
    line = of(text)
    assert (taken(line) is not None) == (text in TAKEN)
    plain, odd = b"n w=1 %d\n" % T, b"n,x=y\\ z w=1 %d\n" % T
    for others in (b"", plain, odd):
        lines = Lines(others + line + b"\n", 1 + bool(others), 1)
        assert is_read(lines) == (text in TAKEN), (text, others)


def is_read(lines: Lines) -> bool:
    """Return whether tables can be made of lines, by columns if they have a plain form."""
    try:
        return sum(map(len, Tables(frozenset({Kind.FLOAT})).batches(of_lines(lines) or lines))) == lines.count
    except Refused:
        return False


@pytest.mark.parametrize("text", MEANT)
def test_what_is_refused_on_purpose_says_why(text: str) -> None:
    with pytest.raises(NotALine, match=MEANT[text]):
        parse(of(text))


# --- beside InfluxDB --------------------------------------------------------------------------------------------------

_PIECES = (
    *("m", "cpu", "é", "v", "a", "b", "T", " ", " ", "  ", ",", ",", "=", "=", "\\", "\\ ", "\\,", "\\=", '"', '\\"'),
    *("1", "-1", "+1", "1.5", ".5", "5.", "1e3", "1i", "-3i", "007", "1_0", "t", "true", "F", "nan", "x", "#", "\t"),
)


def drawn(rng: random.Random, number: int) -> str:
    """Return a line, a good one with some parts changed, or parts in any order; it has a time of its own."""
    good = [
        *(rng.choice(["m", "cpu", "é"]), rng.choice(["", ",a=1", ",b=x\\ y,a=z", ',c="q"']), " "),
        *(rng.choice(["v", "w\\,x"]), "=", rng.choice(["1", "2.5", "3i", "t", '"a b"', "-1e3"]), " ", str(T + number)),
    ]
    for _ in range(rng.randrange(3)):
        place = rng.randrange(len(good) - 1)
        good[place] = rng.choice(["", good[place] + rng.choice(_PIECES), rng.choice(_PIECES), rng.choice(_PIECES)])
    if rng.random() < 0.1:
        good = [rng.choice(_PIECES) for _ in range(rng.randrange(3, 9))] + [" ", str(T + number)]
    return "".join(good).replace("T", str(T + number))


def answered(url: str, line: bytes, headers: dict[str, str]) -> str:
    """Return "" if a server took a line, else what it said."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, line, headers), timeout=30).close()
    except urllib.error.HTTPError as error:
        return str(json.loads(error.read()))
    return ""


def create(place: str, name: str) -> None:
    """Make a database of InfluxDB 1, which a busy server may put off."""
    for _ in range(10):
        with urllib.request.urlopen(urllib.request.Request(f"{place}/query?q=CREATE+DATABASE+{name}", b"")) as answer:
            if b"error" not in answer.read():
                return
    raise AssertionError(name)


def compare(url: str, count: int, headers: dict[str, str]) -> tuple[list[str], dict[int, dict[str, Any]]]:
    """Return lines that a server and our reader judge differently, and what both took, by time."""
    rng, different, both = random.Random(count), [], {}
    lines = [*map(of, (*TAKEN, *REFUSED[:-1]))] + [drawn(rng, number).encode() for number in range(1, count)]
    for line in lines:
        said, parsed = answered(url, line, headers), taken(line)
        if "conflict" in said or line.lstrip().startswith(b"#") or not line.strip() or b"time=" in line:
            continue
        is_meant = parsed is None and any(re.search(part, why_no_line(line)) for part in MEANT.values())
        if (said == "") != (parsed is not None) and not is_meant:
            different.append(f"{line!r}: {said or 'stored'}")
        elif parsed is not None and not said:
            both[parsed["time"]] = parsed
    return different, both


@pytest.mark.slow
@getattr(pytest.mark, "influxdb-1.8")
@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_influxdb_1_takes_what_our_reader_does(influxdb_server: Callable[[str], Server], count: int) -> None:
    place, name = influxdb_server("1.8").endpoint.rsplit("/", 1)[0], f"grammar_{count}"
    create(place, name)
    different, both = compare(f"{place}/write?db={name}", count, {})
    assert different == []
    assert len(both) > count / 5


@pytest.mark.slow
@getattr(pytest.mark, "influxdb-1.8")
def test_influxdb_1_stores_what_our_reader_reads(influxdb_server: Callable[[str], Server]) -> None:
    place = influxdb_server("1.8").endpoint.rsplit("/", 1)[0]
    for number, text in enumerate(TAKEN):
        name, parsed = f"grammar_of_{number}", taken(of(text))
        assert parsed is not None
        create(place, name)
        assert answered(f"{place}/write?db={name}", of(text), {}) == ""
        asked = f"{place}/query?db={name}&epoch=ns&q={quote('SELECT * FROM /.*/ GROUP BY *')}"
        with urllib.request.urlopen(urllib.request.Request(asked, method="POST")) as answer:
            (series,) = json.load(answer)["results"][0]["series"]
        ((time_ns, *values),) = series["values"]
        fields = dict(zip(series["columns"][1:], values, strict=True))
        assert {"name": series["name"], "tags": series.get("tags", {}), "fields": fields, "time": time_ns} == parsed


@pytest.mark.slow
@getattr(pytest.mark, "influxdb-2")
@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_influxdb_2_takes_what_our_reader_does(influxdb_server: Callable[[str], Server], count: int) -> None:
    url = urlsplit(influxdb_server("2").endpoint)
    options = {name: value for name, (value,) in parse_qs(url.query).items()}
    with open(options["token_file"], encoding="utf-8") as file:  # noqa: PTH123 - a path of the endpoint
        headers = {"Authorization": f"Token {file.read().strip()}", "Content-Type": "application/json"}
    api = f"{url.scheme}://{url.netloc}/api/v2"
    with urllib.request.urlopen(urllib.request.Request(f"{api}/orgs", headers=headers)) as answer:
        (org,) = [one["id"] for one in json.load(answer)["orgs"] if one["name"] == options["org"]]
    answered(f"{api}/buckets", json.dumps({"orgID": org, "name": f"grammar_{count}"}).encode(), headers)
    different, both = compare(f"{api}/write?org={options['org']}&bucket=grammar_{count}", count, headers)
    assert different == []
    assert len(both) > count / 5


# --- whole files ------------------------------------------------------------------------------------------------------


def read(path: Path, data: bytes) -> list[bytes]:
    path.write_bytes(data)
    with opened(str(path)) as blocks:
        return [line for lines in read_lines(blocks, 1_000) for line in lines.split()]


def test_lines_may_end_as_those_of_windows_and_the_last_one_without_a_line_feed(tmp_path: Path) -> None:
    line = b"m v=1 %d" % T
    for end in (b"\n", b"\r\n"):
        assert read(tmp_path / "x", end.join([line] * 3)) == [line] * 3
        with pytest.raises(Broken, match="line 3, the last one, has no line feed"):
            read(tmp_path / "x", end.join([line] * 3)[:-3])


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_compressed_file_is_read_to_its_end_in_bounded_blocks(tmp_path: Path, kind: str) -> None:
    zstandard = pytest.importorskip("zstandard")
    line = b"m v=1 %d\n" % T
    compress = gzip.compress if kind == "gz" else zstandard.ZstdCompressor().compress
    several = compress(line * 5_000) + compress(line * 7)
    if kind == "gz":
        several += bytes(900)  # padding
    else:
        several = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc" + several  # a frame to skip, as pzstd writes one
    assert len(read(tmp_path / "x", several)) == 5_007
    with pytest.raises(Broken, match="was cut: its compressed data has no end"):
        read(tmp_path / "x", compress(line * 5_000)[:-9])
    with pytest.raises(Broken, match="is damaged"):
        read(tmp_path / "x", compress(line * 5_000)[:20] + b"\xff" * 60 + compress(line))
    (tmp_path / "x").write_bytes(compress(bytes(300_000_000)))
    with opened(str(tmp_path / "x")) as blocks:
        assert max(map(len, blocks)) <= 10 << 20
    with pytest.raises(Broken, match="longer than 1,048,576 bytes"):
        read(tmp_path / "x", (tmp_path / "x").read_bytes())


def test_a_line_of_very_many_tags_is_read_in_time() -> None:
    tags = ",".join(f"t{i}=x" for i in range(90_000))
    lines = Lines(f"m,{tags} v=1 {T}\n".encode() * 2, 2, 1)
    assert sum(map(len, Tables(frozenset()).batches(of_lines(lines) or lines))) == 2


def test_comments_and_the_head_of_an_export_are_skipped_and_lines_are_counted_with_them() -> None:
    data = b"# DDL\nCREATE DATABASE x WITH NAME y\n# DML\n\nm v=1 %d\n#\nm v=oops %d\n" % (T, T)
    with pytest.raises(Refused) as caught:
        Tables(frozenset()).batches(Lines(data, 7, 1))
    assert (caught.value.index, caught.value.why) == (6, "v is oops, which is no number")
