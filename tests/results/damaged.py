"""Damaged and hostile result sets: each is read by all readers, in a process whose time and memory are measured.

    python -m tests.results.damaged [COUNT] [SEED]

Damages a set that a real run has made COUNT times (600), and prints what came of it: nothing but figures or one line
may come, within 5 s of CPU and 300 MB. With a number of a damage as a third argument, only that one is made.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tests.cli.support import TINY
from tsbench.measure.hist import _COOKIE, _FRAME, _FRAME_COOKIE, _HEAD, DIGITS, HIGHEST_NS

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_S, MOST_MB = 5.0, 300.0
GIVE_UP_S = 60
EXTREME: list[Any] = [
    *(float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 1e-320, 10**24, -(10**24), 2**63, 2**53, 10**18, -1),
    *(None, True, "", "x", "\x1b[31m", [], [[]], {}, {"a": {}}, "9" * 10_000, [None] * 2_000, {"": None}),
    *({str(n): n for n in range(5_000)}, [{"state": 5}], {"*": {"kind": "write"}}, 1795389593 * 10**9, 0, 0.5),
]
TABLES = {"ops": {"op"}, "host": set(), "server": set(), "counters": {"name"}, "sar": {"host"}}


# --- the set ----------------------------------------------------------------------------------------------------------


def real_set(place: Path) -> Path:
    """Return the result set of a run of two seconds, with all kinds of tables."""
    (place / "tiny.toml").write_text(TINY.replace('"1s"', '"2s"'))
    words = [str(Path(sys.executable).parent / "tsbench"), "run", "tiny.toml", "--no-report"]
    subprocess.run(words, cwd=place, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (made,) = place.glob("results/*")
    run = next(path.parent for path in made.glob("*/spec.json"))
    seconds = np.arange(0.0, 3.0)
    for table, names in (("counters", "name"), ("sar", "host")):
        if not (run / f"{table}.parquet").exists():
            columns = {"second": seconds, names: ["a"] * 3, "value": seconds, "interval_s": seconds + 1}
            parquet.write_table(pa.table(columns), run / f"{table}.parquet")
    return made


# --- damages ----------------------------------------------------------------------------------------------------------


def files_in(made: Path) -> list[Path]:
    return sorted(path for path in made.rglob("*") if path.is_file() and not path.name.endswith((".log", ".data")))


def one_of(made: Path, draw: random.Random, *patterns: str) -> Path:
    found = sorted(path for pattern in patterns for path in made.glob(pattern) if path.is_file())
    return draw.choice(found or files_in(made))


def flipped(made: Path, draw: random.Random) -> str:
    path = draw.choice([path for path in files_in(made) if path.stat().st_size])
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 3, 30])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return path.name


def cut(made: Path, draw: random.Random) -> str:
    path = draw.choice(files_in(made))
    data = path.read_bytes()
    start, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    path.write_bytes(draw.choice([data[:start], data[start:], data[:start] + data[end:], data[:start] + data, b""]))
    return path.name


def replaced(made: Path, draw: random.Random) -> str:
    path = draw.choice([*files_in(made), *(p for p in made.rglob("*") if p.is_dir())])
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    kind = draw.choice(["fifo", "dir", "socket", "gone", "/dev/zero", "/etc/passwd", "/", "/proc/self/environ", "loop"])
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "dir":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.relpath(path))
    elif kind != "gone":
        path.symlink_to(path if kind == "loop" else kind)
    return f"{path.name} {kind}"


def edited(made: Path, draw: random.Random) -> str:
    """Change, drop, add or repeat a part of a JSON file somewhere within it."""
    path = one_of(made, draw, "*.json", "*/*.json", "*/process/*.json")
    content = json.loads(path.read_text())
    parts: list[tuple[Any, Any]] = []
    layer: list[Any] = [content]
    while layer:
        inner = [(one, key) for one in layer for key in (one if isinstance(one, dict) else range(len(one)))]
        parts += inner
        layer = [one[key] for one, key in inner if isinstance(one[key], dict | list)]
    for _ in range(draw.choice([1, 1, 2, 5])):
        holder, key = draw.choice(parts)
        how = draw.choice(["value", "value", "value", "deep", "drop", "key", "wide"])
        if how == "drop" and isinstance(holder, dict):
            holder.pop(key, None)
        elif how == "key" and isinstance(holder, dict):
            holder[draw.choice(["", "x" * 5_000, "\x1b[2J", "../../x", "*"])] = draw.choice(EXTREME)
        elif isinstance(holder, list) and key >= len(holder):
            continue
        elif how == "deep":
            holder[key] = json.loads("[" * 500 + "]" * 500)
        elif how == "wide":
            holder[key] = {f"op-{n}": {"kind": "query", "p50": n} for n in range(draw.choice([200, 20_000]))}
        else:
            holder[key] = draw.choice(EXTREME)
    text = json.dumps(content)
    path.write_text(text.replace('{"', '{"format": 3, "', 1) if draw.random() < 0.1 else text)
    return f"{path.parent.name}/{path.name}"


def sparse(made: Path, draw: random.Random) -> str:
    """Make a JSON file of some megabytes that is large where it is parsed."""
    path = one_of(made, draw, "*.json", "*/*.json", "*/process/*.json")
    count = draw.choice([10_000, 1_000_000])
    content = draw.choice(["[]", "{}", '{"a":{}}', "1e1", '"\\n"', '"\U0001f4a5"', "[[[[1]]]]", "NaN"])
    key = draw.choice(["gates", "cells", "ops", "settings", "x" * 100_000])
    text = f'{{"{key}": [{",".join([content] * count)}]}}'
    if draw.random() < 0.5:
        text = f'{{"{key}": {{{",".join(f"{chr(34)}{n}{chr(34)}:{content}" for n in range(count // 2))}}}}}'
    path.write_text(
        draw.choice(
            [text, "[" * count, '{"a":' * count, '{"n": ' + "9" * count + "}", '{"n": "' + "\\u001b" * count + '"}']
        )
    )
    return f"{path.name} {content} x {count}"


def encoded(body: bytes) -> str:
    packed = zlib.compress(_HEAD.pack(_COOKIE, len(body), 0, DIGITS, 1, HIGHEST_NS, 1.0) + body, 9)
    return base64.b64encode(_FRAME.pack(_FRAME_COOKIE, len(packed)) + packed).decode()


def log_lines(draw: random.Random, start_s: float) -> str:
    kind = draw.choice(["bomb", "large", "zeros", "ones", "tags", "times", "counts", "long", "names", "words"])
    times = [1e18, -1.0, float("nan"), float("inf"), start_s * 1e9, 0.0, 1e300]
    small = encoded(b"\x02")
    if kind == "bomb":  # a line that unpacks to much more than any histogram
        return f"Tag=write-1|service,{start_s},1.0,1.0,{encoded(bytes(100_000_000))}\n"
    if kind in {"large", "zeros", "ones", "words"}:  # many that unpack to a whole one each: 3.9 MB in all
        body = {"large": b"\x80" * 8 + b"\x00", "zeros": b"\x00", "ones": b"\x02", "words": b"\xfe\xff\xff\xff\x7f"}[
            kind
        ]
        line = f"Tag=write-1|service,{start_s},1.0,1.0,{encoded(body * (33_792 if len(body) < 3 else 20_000))}\n"
        return line * (3_900_000 // len(line))
    if kind in {"tags", "names"}:
        long = "x" * (5_000 if kind == "names" else 0)
        return "".join(
            f"Tag={long}op-{n}|service,{start_s},1.0,1.0,{small}\n" for n in range(3_900_000 // (60 + len(long)))
        )
    if kind == "times":
        return "".join(
            f"Tag=write-1|service,{draw.choice(times)},{draw.choice([1.0, *times])},1.0,{small}\n" for _ in range(9)
        )
    if kind == "counts":
        return f"Tag=write-1|service,{start_s},1.0,1.0,{encoded(bytes([0xFE, *[0xFF] * 6, 0x7F]) * 99)}\n" * 999
    return f"Tag=write-1|service,{start_s},1.0,1.0,{small * 999_999}\n"


def logged(made: Path, draw: random.Random) -> str:
    """Append lines to a histogram log, or make it of them."""
    path = one_of(made, draw, "*/latency/*.hlog", "*/process/*.hlog")
    good = [line for line in path.read_text().splitlines() if line.startswith("Tag")]
    start_s = float(good[len(good) // 2].split(",")[1]) if good else 1.0
    lines = log_lines(draw, start_s)
    path.write_text("\n".join([*good, lines]) if draw.random() < 0.5 else lines)
    return f"{path.name} {lines[:40]} {len(lines)}"


def lying(data: bytes) -> bytes:
    """Return a Parquet file whose directory says that its columns unpack to little."""
    file = parquet.ParquetFile(pa.BufferReader(data))
    for group in range(file.metadata.num_row_groups):
        for place in range(file.metadata.num_columns):
            size = file.metadata.row_group(group).column(place).total_uncompressed_size
            words = bytearray()
            zigzag = size << 1
            while zigzag:
                words.append((zigzag & 0x7F) | (0x80 if zigzag > 0x7F else 0))
                zigzag >>= 7
            head, _, footer = data.rpartition(b"PAR1" if len(words) < 3 else bytes(words))
            if len(words) >= 3 and head:
                data = head + bytes([0xFE, *[0x80] * (len(words) - 2), 0x00]) + footer
    return data


def bombed(made: Path, draw: random.Random) -> str:
    """Make a Parquet file that is small and large, or whose numbers are."""
    name = draw.choice([*TABLES])
    path = one_of(made, draw, f"*/{name}.parquet", "*/ops.parquet")
    table = parquet.read_table(path)
    texts = TABLES[path.stem]
    kind = draw.choice(
        [
            "rows",
            "rows",
            "texts",
            "seconds",
            "numbers",
            "types",
            "columns",
            "twice",
            "lists",
            "lie",
            "long",
            "none",
            "wide",
        ]
    )
    if kind == "rows":
        count = draw.choice([200_000, 5_000_000, 30_000_000])
        table = table.slice(0, 1).take(pa.array(np.zeros(count, dtype=np.int32)))
    elif kind in {"texts", "lie", "long"}:
        size = 200_000_000 if kind != "long" else 300
        column = pa.array(["x" * size] * (1 if kind != "long" else len(table)))
        table = table.slice(0, 1) if kind != "long" else table
        for text in texts or {"second"}:
            table = table.set_column(table.column_names.index(text), text, column)
    elif kind in {"seconds", "numbers"} and len(table):
        chosen = "second" if kind == "seconds" else draw.choice([c for c in table.column_names if c not in texts])
        values = [
            draw.choice([0.0, 1.0, 1e9, 2e9, -1e9, 1e18, float("nan"), float("inf"), -1e300, 6e5])
            for _ in range(len(table))
        ]
        whole = pa.array([int(min(max(v, -9e18), 9e18)) if not math.isnan(v) else None for v in values])
        column = whole if pa.types.is_integer(table[chosen].type) else pa.array(values)
        table = table.set_column(table.column_names.index(chosen), chosen, column)
    elif kind == "types":
        chosen = draw.choice(table.column_names)
        odd: list[Any] = ["x", True, [1], b"\xff", {"a": 1}, None, 1.5]
        column = [draw.choice(odd)] * len(table)
        table = table.set_column(table.column_names.index(chosen), chosen, pa.array(column))
    elif kind == "columns":
        table = table.drop_columns(draw.sample(table.column_names, draw.randrange(1, len(table.column_names))))
    elif kind == "twice":
        table = table.append_column(draw.choice(table.column_names), pa.array([1] * len(table)))
    elif kind == "wide":
        table = pa.table(
            {**{c: table[c] for c in table.column_names}, **{f"c{n}": pa.array([1] * len(table)) for n in range(5_000)}}
        )
    elif kind == "none":
        table = pa.concat_tables([table] * 3).slice(0, 0)
    else:
        table = table.append_column("list", pa.array([[1] * 1_000] * len(table)))
    out = io.BytesIO()
    parquet.write_table(
        table,
        out,
        compression=draw.choice(["zstd", "snappy", "gzip", "none"]),
        row_group_size=draw.choice([None, 50_000]),
    )
    path.write_bytes(lying(out.getvalue()) if kind == "lie" else out.getvalue())
    return f"{path.name} {kind} {path.stat().st_size} bytes"


def lined(made: Path, draw: random.Random) -> str:
    """Change lines of a file of JSON lines, or records of a ledger."""
    path = one_of(made, draw, "*/process/*.jsonl", "*/process/*.ledger")
    if path.suffix == ".ledger":
        path.write_bytes(draw.choice([draw.randbytes(4_500), b"\xff" * 4_500, path.read_bytes() + draw.randbytes(45)]))
        return path.name
    lines = path.read_text().splitlines()
    for _ in range(draw.choice([1, 5])):
        place = draw.randrange(len(lines))
        try:
            found = json.loads(lines[place])
        except ValueError:
            continue
        found[draw.choice([*found])] = draw.choice(EXTREME)
        lines[place] = draw.choice(
            [json.dumps(found)] * 5 + ["[" * 300_000, "null", "[1]", lines[place] * 2, "{}", "9" * 600_000]
        )
    path.write_text("\n".join([*lines, ""]))
    return path.name


def crossed(made: Path, draw: random.Random) -> str:
    first, second = draw.sample(files_in(made), 2)
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)
    return f"{first.name} <> {second.name}"


def scripted(made: Path, draw: random.Random) -> str:
    text = draw.choice(
        [
            "a = " + "[" * 100_000,
            "a" + ".a" * 50_000 + " = 1",
            "\xff" * 5_000,
            "x = 1\n" * 500_000,
            'question = "\\u001b[31m"',
        ]
    )
    (made / "scenario.toml").write_text(text, encoding="latin-1")
    return text[:20]


def many(made: Path, draw: random.Random) -> str:
    for number in range(1_100):
        (made / f"run-{number}").mkdir()
        (made / f"run-{number}" / "spec.json").write_text("{}")
    return "1,100 runs"


DAMAGES: dict[Callable[[Path, random.Random], str], int] = {
    flipped: 5, cut: 3, replaced: 4, edited: 9, sparse: 3, logged: 4, bombed: 6, lined: 3, crossed: 1, scripted: 1,
    many: 1,
}  # fmt: skip
"""The damages, with their shares."""


# --- what comes of them -----------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What came of a damaged set: seconds of CPU, MB at most, and "" or what should not have come."""

    number: int
    damage: str
    cpu_s: float
    peak_mb: float
    code: int
    fault: str


def read_all(made: Path, out: Path) -> int:
    """Read a set with every reader of result sets; returns the exit code of `tsbench report`."""
    from tsbench.cli.main import main
    from tsbench.errors import Broken, UserMistake
    from tsbench.report import frames
    from tsbench.report.comparison import compare, lines, sides_at
    from tsbench.results.rundir import find_runs
    from tsbench.run.cleanup import leftovers
    from tsbench.run.measurement import measured, recorded
    from tsbench.scenario.spec import Scenario

    code = main(
        [
            "report",
            str(made),
            "--junit",
            str(out / "j.xml"),
            "--markdown",
            str(out / "m.md"),
            "--json",
            str(out / "s.json"),
        ]
    )
    spec = Scenario.load(made.parent.parent / "tiny.toml").expand()[0]
    read: list[Callable[[], object]] = [
        lambda: frames.runs(made),
        *(lambda of=of: frames.of_set(made, of) for of in ("ops", "latency", "counters", "sar", "usage")),
        lambda: [lines(compare(side, side)) for side in sides_at(made) if side.runs],
        lambda: leftovers(made),
        lambda: [run.status() for run in find_runs(made)],
    ]
    for each in read:
        with suppress(UserMistake):
            each()
    with suppress(UserMistake, Broken):
        for run in find_runs(made):
            with recorded():
                measured(run, spec)
    return code


def outcome_of(number: int, original: Path, damage: Callable[[Path, random.Random], str], seed: int) -> Outcome:
    """Damage a copy of the set in a child process and read it there in another one."""
    draw = random.Random(f"{seed} {number}")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        made = shutil.copytree(original, place / "results" / "set", symlinks=True)
        (place / "tiny.toml").write_text(TINY)
        maker = os.fork()
        if not maker:  # bombs take memory where they are made
            os.chdir(place)
            try:
                (place / "what").write_text(damage(made, draw))
            finally:  # a damage that cannot be made leaves the set as it is, and the parent's directory
                os._exit(0)
        os.waitpid(maker, 0)
        said = place / "said"
        reader = os.fork()
        if not reader:
            _read_and_exit(made, place, said)
        _, status, used = os.wait4(reader, 0)
        what = (
            f"{damage.__name__}: {(place / 'what').read_text() if (place / 'what').exists() else 'could not be made'}"
        )
        text, code = said.read_text(errors="replace"), os.waitstatus_to_exitcode(status)
        cpu_s, peak_mb = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6
    faults = [
        f"ended with {code}: {text[-1500:]}" if code not in {0, 2} else "",
        "a traceback: " + text[-1500:] if "Traceback" in text else "",
        f"{len(lines)} lines: {text[-500:]}"
        if len(lines := [x for x in text.splitlines() if x.startswith("tsbench: ")]) > 1
        else "",
        "" if code == 0 or lines else f"no line: {text[-500:]}",
        f"{cpu_s:.1f} s" if cpu_s > MOST_S else "",
        f"{peak_mb:.0f} MB" if peak_mb > MOST_MB else "",
    ]
    return Outcome(
        number,
        f"{what} -> {code} {lines[0][:160] if lines else ''}",
        cpu_s,
        peak_mb,
        code,
        "; ".join(filter(None, faults)),
    )


def _read_and_exit(made: Path, place: Path, said: Path) -> None:
    signal.alarm(GIVE_UP_S)
    resource.setrlimit(resource.RLIMIT_AS, (8_000_000_000, 8_000_000_000))
    os.chdir(place)
    with said.open("wb") as out:
        os.dup2(out.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        code = read_all(made, place)
    except BaseException:  # noqa: BLE001 - what is looked for
        traceback.print_exc()
        code = 70
    os._exit(code)


def warm() -> None:
    """Import what every command of a report imports, once for all children."""
    import matplotlib.pyplot as plt  # noqa: F401

    import tsbench.cli.main
    import tsbench.collect.recording
    import tsbench.report.console
    import tsbench.report.export
    import tsbench.report.html
    import tsbench.run.cleanup
    import tsbench.study.campaign  # noqa: F401


def outcomes(original: Path, count: int, seed: int, only: int | None = None) -> list[Outcome]:
    """Return what came of `count` damaged copies of a set."""
    turns = [damage for damage, share in DAMAGES.items() for _ in range(share)]
    random.Random(seed).shuffle(turns)
    found: list[Outcome] = []
    for number in range(count) if only is None else [only]:
        found.append(one := outcome_of(number, original, turns[number % len(turns)], seed))
        if one.fault:
            print(f"{one.number} {one.damage} FAULT: {one.fault}", flush=True)
        if len(found) % 25 == 0:
            print(totals(found), flush=True)
    return found


def totals(found: list[Outcome]) -> str:
    """Return what came of the sets, in one line."""
    faulty, tracebacks = sum(one.fault != "" for one in found), sum("a traceback" in one.fault for one in found)
    return (
        f"{len(found)} damaged sets: {faulty} faulty, {tracebacks} tracebacks, exit codes "
        f"{dict(Counter(one.code for one in found))}; slowest {max(one.cpu_s for one in found):.1f} s CPU, "
        f"largest {max(one.peak_mb for one in found):.0f} MB"
    )


def main() -> int:
    """Print the figures, and every set of which too much came."""
    words = [int(word) for word in sys.argv[1:]]
    count, seed = (*words, *(600, 1)[len(words) :])[:2]
    only = words[2] if len(words) > 2 else None
    warm()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        found = outcomes(real_set(Path(place)), count, seed, only)
    if only is not None:
        print(found[0])
    print(f"seed {seed}, {time.monotonic() - started:.0f} s: {totals(found)}")
    return 1 if any(one.fault for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
