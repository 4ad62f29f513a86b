"""[[query]] of use-case files and scenarios: kinds of query by parts or in a user's own words, as pydantic models."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import Field, field_validator, model_validator

from tsbench.model import AGGREGATES, PERCENTILE, REDUCTIONS, Condition, Kind, Tagged, Top, names_of_values
from tsbench.scenario.types import DurationNs, Part
from tsbench.targets.registry import TARGETS, unknown
from tsbench.text import suggestion
from tsbench.workload import own_text, queries
from tsbench.workload.layout import QueryKind
from tsbench.workload.world import layouts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tsbench.model import Aggregate, Comparator, Query
    from tsbench.model import Field as Column
    from tsbench.workload.layout import Layout, Pick, UseCase
    from tsbench.workload.world import WorldSpec

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")
TAKEN = frozenset({"time", "id", "tags", "tags_id", "_id", "timestamp"})
_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|>|<|=)\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*", re.IGNORECASE)
_TAG_IS = re.compile(r"\s*(\w+)\s*=\s*'([^']+)'((?:\s+or\s+'[^']+')*)\s*")
_FLAG_IS = re.compile(r"\s*(\w+)\s*=\s*(true|false)\s*")
_SELECTED = re.compile(rf"\s*({'|'.join(AGGREGATES)}|{PERCENTILE})\((\w+)\)\s*")
_BY_COLUMN = re.compile(r"\s*(\w+)\s+(asc|desc)\s*")
_ORDER = re.compile(r"\s*(\w+)\((\w+)\)(?:\s+(asc|desc))?\s*")
_NO_BOUND = "has no :{}, and the right answer is of a window's points; say time >= :start AND time < :end"
_COLUMN = re.compile(r"\w{1,60}:(time|text|int|float|bool)")


class KnownPart(Part):
    """[[query.known]]: a difference from the right answer that is meant, on one database."""

    target: str
    """The database, as `tsbench list targets` has it."""
    reason: Annotated[str, Field(min_length=1, max_length=500)]
    """Why its answers differ, for readers of the report."""

    @field_validator("target")
    @classmethod
    def _exists(cls, target: str) -> str:
        if target not in TARGETS:
            raise ValueError(unknown(target))
        return target


class QueryPart(Part):
    """[[query]]: one kind of query, whose windows and series are drawn anew for each."""

    name: str
    """What an op asks for: letters, digits, hyphens and underscores."""
    about: str = ""
    """What it asks for, in words."""
    of: str | Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=1_000)] | None = None
    """The measurement, or several, of which queries take one in turn. Default: the first one."""
    select: Annotated[tuple[str, ...], Field(strict=False, max_length=1_000)] = ()
    """Fields (`temp`), or aggregates (`max(temp)`): max, min, mean, sum, count, first, last, p1 to p99 (percentile)."""
    where: Annotated[tuple[str, ...], Field(strict=False, max_length=10)] = ()
    """Conditions that all hold: `temp > 80` (or >= < <= =) or `state = 'idle'` for a field, `site = 's-3' or 's-4'`."""
    by: Annotated[tuple[str, ...], Field(strict=False, max_length=20)] = ()
    """Tags, for one row of each of their values in place of one of all series together."""
    bucket: Annotated[DurationNs, Field(gt=0)] | None = None
    """Length of the time buckets of aggregates. Default: the whole window is one."""
    window: Annotated[DurationNs, Field(gt=0)] | None = None
    """Length of the time range. Default: one interval."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Length of the time range as a share of the loaded one, in place of `window`."""
    series: Annotated[int, Field(ge=1, le=1_000)] | None = None
    """How many series are drawn. Default: all."""
    draw: Annotated[dict[str, Annotated[int, Field(ge=1, le=1_000)]], Field(max_length=10)] = Field(
        default_factory=dict
    )
    """Other tags, each with the number of its values that are drawn: with `{ site = 1 }` each asks for another site."""
    popularity: Literal["uniform", "zipf"] = "uniform"
    """How these are drawn: all alike, or few of them often, the first ones most (the r-th with a chance like 1/r)."""
    newest: bool = False
    """The newest row of each series; with an aggregate, the newest `limit` buckets before a moment."""
    order: str | None = None
    """`time desc`: the newest rows of the window; of aggregates by tags the highest: `max(temp)` or `max(temp) asc`;
    of texts by a column of the answer: `low asc`."""
    limit: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Number of the newest buckets, or of the first rows by `order`."""
    text: dict[own_text.Language, Annotated[str, Field(min_length=1, max_length=100_000)]] = Field(default_factory=dict)
    """In place of `select`: the query in databases' languages, with `:start`, `:end` and the tags that are drawn."""
    answer: Annotated[tuple[str, ...], Field(strict=False, max_length=1_000)] = ()
    """The columns that each text returns, as `NAME:KIND`; a kind is time, text, int, float or bool."""
    gold: Annotated[str, Field(max_length=100_000)] = ""
    """DuckDB's SQL for the right answer, from a table of the measurement: time, tags, fields of the window's points."""
    halves: dict[str, Literal["sum", "min", "max"]] = Field(default_factory=dict)
    """Without `gold`: columns whose values follow from those about the halves of the window, and how: `n = "sum"`."""
    known: Annotated[tuple[KnownPart, ...], Field(strict=False, max_length=100)] = ()
    """Databases whose answers differ, each with the reason; they are counted apart from wrong ones."""

    @model_validator(mode="after")
    def _consistent(self) -> QueryPart:
        if self.popularity == "zipf" and self.series is None and not self.draw:
            raise ValueError("popularity: needs series or draw, the number of what is drawn")
        if self.window is not None and self.share is not None:
            raise ValueError("share: needs no window; take one of the two out")
        if bool(self.select) == bool(self.text):
            raise ValueError("select: is missing" if not self.text else "select: a query has either select or text")
        if len({one.target for one in self.known}) < len(self.known):
            raise ValueError("known: a target stands twice; say all reasons in one")
        if self.text and self.known and not self.gold:
            raise ValueError("known: needs gold, from which the answers differ")
        if self.text:
            self._expect_own_words()
        elif of_text := [key for key in ("answer", "gold", "halves") if getattr(self, key)]:
            raise ValueError(f"{of_text[0]}: belongs to text")
        else:
            self._expect_parts()
        return self

    def _expect_own_words(self) -> None:
        for key in ("where", "by", "bucket", "newest"):
            if getattr(self, key):
                raise ValueError(f"{key}: belongs to select; a text says it itself")
        if self.halves and (self.gold or self.order):
            why = "gold says more" if self.gold else "the first rows of a window are not those of its halves"
            raise ValueError(f"halves: {why}; take one of the two out")
        if not self.answer:
            raise ValueError(
                'answer: is missing; say what the text returns, such as answer = ["time:time", "site:text"]'
            )
        for column in self.answer:
            if not _COLUMN.fullmatch(column):
                raise ValueError(f"answer: '{column}' is not NAME:KIND, with the kind time, text, int, float or bool")
            if column.startswith("time:") and column != "time:time":
                raise ValueError(f"answer: '{column}' has a name that stands for a time; rename it")
        kinds = dict(column.split(":") for column in self.answer)
        for name in self.halves:
            if kinds.get(name) not in {"int", "float"}:
                raise ValueError(f"halves: '{name}' is no column of numbers; {suggestion(name, kinds)}")
        try:
            own_text.expect_time_names(self.text, self.answer)
        except ValueError as error:
            raise ValueError(f"answer: {error}") from None
        if len({column.split(":")[0] for column in self.answer}) < len(self.answer):
            raise ValueError("answer: a column stands twice")
        self._expect_first_rows(kinds)

    def _expect_first_rows(self, columns: Iterable[str]) -> None:
        if self.order is None and self.limit is None:
            return
        if self.order is None or self.limit is None:
            raise ValueError(f"{'order' if self.limit else 'limit'}: is missing; the first rows of a text have both")
        m = _BY_COLUMN.fullmatch(self.order)
        if m is None or m[1] not in columns:
            example = self.answer[0].split(":")[0]
            raise ValueError(f"order: '{self.order}' is no column of answer with asc or desc, such as '{example} asc'")
        if own_text.is_limited(self.gold):
            raise ValueError("gold: take its LIMIT out; of all rows the answer may have any that tie at the limit")

    def _expect_parts(self) -> None:
        matches = [_SELECTED.fullmatch(text) is not None for text in self.select]
        is_aggregate = all(matches)
        if any(matches) and not is_aggregate:
            raise ValueError("select: needs fields alone, or aggregates alone, such as max(temp)")
        if not is_aggregate and (self.bucket is not None or self.by):
            raise ValueError(f"{'bucket' if self.bucket else 'by'}: belongs to aggregates, such as max(temp)")
        self._expect_order()
        if (self.limit is not None) != ((self.newest and is_aggregate) or self.order is not None):
            raise ValueError("limit: belongs to order, and to the newest buckets (newest = true with an aggregate)")
        if self.newest:
            self._expect_newest(is_aggregate=is_aggregate)

    def _expect_order(self) -> None:
        if self.order is None:
            return
        if not self.values:
            m = _BY_COLUMN.fullmatch(self.order)
            if m is None or m[1] != "time" or self.newest:
                raise ValueError("order: of fields it is 'time desc', the newest rows of the window, or 'time asc'")
            return
        m = _ORDER.fullmatch(self.order)
        if m is None or (m[1], m[2]) not in self.values:
            known = ", ".join(f"{how}({name})" for how, name in self.values)
            raise ValueError(
                f"order: '{self.order}' is no aggregate, perhaps with asc or desc; take one of select: {known}"
            )
        if m[1] not in REDUCTIONS:  # of others gold judges the answer, and does not know all rows
            raise ValueError("order: is by max, min, mean, sum or count")
        if not self.by or self.bucket is not None or self.newest:
            raise ValueError("order: belongs to aggregates by tags (by = ['site']) of the whole window, without bucket")

    def _expect_newest(self, *, is_aggregate: bool) -> None:
        if not is_aggregate:
            if self.window is not None or self.share is not None:
                raise ValueError("newest: the newest row of a series has no window; take it out")
            return
        if self.by or self.series is not None or self.draw or self.where:
            raise ValueError("newest: buckets are of all series together; take by, series, draw and where out")
        if self.bucket is None or len({how for how, _ in self.values}) > 1:
            raise ValueError("newest: buckets need bucket = '5m', and the same aggregate of each field")
        if self.values[0][0] not in REDUCTIONS:
            raise ValueError("newest: buckets are of max, min, mean, sum or count; give others a window")

    @property
    def values(self) -> tuple[tuple[Aggregate, str], ...]:
        """Pairs of an aggregate and a field; empty if fields are selected."""
        matches = [m for text in self.select if (m := _SELECTED.fullmatch(text))]
        return tuple((cast("Aggregate", m[1]), m[2]) for m in matches)

    @property
    def measurements(self) -> tuple[str, ...]:
        """Names of the measurements; none for the first one."""
        return (self.of,) if isinstance(self.of, str) else self.of or ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that are selected or aggregated."""
        return tuple(field for _, field in self.values) or tuple(text.strip() for text in self.select)

    def kind(self, layouts: Sequence[Layout]) -> QueryKind:
        """Return the kind of query, about one of these measurements, the first one by default."""
        newest_rows = self.newest and not self.values
        chosen = [one for one in layouts if one.name in self.measurements] or [*layouts[:1]]
        fields = {field.name: field for field in chosen[0].fields}
        where = [_condition(text, fields) for text in self.where]
        return QueryKind(
            self.about or self.name,
            self._build(tuple(one for one in where if isinstance(one, Condition))),
            0 if newest_rows else self.window or 0,
            self.share or 0.0,
            self.series or 0,
            tuple(dict.fromkeys(self.fields)),
            self.measurements or (chosen[0].name,),
            tagged=tuple(one for one in where if isinstance(one, Tagged)),
            draws=tuple(self.draw.items()),
            zipf=self.popularity == "zipf",
        )

    def _build(self, where: tuple[Condition, ...]) -> Callable[[Pick], Query]:
        if self.text:
            answer = tuple((name, kind) for name, kind in (column.split(":") for column in self.answer))
            return partial(
                queries.own_text,
                answer=answer,
                texts=tuple(self.text.items()),
                gold=self.gold,
                halves=tuple(self.halves.items()),
                top=self._top(),
            )
        if not self.values:
            return queries.newest_rows if self.newest else partial(queries.rows, where=where, top=self._top())
        if self.newest:
            how: dict[str, Any] = {"aggregate": self.values[0][0], "bucket_ns": self.bucket, "limit": self.limit}
            return partial(queries.newest_buckets, **how)
        parts: dict[str, Any] = {"values": self.values, "bucket_ns": self.bucket, "by": self.by, "where": where}
        return partial(queries.aggregates, **parts, top=self._top())

    def _top(self) -> Top | None:
        if self.order is None or self.limit is None:
            return None
        if by_column := _BY_COLUMN.fullmatch(self.order):  # of rows by time, or of a text
            return Top(by_column[1], self.limit, lowest=by_column[2] == "asc")
        m = _ORDER.fullmatch(self.order)
        if m is None:
            return None
        place = [*self.values].index((cast("Aggregate", m[1]), m[2]))
        return Top(names_of_values(self.values)[place], self.limit, lowest=m[3] == "asc")


def _condition(text: str, fields: Mapping[str, Column]) -> Condition | Tagged:
    """Return a condition on one of the fields, or on a tag.

    Raises
    ------
    ValueError
        If it is none, or one that its field cannot have.
    """
    if m := _CONDITION.fullmatch(text):
        if m[1] in fields and fields[m[1]].labels:
            wanted = "true" if fields[m[1]].kind is Kind.BOOL else f"'{fields[m[1]].texts[0]}'"
            raise ValueError(f"'{m[1]}' holds no numbers; say {m[1]} = {wanted}")
        return Condition(m[1], cast("Comparator", m[2]), float(m[3]))
    if m := _FLAG_IS.fullmatch(text):
        if m[1] in fields and fields[m[1]].kind is not Kind.BOOL:
            raise ValueError(f"'{m[1]}' is never {m[2]}; only a field with of = [true, false] is")
        return Condition(m[1], "=", float(m[2] == "true"), m[2] == "true")
    if (m := _TAG_IS.fullmatch(text)) is None:
        known = "FIELD > NUMBER (or >= < <= =), FIELD = true, FIELD = 'TEXT' nor TAG = 'TEXT'"
        raise ValueError(f"'{text}' is neither {known}")
    values = (m[2], *re.findall("'([^']+)'", m[3]))
    if m[1] not in fields:
        return Tagged(m[1], values)
    if len(values) > 1:
        raise ValueError(f"'{m[1]}' is a field, which is compared with one text")
    texts = fields[m[1]].texts
    if values[0] not in texts:
        raise ValueError(
            f"'{m[1]}' is never '{values[0]}'; {suggestion(values[0], texts) if texts else 'it holds no texts'}"
        )
    return Condition(m[1], "=", float(texts.index(values[0])), values[0])


def known_differences(asked: Iterable[QueryPart], target: str) -> dict[str, str]:
    """Return the kinds of query whose answers differ on a database as is known, each with the reason."""
    return {part.name: one.reason for part in asked for one in part.known if one.target == target}


def query_kinds(asked: Sequence[QueryPart], layouts: Sequence[Layout]) -> dict[str, QueryKind]:
    """Return kinds of query by their names, about these measurements."""
    return {query.name: query.kind(layouts) for query in asked}


def with_queries(spec: WorldSpec, asked: Sequence[QueryPart]) -> WorldSpec:
    """Return a world that knows further kinds of query beside those of its use case."""
    case = spec.case
    if not asked or case is None or not (layouts := layouts_of(spec)):
        return spec
    return replace(spec, case=replace(case, queries={**case.queries, **query_kinds(asked, layouts)}))


def tags_of(case: UseCase | None) -> dict[str, Sequence[str] | None]:
    """Return the tags of a use case, the key first, each with its values if it has a list of them."""
    return {tag.name: tag.choices or None for tag in case.tags} if case else {}


def expect_answerable(
    asked: Sequence[QueryPart],
    layouts: Sequence[Layout],
    tags: Mapping[str, Sequence[str] | None],
    *,
    taken: Collection[str],
) -> None:
    """Verify that queries are about fields of these measurements, and about series with these tags.

    `tags` has the key first, and the values of those tags that have a list of them; names that are `taken` are those of
    other queries.

    Raises
    ------
    ValueError
        If one is not, or two have one name, or one has a name that is taken.
    """
    expect_names("query", [query.name for query in asked], kinds=True)
    measurements = {layout.name: {field.name: field for field in layout.fields} for layout in layouts}
    for query in asked:
        place = f"query.{query.name}"
        if query.name in taken:
            raise ValueError(f"{place}: is the name of a built-in query; take another one")
        if query.series and not tags:
            raise ValueError(f"{place}.series: there is a single series, without tags; take it out")
        for of in query.measurements or [*measurements][:1]:
            if of not in measurements:
                raise ValueError(f"{place}.of: there is no measurement '{of}'; {suggestion(of, measurements)}")
            _expect_asked(place, query, of, measurements[of], tags)


def _expect_asked(
    place: str, query: QueryPart, of: str, fields: Mapping[str, Column], tags: Mapping[str, Sequence[str] | None]
) -> None:
    """Verify that what a query says about the fields of one of its measurements, and about tags, can be answered."""
    try:
        where = [_condition(text, fields) for text in query.where]
    except ValueError as error:
        raise ValueError(f"{place}.where: {error}") from None
    _expect_tags(place, query, tags, [one for one in where if isinstance(one, Tagged)])
    if query.text:
        _expect_reads(place, query, next(iter(tags), ""))
        return
    conditions = [one for one in where if isinstance(one, Condition)]
    if conditions and query.newest:
        raise ValueError(f"{place}.where: the newest row of a series is chosen by tags alone, not by its fields")
    for key, name in [*(("select", name) for name in query.fields), *(("where", one.field) for one in conditions)]:
        if name not in fields:
            raise ValueError(f"{place}.{key}: '{of}' has no field '{name}'; {suggestion(name, fields)}")
    _expect_values(place, query, fields)


def _expect_values(place: str, query: QueryPart, fields: Mapping[str, Column]) -> None:
    """Verify that what a query selects of fields, of which points may lack some, has one answer."""
    for how, name in query.values:
        if how != "count" and fields[name].labels:
            raise ValueError(f"{place}.select: '{name}' holds no numbers, of which there would be a {how}; count them")
    ordered = _ORDER.fullmatch(query.order) if query.order and query.values else None
    if ordered is not None and fields[ordered[2]].nullable:
        raise ValueError(f"{place}.order: points lack '{ordered[2]}', and databases differ on the place of none")
    lacking = [name for name in query.fields if fields[name].nullable]
    if lacking and query.values and query.newest:
        raise ValueError(f"{place}.newest: points lack '{lacking[0]}', and databases differ on buckets of none")
    if len(lacking) == len(query.fields) and query.newest:
        said = f"points lack '{lacking[0]}', and databases differ on rows without any value"
        raise ValueError(f"{place}.select: {said}; add a field that each point has")
    if len({*query.select}) < len(query.select) or len({*query.values}) < len(query.values):
        raise ValueError(f"{place}.select: {'an aggregate' if query.values else 'a field'} stands twice")
    columns = [f"{how}_{name}" for how, name in query.values] if len({*query.fields}) < len(query.fields) else []
    if taken := {*columns} & {*query.by}:
        raise ValueError(f"{place}.select: the answer would have two columns '{taken.pop()}'; rename the tag")


def _expect_reads(place: str, query: QueryPart, key: str) -> None:
    """Verify that a query's texts only read, and have no parameter that nobody knows."""
    known = ["start", "end", *([key] if query.series else []), *query.draw]
    at_window = query.gold or query.halves
    for language, text in (*query.text.items(), *([("gold", query.gold)] if query.gold else [])):
        at = language if language == "gold" else f"text.{language}"
        try:
            own_text.expect_read(language, text, known)
        except ValueError as error:
            raise ValueError(f"{place}.{at}: {error}") from None
        bound = own_text.missing_bound(language, text) if at_window and language != "gold" else ""
        if bound:
            raise ValueError(f"{place}.{at}: {_NO_BOUND.format(bound)}")
    asked = {name for text in query.text.values() for name in own_text.parameters(text)} & {*known[2:]}
    if query.gold and (missing := sorted(asked.difference(own_text.parameters(query.gold)))):
        raise ValueError(f"{place}.gold: has no :{missing[0]}, by which its text chooses rows")


def _expect_tags(
    place: str, query: QueryPart, tags: Mapping[str, Sequence[str] | None], chosen: Sequence[Tagged]
) -> None:
    """Verify that what a query says about tags can be answered; `chosen` are its conditions on them."""
    for key, named in (("by", query.by), ("where", [one.tag for one in chosen]), ("draw", [*query.draw])):
        for tag in named:
            if tag not in tags:
                raise ValueError(f"{place}.{key}: there is no tag '{tag}'; {suggestion(tag, tags)}")
        if len({*named}) < len(named):
            raise ValueError(f"{place}.{key}: a tag stands twice")
    for tag in {*[*tags][:1]} & query.draw.keys():
        raise ValueError(f"{place}.draw: '{tag}' is the key; say series = {query.draw[tag]}")
    for one in chosen:
        for value in one.values:
            if (known := tags[one.tag]) is not None and value not in known:
                raise ValueError(f"{place}.where: '{one.tag}' is never '{value}'; {suggestion(value, known)}")
    for tag, count in query.draw.items():
        if (known := tags[tag]) is not None and count > len(known):
            raise ValueError(f"{place}.draw: '{tag}' has {len(known)} values, not {count}")


def expect_names(place: str, names: Sequence[str], *, kinds: bool = False) -> None:
    """Verify that each name is one that every database has room for, and that no two differ in case only."""
    known: set[str] = set()
    for name in names:
        plain = name.replace("-", "_") if kinds else name
        if not NAME.fullmatch(plain):
            wanted = "at most 60 letters, digits and underscores, the first one a letter"
            raise ValueError(f"{place}: '{name}' is no name; take {wanted}")
        if not kinds and name.lower() in TAKEN:
            raise ValueError(f"{place}: '{name}' is a name that databases use themselves; take another one")
        if name.lower() in known:
            raise ValueError(f"{place}: '{name}' stands twice (capitals do not count)")
        known.add(name.lower())
