"""Queries that users write in a database's own language: their parameters, and the refusal of those that may write."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tsbench.units import parse_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tsbench.model import Text


_SKIPPED = r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`|--(?=\s|\Z)[^\n]*|/\*.*?\*/|::"""
_AMBIGUOUS = {
    r"""\\['"]""": "a quote after a backslash: write it twice",
    r"/\*M?!": "/*!, a comment that is executed",
    r"\$\w*\$": "$$, a quote",
    r"/\*(?:(?!\*/).)*/\*": "/* within a comment",
}
"""Signs by which databases see other quotes and comments than `_SKIPPED`, in which a write might hide."""
_PARAMETER = re.compile(rf"""{_SKIPPED}|:bucket\(\s*([\w."]+)\s*,\s*(\w+)\s*\)|:([A-Za-z_]\w*)""", re.DOTALL)
_WORD, _WORD_BESIDE_BRACKETS = (
    re.compile(rf"{skipped}|([A-Za-z_]\w*)(\s*\()?|(;)\s*\S", re.DOTALL)
    for skipped in (_SKIPPED, rf"\[[^\]]*\]|{_SKIPPED}")
)
"""Words of a text; the second one where brackets quote a name, as in some databases."""
_MAY_BRACKET = frozenset({"sql", "sqlite"})
"""Languages in which brackets may quote a name."""
_LIMITED = re.compile(r"\blimit\s+\d+\s*;?\s*\Z", re.IGNORECASE)
_WRITES = frozenset("insert update delete merge into drop alter create truncate grant revoke copy".split())  # noqa: SIM905
_READS = ("select", "with", "from", "values")
_FLUX_IMPORT = re.compile(r'import\s+(?:\w+\s+)?"([^"]*)"')
_FLUX_PACKAGES = frozenset({"math", "strings", "date", "regexp", "join", "types", "array", "timezone", "interpolate"})
Language: TypeAlias = Literal[
    "sql", "postgres", "mysql", "sqlite", "duckdb", "questdb", "influxql", "flux", "mongodb", "metricsql"
]
"""Languages in which a query may be written; several databases understand "sql"."""
INFLUXQL: Language = "influxql"
_HAVE_BUCKETS = frozenset({"influxql", "flux", "mongodb", "metricsql"})
"""Languages that say buckets in one way each, and need no `:bucket(COLUMN, DURATION)`."""
GOLD_ENGINE = "duckdb"
"""The package that answers `gold`."""
KINDS = ("time", "text", "int", "float", "bool")
"""Kinds of an answer's columns."""


_BOUNDS: dict[str, Callable[[str], Sequence[str]]] = {
    "mongodb": re.compile(r'":(start|end)"').findall,
    "metricsql": lambda _text: ("start", "end"),  # its requests have them beside the text
}
"""How the bounds of the window are named in a text, where not as other parameters."""


def is_limited(text: str) -> bool:
    """Return whether a text in SQL ends with a limit on its rows."""
    return _LIMITED.search(text) is not None


def parameters(text: str) -> list[str]:
    """Return the names of the parameters `:name` in a text, outside of quotes and comments."""
    return [m[3] for m in _PARAMETER.finditer(text) if m[3]]


def missing_bound(language: str, text: str) -> str:
    """Return the bound of the window, "start" or "end", that a text does not name; "" if it has both or needs none."""
    named = _BOUNDS.get(language, parameters)(text)
    return next((bound for bound in ("start", "end") if bound not in named), "")


def filled(text: str, values: Mapping[str, Callable[[], str]], bucket: Callable[[str, int], str] | None = None) -> str:
    """Return a text with its parameters replaced, in their order, by what the functions return; others stay.

    `bucket` returns the expression for `:bucket(COLUMN, DURATION)`, from the column and the duration in ns: the start
    of the bucket that a time is in, as nanoseconds since 1970.
    """

    def replaced(m: re.Match[str]) -> str:
        if m[1] and bucket is not None:
            return bucket(m[1], parse_duration_ns(m[2]))
        return values[m[3]]() if m[3] in values else m[0]

    return _PARAMETER.sub(replaced, text)


def arguments(
    query: Text, moment: Callable[[int], str], argument: Callable[[str], str]
) -> dict[str, Callable[[], str]]:
    """Return a function for each parameter that returns it as a part of the text; several texts are a list."""

    def listed(values: tuple[str, ...]) -> str:
        texts = [argument(value) for value in values]
        return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

    return {
        "start": partial(moment, query.window.start_ns),
        "end": partial(moment, query.window.end_ns),
        **{name: partial(listed, values) for name, values in query.values},
    }


def pipeline(text: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the stages of a pipeline in which texts such as ":start" are replaced.

    Raises
    ------
    ValueError
        If it is no list of stages, or one of them writes.
    """
    stages = json.loads(text)
    if not isinstance(stages, list) or not all(isinstance(stage, dict) and len(stage) == 1 for stage in stages):
        raise ValueError('it is no list of stages, such as [{"$match": {}}]')
    if writes := {"$out", "$merge"} & {*_keys(stages)}:
        raise ValueError(f"it would write ({writes.pop()})")

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: replaced(one) for key, one in value.items()}
        if isinstance(value, list):
            return [replaced(one) for one in value]
        return values.get(value[1:], value) if isinstance(value, str) and value.startswith(":") else value

    return [replaced(stage) for stage in stages]


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keys(one)


def expect_read(language: str, text: str, known: Sequence[str]) -> None:
    """Verify that a text is one statement that reads, and that its parameters are `known`.

    Functions that change something are not recognised: the rights of the endpoint's user decide about them.

    Raises
    ------
    ValueError
        If it is not.
    """
    buckets = [m for m in _PARAMETER.finditer(text) if m[1]]
    if buckets and language in _HAVE_BUCKETS:
        raise ValueError(f"{buckets[0][0]} is for SQL; this language has buckets of its own")
    for m in buckets:
        width_ns = parse_duration_ns(m[2])
        if width_ns <= 0:
            raise ValueError(f"{m[0]}: needs a duration above 0")
        if width_ns % 1_000:
            raise ValueError(f"{m[0]}: needs whole microseconds, the finest that most databases count")
    if language in _EXPECT:
        _EXPECT[language](text)
        return
    _expect_plain(text)
    for words in (_WORD, *([_WORD_BESIDE_BRACKETS] if language in _MAY_BRACKET else [])):
        _expect_select([m for m in words.finditer(text) if m[1] or m[3]])
    if unknown := [name for name in parameters(text) if name not in known]:
        more = " and :bucket(COLUMN, 10m)" if unknown[0] == "bucket" else ""
        raise ValueError(
            f"there is no parameter :{unknown[0]}; there are {', '.join(f':{name}' for name in known)}{more}"
        )


def _expect_pipeline(text: str) -> None:
    pipeline(text, {})


def _expect_flux(text: str) -> None:
    others = {*_FLUX_IMPORT.findall(text)} - _FLUX_PACKAGES
    if others or re.search(r"\b(?:to|wideTo)\s*\(", text):
        raise ValueError(f"it may write ({f'import {others.pop()}' if others else 'to()'})")


def _expect_anything(_text: str) -> None:
    """Accept a text in a language that has no writes."""


def _expect_plain(text: str) -> None:
    """Verify that all databases see the same quotes and comments in a text."""
    for sign, what in _AMBIGUOUS.items():
        if re.search(sign, text, re.DOTALL):
            raise ValueError(f"databases differ on {what}")
    if "#" in re.sub(_SKIPPED, " ", text, flags=re.DOTALL):
        raise ValueError("databases differ on #, which begins a comment in some")


def _expect_select(tokens: Sequence[re.Match[str]]) -> None:
    if any(m[3] for m in tokens):
        raise ValueError("it is more than one statement")
    words = [m[1].lower() for m in tokens]
    if not words or words[0] not in _READS:
        raise ValueError(f"it begins with {words[0].upper() if words else 'nothing'}; a query begins with SELECT")
    if writes := [m[1].upper() for m in tokens if m[1].lower() in _WRITES and not m[2]]:  # truncate(x, 2) is a function
        raise ValueError(f"it may write ({writes[0]}); a name of your own goes in double quotes")


_EXPECT: dict[str, Callable[[str], None]] = {
    "mongodb": _expect_pipeline,
    "flux": _expect_flux,
    "metricsql": _expect_anything,
}


def expect_time_names(languages: Collection[str], answer: Sequence[str]) -> None:
    """Verify that a column of times, such as "time:time", has the name that it has in these languages.

    Raises
    ------
    ValueError
        If it has another one.
    """
    times = [column for column in answer if column.endswith(":time")]
    if {"influxql", "flux"} & {*languages} and times not in ([], ["time:time"]):
        raise ValueError(f"InfluxQL and Flux call a time 'time'; rename '{times[0]}' to 'time:time'")
