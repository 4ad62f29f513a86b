"""One verdict: the terminal, the page, `compare`, JUnit, a comment and the web page say the same of the same runs.

`python -m tests.report.test_one_verdict` prints the table.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.report.test_comparison import make_set
from tsbench.cli.main import main
from tsbench.report import junit, markdown
from tsbench.report.answer import answer_at
from tsbench.report.cells import ResultSet
from tsbench.report.console import print_summary
from tsbench.report.html import write_report

SAME, SLOWER, LEFT_OUT, LIMITED, BEHIND = "same", "slower", "does not count", "at least", "could not keep up"
PHRASES = {
    SAME: ("no difference found",),
    SLOWER: ("as long", "slower", "worse"),
    LEFT_OUT: ("does not count", "has no run to compare"),
    LIMITED: ("the load generator limited the rate", "the load generator was the limit of"),
    BEHIND: ("could not keep up",),
}
WRONG = {"validity": {"state": "invalid", "reason": "3 answers are wrong", "checks": {}}}
CLIENT = {"limited_by": "load generator"}
OPEN = {"loop": "open", "users": 2}
SITUATIONS: list[tuple[str, int, float, dict[str, Any], set[str]]] = [
    ("2 rounds, same", 2, 10, {}, {SAME}),
    ("2 rounds, slower", 2, 40, {}, {SLOWER}),
    ("3 rounds, same", 3, 10, {}, {SAME}),
    ("3 rounds, slower", 3, 40, {}, {SLOWER}),
    ("8 rounds, same", 8, 10, {}, {SAME}),
    ("8 rounds, slower", 8, 40, {}, {SLOWER}),
    ("single runs, same", 0, 10, {}, {SAME}),
    ("single runs, slower", 0, 40, {}, {SLOWER}),
    ("3 rounds, invalid", 3, 40, WRONG, {LEFT_OUT}),
    ("3 rounds, client-limited and slower", 3, 40, CLIENT, {LIMITED, SLOWER}),
    ("8 rounds, client-limited and same", 8, 10, CLIENT, {LIMITED, SAME}),
    ("3 rounds, overloaded", 3, 40, OPEN, {BEHIND}),
]


def made(place: Path, rounds: int, p99_ms: float, change: dict[str, Any]) -> Path:
    """Write a set of `a` and `b`, where b has another p99 and this change of its summaries."""
    results = make_set(place / "set", {"a": 10, "b": p99_ms}, rounds=rounds)
    for path in (one for one in results.iterdir() if one.is_dir()):
        content = json.loads((path / "summary.json").read_text())
        content["limited_by"] = "database"
        if path.name.startswith("b"):
            content |= change
            for op in (content["measured"]["write"], *content["measured"]["ops"].values()):
                op |= {key: op[key] * 10 / p99_ms for key in ("ops_per_s", "points_per_s")}
        if change.get("loop") == "open":
            content["loop"] = "open"
        if content["loop"] == "open":
            queued = 4_000 if path.name.startswith("b") else 0
            content["schedule"] = {"scheduled": 5_000 + queued, "done": 5_000, "late": queued, "generator_late": 0}
            content["schedule"] |= {"dropped": 0, "unfinished": 0}
        (path / "summary.json").write_text(json.dumps(content))
    return results


def told(results: Path) -> dict[str, str]:
    """Return what each output says of the times of writes, or of all where they are not compared."""
    out = io.StringIO()
    print_summary(Console(file=out, width=400), results)
    page = write_report(results).read_text(encoding="utf-8")
    found = ResultSet.read(results)
    return {
        "terminal": out.getvalue(),
        "report": page.partition('<ul class="answer">')[2].partition("</ul>")[0],
        "JUnit": junit.document([found]),
        "comment": markdown.document([found]),
        "web page": "\n".join(answer_at(results)),
    }


def words_of(text: str, *, only: tuple[str, ...] = ()) -> set[str]:
    lines = [line for line in text.splitlines() if not only or any(one in line for one in only)]
    return {word for word, phrases in PHRASES.items() if any(phrase in line for line in lines for phrase in phrases)}


def verdicts(results: Path, compared: str) -> dict[str, set[str]]:
    """Return the words of each output about the writes."""
    about = ("Writes", "does not count", "could not keep up", "the load generator limited")
    found = {name: words_of(text, only=about) for name, text in told(results).items()}
    of_times = ["write:p99", "has no run to compare", "the load generator was the limit of"]
    if BEHIND not in compared:  # the rate that it did is its own
        of_times.append("write:points/s")
    return {**found, "compare": words_of(compared, only=tuple(of_times))}


@pytest.mark.parametrize(
    ("name", "rounds", "p99_ms", "change", "words"), SITUATIONS, ids=[one[0] for one in SITUATIONS]
)
@pytest.mark.slow
def test_all_outputs_say_the_same(
    tmp_path: Path, name: str, rounds: int, p99_ms: float, change: dict[str, Any], words: set[str], capsys: Any
) -> None:
    results = made(tmp_path, rounds, p99_ms, change)
    main(["compare", str(results / "a"), str(results / "b")])
    said = capsys.readouterr()
    assert verdicts(results, said.out + said.err) == dict.fromkeys(
        ("terminal", "report", "JUnit", "comment", "web page", "compare"), words
    )


if __name__ == "__main__":
    for name, rounds, p99_ms, change, _ in SITUATIONS:
        with tempfile.TemporaryDirectory() as place:
            results = made(Path(place), rounds, p99_ms, change)
            said = io.StringIO()
            with redirect_stdout(said), redirect_stderr(said):
                main(["compare", str(results / "a"), str(results / "b")])
            found = {key: ", ".join(sorted(of)) for key, of in verdicts(results, said.getvalue()).items()}
            sys.stdout.write(f"{name}: {found}\n")
