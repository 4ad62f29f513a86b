"""Dashboards of Grafana, turned into a scenario that asks their panels' queries of the data of a use case.

https://grafana.com/docs/grafana/latest/datasources/ has the macros and variables of each kind of data source.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tsbench.errors import UserMistake
from tsbench.scenario.own_queries import QueryPart, expect_answerable
from tsbench.text import listed, printable, printable_line
from tsbench.units import NS_PER_S, format_exact_duration
from tsbench.workload.own_text import INFLUXQL, expect_read, missing_bound, parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tsbench.workload.layout import Layout

    Columns = Callable[[str], Sequence[tuple[str, str]]]

_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)
"""Lengths of buckets that a dashboard chooses among, in s."""
_POINTS = 200
"""Number of buckets of a window, where a panel does not say it."""
_VIEWERS, _REFRESH_S = 10, 30.0
"""Number of people who look at a dashboard, and how often it asks again if it does not say so."""
_VARIABLE = re.compile(
    r"""(?P<matches>=~\s*)?(?:/\^?|['"]\^?\(?)?"""
    r"""(?P<variable>\$\{(?P<braces>\w+)(?::\w+)?\}|\$(?P<plain>\w+)|\[\[(?P<brackets>\w+)(?::\w+)?\]\])"""
    r"""(?:\)?\$?['"/])?"""
)
"""A variable, perhaps in quotes, or compared as a pattern: `=~ /^$site$/`."""
_NUMBERS = {"count": "int", "distinct": "int"}


@dataclass(frozen=True, slots=True)
class Known:
    """Data that a dashboard asks about: the measurements, and the tags with their values.

    `columns` returns names and kinds of the columns of an SQL query's answer; it raises ValueError if it is no query of
    these data. `targets` returns the databases that understand a query, `decimals` to how many decimals some of them
    need the data rounded, if they do.
    """

    layouts: Sequence[Layout]
    tags: Mapping[str, Sequence[str] | None]
    columns: Columns
    targets: Callable[[QueryPart], Sequence[str]]
    decimals: Callable[[Sequence[str]], int | None]

    @property
    def key(self) -> str:
        """The tag that names a series."""
        return next(iter(self.tags), "")


@dataclass(frozen=True, slots=True)
class LearnedScenario:
    """A scenario as TOML, the names of its queries, and for each other query of the dashboard why it is not asked."""

    text: str
    queries: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(slots=True)
class _Asked:
    """A panel's query on its way to one of a scenario."""

    title: str
    language: str
    text: str
    window_ns: int
    step_ns: int
    variables: Mapping[str, Mapping[str, Any]]
    drawn: set[str] = field(default_factory=set)
    """Tags that are parameters of the text."""
    missing: list[str] = field(default_factory=list)
    """What was not understood."""


def read_dashboard(path: Path) -> dict[str, Any]:
    """Return a dashboard's JSON.

    Raises
    ------
    UserMistake
        If the file cannot be read, or is none.
    """
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserMistake(f"'{path}' cannot be read as JSON: {error}") from None
    content = content.get("dashboard", content) if isinstance(content, dict) else None  # as its API wraps it
    if isinstance(content, dict) and isinstance(content.get("spec"), dict):  # of Grafana 12 and later
        content = _classic(content["spec"])
    if not isinstance(content, dict) or not [*_panels(content)]:
        raise UserMistake(f"'{path}' is no dashboard of Grafana: it has no panels with queries")
    return content


def learn_dashboard(dashboard: Mapping[str, Any], known: Known, use_case: str, longest_ns: int) -> LearnedScenario:
    """Return a scenario that asks a dashboard's queries, whose windows are at most `longest_ns`, of a use case.

    Raises
    ------
    UserMistake
        If none of them can be asked.
    """
    tables: dict[str, str] = {}
    targets: list[str] = []
    left_out: list[str] = []
    windows_ns = [NS_PER_S]
    queries = [*_queries(dashboard, longest_ns)]
    (most, _), *_ = Counter(asked.language for asked in queries if asked.language).most_common(1) or [("sql", 0)]
    for asked in queries:
        name = _name_of(asked.title, tables)
        try:
            tables[name], query = _table(name, asked, known, most)
            targets = targets or [*known.targets(query)]
            windows_ns.append(asked.window_ns)
        except ValueError as error:
            left_out.append(printable_line(f"{asked.title}: {error}"))
    if not tables:
        raise UserMistake(f"none of the dashboard's queries can be asked of {use_case}; first {left_out[0]}")
    refresh = dashboard.get("refresh")
    refresh_s = _duration_ns(refresh) / NS_PER_S if isinstance(refresh, str) and _duration_ns(refresh) else _REFRESH_S
    more = f"  # or {', '.join(targets[3:])}" if targets[3:] else ""
    rate = max(0.1, round(_VIEWERS * len(tables) / refresh_s, 1))
    decimals = known.decimals(targets[:3])
    title = printable_line(str(dashboard.get("title") or "the dashboard"))
    head = [
        f"question = {json.dumps(f'Which database answers {title}?', ensure_ascii=False)}",
        f"world.use_case = {json.dumps(use_case)}",
        *([] if decimals is None else [f"world.decimals = {decimals}  # of which databases keep no more"]),
        f'load.window = "{format_exact_duration(2 * max(windows_ns))}"  # queries choose their windows in it',
        f"# {_VIEWERS} people look at it, and each panel asks again every {refresh_s:g} s",
        f'drive = {{ loop = "open", rate = {rate:g}, users = 8, duration = "60s" }}',
        f"matrix.target.name = {json.dumps(targets[:3])}{more}",
        *(f"# not asked: {line}" for line in left_out),
        *(f'[[op]]\nquery = "{name}"' for name in tables),
        *tables.values(),
    ]
    return LearnedScenario("\n".join(head) + "\n", tuple(tables), tuple(left_out))


# --- reading ----------------------------------------------------------------------------------------------------------


def _classic(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a dashboard's resource of version 2 in the form of older ones, which that of version 1 has already."""
    elements = spec.get("elements")
    if not isinstance(elements, dict):
        return spec
    panels = []
    for element in elements.values():
        of = _at(element, "spec")
        group = _at(of, "data", "spec")
        targets = []
        for query in _list(group.get("queries")):
            asked = _at(query, "spec", "query")
            source = {"type": asked.get("group") or asked.get("kind")}
            shared = {"refId": _at(query, "spec").get("refId"), "hide": _at(query, "spec").get("hidden")}
            targets.append({**_at(asked, "spec"), **shared, "datasource": source})
        panels.append({**_at(group, "queryOptions"), "id": of.get("id"), "title": of.get("title"), "targets": targets})
    variables = []
    for one in _list(spec.get("variables")):
        kind = str(_at(one).get("kind", "")).removesuffix("Variable").lower()
        variables.append({**_at(one, "spec"), "type": kind})
    time = _at(spec, "timeSettings")
    rest = {"title": spec.get("title"), "time": time, "refresh": time.get("autoRefresh")}
    return {**rest, "panels": panels, "templating": {"list": variables}}


def _at(content: Any, *keys: str) -> Mapping[str, Any]:
    """Return the object at some keys within others; an empty one without it."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


def _list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _panels(dashboard: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the panels that have queries, also those in rows, as older dashboards have them."""
    for key in ("panels", "rows"):
        for one in _list(dashboard.get(key)):
            if isinstance(one, dict):
                if isinstance(one.get("targets"), list):
                    yield one
                yield from _panels(one)


def _queries(dashboard: Mapping[str, Any], longest_ns: int) -> Iterator[_Asked]:
    """Yield the queries of all panels that are shown."""
    listed = _list(_at(dashboard, "templating").get("list"))
    variables = {str(one.get("name")): one for one in listed if isinstance(one, dict)}
    for panel in _panels(dashboard):
        window_ns = min(longest_ns, _window_ns(dashboard, panel))
        most = panel.get("maxDataPoints")
        step_s = window_ns / NS_PER_S / (most if isinstance(most, int) and most > 0 else _POINTS)
        step_ns = next((one for one in _STEPS_S if one >= step_s), _STEPS_S[-1]) * NS_PER_S
        for target in panel["targets"]:
            if not isinstance(target, dict) or target.get("hide") is True:
                continue
            title = str(panel.get("title") or f"panel {panel.get('id', '')}").strip()
            several = f" {target.get('refId', '')}" if len(panel["targets"]) > 1 else ""
            try:
                language, text = _text_of(target)
            except (LookupError, TypeError, AttributeError, ValueError):  # of an editor's form that is damaged
                language, text = "", ""
            least_ns = max(step_ns, _duration_ns(target.get("interval") or panel.get("interval") or ""))
            text = printable(text).replace("\r", "")
            yield _Asked(printable_line(title + several), language, text, window_ns, least_ns, variables)


def _window_ns(dashboard: Mapping[str, Any], panel: Mapping[str, Any]) -> int:
    since = panel.get("timeFrom") or _at(dashboard, "time").get("from") or ""
    return _duration_ns(str(since).removeprefix("now-").partition("/")[0]) or 3_600 * NS_PER_S


def _duration_ns(text: object) -> int:
    """Return a duration of Grafana in ns, 0 if it is none."""
    m = re.fullmatch(r">?(\d+)(ms|[smhdwMy])", str(text).strip())
    return int(m[1]) * _UNITS_NS[m[2]] if m else 0


_UNITS_NS = {
    "ms": 1_000_000, "s": NS_PER_S, "m": 60 * NS_PER_S, "h": 3_600 * NS_PER_S, "d": 86_400 * NS_PER_S,
    "w": 7 * 86_400 * NS_PER_S, "M": 30 * 86_400 * NS_PER_S, "y": 365 * 86_400 * NS_PER_S,
}  # fmt: skip


def _text_of(target: Mapping[str, Any]) -> tuple[str, str]:
    """Return the language of a panel's query and its text; ("", "") if it has none."""
    if isinstance(target.get("rawSql"), str):
        return "sql", target["rawSql"]
    if isinstance(target.get("expr"), str):
        return "metricsql", target["expr"]
    query = target.get("query")
    if isinstance(query, str) and query.strip() and (target.get("rawQuery") is not False or "|>" in query):
        is_select = re.match(r"\s*(?:SELECT|SHOW)\s", query, re.IGNORECASE) is not None
        return ("flux" if "|>" in query else INFLUXQL if is_select else ""), query
    return (INFLUXQL, _built(target)) if isinstance(target.get("select"), list) else ("", "")


def _built(target: Mapping[str, Any]) -> str:
    """Return the InfluxQL of a query that was put together in Grafana's editor."""
    columns = [_applied(parts) for parts in target["select"] if isinstance(parts, list)]
    terms = []
    for number, tag in enumerate(target.get("tags") or ()):
        word = f" {tag.get('condition') or 'AND'} " if number else ""
        value, operator = str(tag.get("value")), tag.get("operator") or "="
        shown = value if operator in {"=~", "!~"} else "'" + value.replace("'", "\\'") + "'"
        terms.append(f'{word}"{tag.get("key")}" {operator} {shown}')
    where = "".join(terms)
    of = [part for part in target.get("groupBy") or () if isinstance(part, dict)]
    names = {"time": "time({})", "tag": '"{}"'}
    by = [names[part["type"]].format(*part.get("params", ())) for part in of if part.get("type") in names]
    fill = next((f" fill({part['params'][0]})" for part in of if part.get("type") == "fill" and part.get("params")), "")
    given = f"({where}) AND " if where else ""
    text = f'SELECT {", ".join(columns)} FROM "{target.get("measurement")}" WHERE {given}$timeFilter'  # noqa: S608
    return text + (f" GROUP BY {', '.join(by)}{fill}" if by else "")


def _applied(parts: Sequence[Mapping[str, Any]]) -> str:
    text = ""
    for part in parts:
        kind, params = part.get("type"), [str(one) for one in part.get("params") or ()]
        if kind == "field":
            text = f'"{params[0]}"' if params[:1] != ["*"] else "*"
        elif kind == "alias":
            text = f'{text} AS "{params[0]}"'
        elif kind == "math":
            text += params[0] if params else ""
        else:
            text = f"{kind}({', '.join([text, *params])})"
    return text


# --- texts ------------------------------------------------------------------------------------------------------------


def _table(name: str, asked: _Asked, known: Known, most: str) -> tuple[str, QueryPart]:
    """Return a [[query]] table as text and as a model; `most` is the language of most queries.

    Raises
    ------
    ValueError
        If the query cannot be asked: what was not understood.
    """
    if asked.language not in _LANGUAGES:
        raise ValueError(f"it is in none of the languages {', '.join(_LANGUAGES)}")
    if asked.language != most:
        raise ValueError(f"it is {asked.language}, and most others are {most}: no database understands both")
    text, gold, answer = _LANGUAGES[asked.language](asked, known)
    if asked.missing:
        raise ValueError(f"{', '.join(dict.fromkeys(asked.missing))} was not understood")
    if bound := missing_bound(asked.language, text):
        raise ValueError(f"it has no condition on the time, such as $__timeFilter(time), that names :{bound}")
    of = next((one.name for one in known.layouts if re.search(rf"\b{re.escape(one.name)}", text)), None)
    if of is None:
        raise ValueError(f"it names no measurement of the use case ({listed([one.name for one in known.layouts])})")
    gold, first = _first_rows(gold, [column for column, _ in answer])
    part: dict[str, Any] = {
        "name": name,
        "about": asked.title,
        "of": of,
        "window": format_exact_duration(asked.window_ns),
        "series": 1 if known.key in asked.drawn else None,
        "draw": dict.fromkeys(sorted(asked.drawn - {known.key}), 1) or None,
        "answer": [f"{column}:{kind}" for column, kind in answer],
        f"text.{asked.language}": text,
        "gold": gold or None,
        **first,
    }
    table = "\n".join(["[[query]]", *(f"{key} = {_toml(value)}" for key, value in part.items() if value is not None)])
    try:
        query = QueryPart.model_validate(tomllib.loads(table)["query"][0])
        expect_answerable([query], known.layouts, known.tags, taken=())
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    except ValueError as error:
        raise ValueError(str(error).removeprefix(f"query.{name}.")) from None
    return table, query


_FIRST = re.compile(
    r"""\s+ORDER\s+BY\s+"?(\w+)"?(?:\s+(ASC|DESC))?(?:\s*,[^()]*)?\s+LIMIT\s+(\d+)\s*\Z""", re.IGNORECASE
)


def _first_rows(gold: str, columns: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return a gold without its limit at the end, and the keys of a query that say it, by one of the columns."""
    if (m := _FIRST.search(gold)) is None:
        return gold, {}
    named = columns[int(m[1]) - 1 : int(m[1])] if m[1].isdigit() else [one for one in columns if one == m[1]]
    if not named:
        return gold, {}
    return gold[: m.start()], {"order": f"{named[0]} {(m[2] or 'asc').lower()}", "limit": int(m[3])}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {one}' for key, one in value.items())} }}"
    if isinstance(value, str) and "\n" in value and "'''" not in value:
        return f"'''\n{value}'''"
    return json.dumps(value, ensure_ascii=False)


def _of_sql(asked: _Asked, known: Known) -> tuple[str, str, list[tuple[str, str]]]:
    """Return an SQL text of our tables, the same for gold, and the answer's columns."""
    step = format_exact_duration(asked.step_ns)
    text = asked.text.strip().rstrip(";").rstrip()
    tables = "|".join(re.escape(layout.name) for layout in known.layouts)
    text = re.sub(rf"""\b(FROM|JOIN)\s+"?\w+"?\.("?(?:{tables})\b)""", r"\1 \2", text, flags=re.IGNORECASE)
    text = re.sub(r"\$__interval\b|\$\{__interval\}", step, text)

    def bucket(m: re.Match[str]) -> str:
        length_ns = _duration_ns(m[3].strip().strip("'\"")) or asked.step_ns
        return f":bucket({m[2].strip()}, {format_exact_duration(length_ns)})" + (" AS time" if m[1] else "")

    text = re.sub(r"\$__timeGroup(Alias)?\(\s*([\w.\"]+)\s*,\s*([^,)]+)(?:,[^)]*)?\)", bucket, text)
    text = re.sub(r"\$__time\(\s*([\w.\"]+)\s*\)", r"\1 AS time", text)
    text = re.sub(r"\$__timeEpoch\(\s*([\w.\"]+)\s*\)", ":bucket(\\1, 1s) AS time", text)
    bounds = r"\$__timeFilter\(\s*([\w.\"]+)\s*\)"
    gold = re.sub(bounds, "TRUE", text)
    text = re.sub(bounds, r"(\1 >= :start AND \1 < :end)", text)
    text, gold = (
        re.sub(r"\$__timeFrom(\(\))?", ":start", re.sub(r"\$__timeTo(\(\))?", ":end", one)) for one in (text, gold)
    )
    has_bounds = {"start", "end"} & {*parameters(gold)}  # of which gold, whose table ends before :end, knows one only
    text, gold = (_with_variables(one, asked, known) for one in (text, gold))
    if asked.missing:
        return text, "", []
    expect_read("sql", text, ["start", "end", *known.tags])
    columns = known.columns(gold)
    for layout in known.layouts if known.tags else ():
        tags = ", ".join(f't."{tag}"' for tag in known.tags)
        wide = f'(SELECT m.*, {tags} FROM "{layout.name}" m JOIN tags t ON t.id = m.tags_id) {layout.name}'  # noqa: S608
        text = re.sub(
            rf"""\b(FROM|JOIN)\s+"?{re.escape(layout.name)}"?(?!\w)(?:\s+AS)?""",
            rf"\1 {wide}",
            text,
            flags=re.IGNORECASE,
        )
        text = re.sub(rf"(\) ){re.escape(layout.name)}\s+(?!(?:{_CLAUSES})\b)(\w+)", r"\1\2", text, flags=re.IGNORECASE)
    return text, "" if has_bounds else gold, _named(columns)


def _named(columns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return columns with names that an answer may have: SQL's are known by their order."""
    names: dict[str, str] = {}
    for name, kind in columns:
        plain = "time" if kind == "time" else re.sub(r"\W+", "_", name).strip("_")[:50] or "value"
        plain = f"{plain}_" if kind != "time" and plain.lower() == "time" else plain
        names[next(one for one in (plain, *(f"{plain}_{n}" for n in range(2, 1_000))) if one not in names)] = kind
    return [*names.items()]


_CLAUSES = "where|group|order|limit|join|inner|left|right|full|cross|on|using|having|union|natural|window"


def _of_influxql(asked: _Asked, known: Known) -> tuple[str, str, list[tuple[str, str]]]:
    """Return a text of InfluxQL, no gold, and the answer's columns."""
    text = re.sub(r"\$(?:timeFilter|__timeFilter)\b", "time >= :start AND time < :end", asked.text.strip().rstrip(";"))
    step = format_exact_duration(asked.step_ns)
    text = re.sub(
        r"\$(?:__interval|interval)\b(?!_)|\btime\(auto\)",
        lambda m: m[0].replace("auto", step) if "auto" in m[0] else step,
        text,
    )
    text = _with_variables(text, asked, known)
    m = re.match(r"\s*SELECT\s+(.*?)\s+FROM\s", text, re.IGNORECASE | re.DOTALL)
    if m is None:
        raise ValueError("it is no SELECT")
    columns, seen = [("time", "time")], dict[str, int]()
    kinds = {one.name: one.kind.value for layout in known.layouts for one in layout.fields}
    for item in _split(m[1]):
        alias = re.search(r'\s+AS\s+"?([\w %.-]+?)"?\s*$', item, re.IGNORECASE)
        called = re.match(r"\s*(\w+)\s*\(", item)
        plain = re.fullmatch(r'\s*"?(\w+)"?\s*', item)
        name = alias[1] if alias else called[1].lower() if called else plain[1] if plain else ""
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"the column '{item.strip()}' has no name; give it one in the panel (alias)")
        seen[name] = seen.get(name, 0) + 1
        kind = (
            kinds.get(name, "") if plain and not alias else _NUMBERS.get(called[1].lower() if called else "", "float")
        )
        if not kind:
            raise ValueError(f"no measurement has a field '{name}'")
        columns.append((name if seen[name] == 1 else f"{name}_{seen[name] - 1}", kind))
    grouped = re.search(r"\sGROUP\s+BY\s+(.*?)(?:\sfill\(|\sORDER\s|\sLIMIT\s|$)", text, re.IGNORECASE | re.DOTALL)
    by = [part.strip().strip('"').replace("::tag", "") for part in _split(grouped[1])] if grouped else []
    return text, "", [*columns, *((tag, "text") for tag in by if tag in known.tags)]


def _of_flux(asked: _Asked, known: Known) -> tuple[str, str, list[tuple[str, str]]]:
    """Return a text of Flux, no gold, and the answer's columns."""
    text = re.sub(r"bucket:\s*(\"[^\"]*\"|v\.\w+)", "bucket: bucket", asked.text.strip())
    for word, ours in (
        ("timeRangeStart", ":start"),
        ("timeRangeStop", ":end"),
        ("windowPeriod", format_exact_duration(asked.step_ns)),
    ):
        text = re.sub(rf"\bv\.{word}\b", ours, text)
    asked.missing += re.findall(r"\bv\.\w+", text)
    text = _with_variables(text, asked, known)
    kept = re.findall(r"(?:keep|group)\(columns:\s*\[([^\]]*)\]", text)
    named = re.findall(r'"(\w+)"', kept[-1]) if kept else []
    tags = [name for name in named if name in known.tags]
    return text, "", [("time", "time"), ("_value", "float"), *((tag, "text") for tag in tags)]


def _of_metricsql(asked: _Asked, known: Known) -> tuple[str, str, list[tuple[str, str]]]:
    """Return a text of MetricsQL, no gold, and the answer's columns."""
    step = format_exact_duration(asked.step_ns)
    text = re.sub(r"\$__(?:rate_)?interval\b|\$\{__(?:rate_)?interval\}", step, asked.text.strip())
    text = re.sub(r"\$__range\b|\$\{__range\}", ":window", text)
    text = _with_variables(text, asked, known)
    fields = {f"{layout.name}_{one.name}" for layout in known.layouts for one in layout.fields}
    if not any(re.search(rf"\b{re.escape(name)}\b", text) for name in fields):
        raise ValueError("it asks for no metric of the use case, such as " + min(fields))
    m = re.search(r"\bby\s*\(([^)]*)\)", text)
    is_one = re.match(r"\s*(?:sum|avg|min|max|count|quantile|stddev)\b(?!_)", text) is not None
    labels = [tag.strip() for tag in m[1].split(",") if tag.strip()] if m else [] if is_one else [*known.tags]
    return text, "", [*((tag, "text") for tag in labels), ("value", "float")]


_LANGUAGES = {"sql": _of_sql, INFLUXQL: _of_influxql, "flux": _of_flux, "metricsql": _of_metricsql}


def _with_variables(text: str, asked: _Asked, known: Known) -> str:
    """Return a text with a dashboard's variables replaced by parameters, or by the value that they have."""

    def replaced(m: re.Match[str]) -> str:
        name = next(filter(None, m.group("braces", "plain", "brackets")))
        variable = asked.variables.get(name)
        if (tag := _tag_of(name, variable, known)) is not None:
            asked.drawn.add(tag)
            return f"{'= ' if m['matches'] else ''}:{tag}"
        value = _value_of(variable)
        if value is None:
            asked.missing.append(f"${name}")
            return m[0]
        return m[0].replace(m["variable"], value)

    return _VARIABLE.sub(replaced, text)


def _tag_of(name: str, variable: Mapping[str, Any] | None, known: Known) -> str | None:
    """Return the tag whose values a variable has, by its name or by what it asks for; None if it has others."""
    query = _at(variable).get("query") if _at(variable).get("type") == "query" else None
    words = re.findall(r"\w+", json.dumps(query) if isinstance(query, dict) else str(query or ""))
    return name if name in known.tags else next((tag for tag in known.tags if tag in words), None)


def _value_of(variable: Mapping[str, Any] | None) -> str | None:
    """Return the value that a variable has at present; None if that is not known, or several."""
    value = _at(variable, "current").get("value")
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    if _at(variable).get("type") == "query" or not isinstance(value, str | int | float):
        return None
    return None if str(value).startswith("$") else str(value)


def _split(text: str) -> list[str]:
    """Return the parts between commas that are in no parentheses or quotes."""
    return [
        part for part in re.findall(r"""(?:[^,("']|\((?:[^()]|\([^()]*\))*\)|"[^"]*"|'[^']*')+""", text) if part.strip()
    ]


def _name_of(title: str, taken: Mapping[str, str]) -> str:
    """Return a name for a panel's query that none has yet."""
    plain = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:50]
    name = plain if re.match(r"[a-z]", plain) else f"panel-{plain}".rstrip("-")
    return next(one for one in (name, *(f"{name}-{n}" for n in range(2, 1_000))) if one not in taken)
