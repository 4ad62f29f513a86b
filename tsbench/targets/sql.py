# ruff: noqa: S608 - names are quoted, values are parameters
"""Schemas of SQL databases, and their query compiler: a table per measurement and one `tags` table.

The forms of the queries are TSBS's, completed: both bounds of every window, the key in the answer, and an order where
people expect one. Each database has a subclass for its dialect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from tsbench.encode import sql
from tsbench.errors import UserMistake
from tsbench.model import (
    Aggregated,
    Count,
    Kind,
    Latest,
    LatestBuckets,
    Query,
    Raw,
    Stored,
    Text,
    WriteMode,
    share_of,
)
from tsbench.targets.base import Payload, Schema, Statement, Unsupported, text_in
from tsbench.text import shortened
from tsbench.workload.own_text import arguments, filled

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tsbench.model import Aggregate, Codes, Measurement, Top, Window
    from tsbench.targets.base import Command

_FUNCTION: dict[Aggregate, str] = {"max": "max", "min": "min", "mean": "avg", "sum": "sum", "count": "count"}

_TIME = 'm."time"'
OWN_TAGS = "additional_tags"
"""Name of the column with a measurement's own tags as JSON."""


def table_names(measurements: Iterable[Measurement]) -> list[str]:
    """Return the names of the tables of measurements, with that of the tags."""
    return [*(measurement.name for measurement in measurements), "tags"]


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def names(of: Iterable[str]) -> str:
    """Return names as a list of quoted identifiers."""
    return ", ".join(map(quoted, of))


def column_names(m: Measurement, *, own_tags: bool | None = None) -> list[str]:
    """Return the columns of a measurement's table, that of its own tags by default only if it has such."""
    own = bool(m.own_tags) if own_tags is None else own_tags
    return ["time", *(["tags_id"] if m.tags else []), *m.field_names, *([OWN_TAGS] if own else [])]


@dataclass(frozen=True, slots=True)
class RefusedNames:
    """What names of tables and columns cannot contain in a product."""

    product: str
    table: re.Pattern[str]
    column: re.Pattern[str]


def expect_names(
    table: str,
    columns: Sequence[str],
    *,
    folds_case: bool,
    longest: int | None = None,
    refused: RefusedNames | None = None,
) -> None:
    """Raise UserMistake if a table cannot be made, before the database drops the old one, or cuts a name.

    A column would stand in it twice, a name has more than the `longest` number of bytes, or contains what is `refused`.
    """
    for what, name in [("table", table), *(("column", name) for name in columns)]:
        cure = f"rename the {'measurement' if what == 'table' else 'tag or field'}"
        if longest is not None and (size := len(name.encode())) > longest:
            text = f"'{shortened(name, 40)}' has {size} bytes, more than the {longest} of a {what}'s name here"
            raise UserMistake(f"{text}; {cure}")
        if refused is None:
            continue
        if odd := (refused.table if what == "table" else refused.column).search(name):
            raise UserMistake(f"no {what} of {refused.product} is called '{name}', with {odd[0]!r}; {cure}")
    seen: dict[str, str] = {}
    for name in columns:
        folded = name.casefold() if folds_case else name
        if folded in seen:
            same = f"'{name}' twice" if seen[folded] == name else f"'{name}' twice ('{seen[folded]}' is the same name)"
            raise UserMistake(f"the table '{table}' would have the column {same}; rename the tag or field")
        seen[folded] = name


def question(number: int) -> str:
    """Return the placeholder of a parameter (`?`)."""
    return "?"


@lru_cache(maxsize=32)  # 5,000 rows have 60,000 placeholders, which take longer to write than the values
def insert(m: Measurement, rows: int, verb: str = "INSERT", mark: Callable[[int], str] = question) -> str:
    """Return the statement that stores some rows, each value of which is a parameter."""
    columns = column_names(m)
    return f"{verb} INTO {quoted(m.name)} ({names(columns)}) VALUES {sql.values(len(columns), rows, mark)}"


# --- layouts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """The types of columns in a dialect: of a table of points, then of the table of tags."""

    time: str
    tags_id: str
    floats: str
    integers: str
    own_tags: str
    id: str
    tag: str
    booleans: str = "BOOLEAN"


class SqlSchema(Schema, ABC):
    """Base of SQL databases' schemas: a table per measurement, whose `tags_id` is a row of the table `tags`."""

    types: ClassVar[ColumnTypes]
    folds_case: ClassVar[bool] = True
    """True if names of columns that differ in case only are the same."""
    longest_name: ClassVar[int | None] = None
    """Most bytes of a name; None: any number."""
    refused_names: ClassVar[RefusedNames | None] = None
    max_parameters: ClassVar[int]
    """Largest number of parameters of a statement."""

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        of_tags = self.create_tags(tags) if tags else ()
        tables = [Statement(text) for m in measurements for text in self.create_table(m)]
        return [*self.drop(measurements), *of_tags, *tables]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        return [Statement(f"DROP TABLE IF EXISTS {quoted(name)}") for name in table_names(measurements)]

    @abstractmethod
    def create_table(self, m: Measurement) -> list[str]:
        """Return the statements for the table of one measurement and its indexes."""

    def columns(self, m: Measurement, *, own_tags: bool | None = None) -> str:
        """Return the columns of a measurement's table with their types; `own_tags` as for `column_names`."""
        of = self.types
        kinds = {Kind.FLOAT: of.floats, Kind.INT: of.integers, Kind.TEXT: of.tag, Kind.BOOL: of.booleans}
        types = {"time": self.types.time, "tags_id": self.types.tags_id, OWN_TAGS: self.types.own_tags}
        types |= {field.name: kinds[field.kind] for field in m.fields}  # of texts as of tags
        if m.name.casefold() == "tags":
            raise UserMistake(f"a measurement cannot be called '{m.name}', as the table of tags is; rename it")
        of_table = column_names(m, own_tags=own_tags)
        self._expect_names(m.name, of_table)
        return ", ".join(f"{quoted(name)} {types[name]}" for name in of_table)

    def _expect_names(self, table: str, columns: Sequence[str]) -> None:
        expect_names(
            table,
            columns,
            folds_case=self.folds_case,
            longest=self.longest_name,
            refused=self.refused_names,
        )

    def tag_table(self, tags: Mapping[str, Codes], more: str = "") -> Statement:
        """Return the statement that creates the table of tags; `more` follows its columns."""
        self._expect_names("tags", ["id", *tags])
        columns = ", ".join(f"{quoted(name)} {self.types.tag}" for name in tags)
        return Statement(f'CREATE TABLE "tags" ("id" {self.types.id}, {columns}{more})')

    def create_tags(self, tags: Mapping[str, Codes]) -> Iterator[Statement]:
        """Yield the statements that create the table of tags, with a row for each series."""
        yield self.tag_table(tags)
        yield from self.insert_tags(sql.tag_rows(tags), tags)

    def insert_tags(self, rows: Sequence[tuple[Any, ...]], tags: Mapping[str, Codes]) -> Iterator[Statement]:
        """Yield the statements that add rows of `sql.tag_rows` to the table of tags."""
        for piece in sql.chunks(rows, self.max_parameters):
            values = sql.values(len(piece[0]), len(piece), question)
            yield Statement(f'INSERT INTO "tags" VALUES {values}', sql.flat(piece))

    def extend(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes], first: int) -> Sequence[Command]:
        dropped = [Statement(f"DROP TABLE IF EXISTS {quoted(m.name)}") for m in measurements]
        tables = [Statement(text) for m in measurements for text in self.create_table(m)]
        return [*dropped, *self.insert_tags(sql.tag_rows(tags, first, key_may_lack=True), tags), *tables]

    def inserts(self, m: Measurement, rows: Sequence[tuple[Any, ...]], nbytes: int, verb: str = "INSERT") -> Payload:
        """Return rows as statements of as many parameters as one may have, for one transaction."""
        pieces = [
            Statement(insert(m, len(piece), verb), sql.flat(piece)) for piece in sql.chunks(rows, self.max_parameters)
        ]
        return Payload(WriteMode.MULTI, m.name, pieces[0].text, pieces, len(rows), nbytes)


def key_of(tags: Mapping[str, Codes]) -> str:
    """Return the column of the table of tags by which rows are looked up, which is the first."""
    return quoted(next(iter(tags)))


def tables_of(measurements: Sequence[Measurement]) -> list[str]:
    """Return the names of the tables that `create` makes; `tags` is one of them only if a measurement has tags."""
    return [m.name for m in measurements] + ["tags"] * any(m.tags for m in measurements)


# --- queries ----------------------------------------------------------------------------------------------------------


class SqlText(ABC):
    """Base of a dialect's compiler of one query. Parameters are collected in the order of their placeholders."""

    unique = '"time"'
    """The column by which the newest row of a series is looked up."""
    newest_first = 'x."time" DESC'
    """The order in which a series' rows `x` are looked up."""
    numbers_rows = False
    """Whether first and last values and percentiles come of numbered rows, for lack of aggregates."""
    tag_table = "t"
    """Alias of the table with the tags of a row: `t` joins `tags`; `m` if each row has its tags itself."""

    integer_as_float = "{}"
    """The expression for a column of integers whose average is a float."""

    languages: tuple[str, ...] = ("sql",)
    """Languages of users' own queries that it understands (see `own_text`), its own first."""

    def __init__(self) -> None:
        self.params: list[Any] = []

    def arg(self, value: Any) -> str:
        """Add a parameter and return its placeholder."""
        self.params.append(value)
        return self.mark(len(self.params))

    def mark(self, number: int) -> str:
        """Return the placeholder for a parameter by its number, from 1."""
        return "?"

    @abstractmethod
    def bound(self, time_ns: int) -> Any:
        """Return the parameter for a bound of a window."""

    @abstractmethod
    def number_of(self, column: str, bucket_ns: int) -> str:
        """Return the expression for the number of the bucket that contains a time, from the epoch on."""

    def window(self, window: Window, table: str = "m") -> str:
        """Return the condition that a row's time is in a window."""
        start = self.arg(self.bound(window.start_ns))
        return f'{table}."time" >= {start} AND {table}."time" < {self.arg(self.bound(window.end_ns))}'

    def _moment(self, time_ns: int) -> str:
        return self.arg(self.bound(time_ns))

    def _bucket_ns(self, column: str, bucket_ns: int) -> str:
        return f"({self.number_of(column, bucket_ns)}) * {bucket_ns}"

    @abstractmethod
    def bucket(self, column: str, bucket_ns: int) -> str:
        """Return the expression for the start of the bucket that contains a time."""

    def by_bucket(self, bucket_ns: int) -> str:
        """Return the clause that groups rows by their buckets, which are the answer's first column."""
        return "GROUP BY 1"

    def among(self, column: str, keys: Sequence[str]) -> str:
        """Return the condition that a column holds one of the keys."""
        return f"{column} IN ({', '.join(self.arg(key) for key in keys)})" if keys else "FALSE"

    def latest(self, query: Latest) -> str:
        """Return the text for the newest row of every series, one look-up per row of the tags; only with tags."""
        same = 'm."tags_id" = t."id" AND ' if self.unique == SqlText.unique else ""
        newest, where = self.look_up(query, f"x.{self.unique}")
        return (
            f'SELECT m."time", t.{quoted(query.measurement.key or "")}, {fields("m", query.fields)}\n'
            f'FROM "tags" t JOIN {quoted(query.measurement.name)} m ON {same}m.{self.unique} = (\n'
            f"{newest}\n)\n{where}"
        ).rstrip()

    def look_up(self, query: Latest, columns: str) -> tuple[str, str]:
        """Return the subquery for columns `x` of the newest row of the series `t`, and the condition for its keys."""
        m = query.measurement
        same = ['x."tags_id" = t."id"', *self.before(query, "x")]
        chosen = [] if query.keys is None else [self._of_tag(m.key or "", query.keys, "t")]
        chosen += [self._of_tag(one.tag, one.values, "t") for one in query.tagged]
        where = f"WHERE {' AND '.join(chosen)}" if chosen else ""
        newest = (
            f"  SELECT {columns} FROM {quoted(m.name)} x\n"
            f"  WHERE {' AND '.join(same)}\n"
            f"  ORDER BY {self.newest_first} LIMIT 1"
        )
        return newest, where

    def statement(self, query: Query) -> Statement:
        """Return the query's text and parameters."""
        match query:
            case Raw():
                text = self._rows(query)
            case Aggregated():
                text = self.aggregated(query)
            case Latest():
                text = self.latest(query) if query.measurement.key else self._newest(query)
            case LatestBuckets():
                text = self._latest_buckets(query)
            case Text():
                values = arguments(query, self._moment, self.arg)
                text = filled(text_in(query, *self.languages), values, self._bucket_ns)
            case Count():
                text = f"SELECT count(*) AS points FROM {quoted(query.measurement.name)}"
            case Stored():
                is_apart = bool(query.measurement.tags) and self.tag_table == "t"
                return Statement(self._stored(query), tuple(self.params), has_tags_apart=is_apart)
        return Statement(text, tuple(self.params))

    def aggregate(self, function: str, column: str, kind: Kind) -> str:
        """Return the expression for an aggregate of a field's column; an average has the precision of floats."""
        as_float = function == "avg" and kind is Kind.INT
        return f"{function}({self.integer_as_float.format(column) if as_float else column})"

    def percentile(self, share: float, column: str) -> str:
        """Return the expression for a percentile of a column, as `share_of` says."""
        raise Unsupported("it has no interpolated percentile (percentile_cont) as an aggregate")

    def end(self, column: str, *, newest: bool) -> str:
        """Return the expression for the value of the newest row that has one, or of the oldest."""
        raise Unsupported("it has no aggregate that takes the first or last value in time")

    def _value(self, how: Aggregate, column: str, kind: Kind) -> str:
        if how in _FUNCTION:
            return self.aggregate(_FUNCTION[how], column, kind)
        share = share_of(how)
        return self.end(column, newest=how == "last") if share is None else self.percentile(share, column)

    def any_series(self, measurement: Measurement) -> list[str]:
        """Return a condition that every row fulfils and by which rows are looked up, as a list of none or one."""
        return []

    def chosen(self, query: Raw | Aggregated | Latest, *, tag_table: str = "") -> list[str]:
        """Return the conditions on a row's series, as a list.

        `tag_table` is the alias of the tags if they are joined already; otherwise a subquery looks them up.
        """
        return [
            *self.of_keys(query.measurement, query.keys, tag_table=tag_table),
            *(self._of_tag(one.tag, one.values, tag_table) for one in query.tagged),
        ]

    def of_keys(self, measurement: Measurement, keys: Sequence[str] | None, *, tag_table: str = "") -> list[str]:
        """Return the condition that a row's series is one of the keys, as a list of none or one."""
        if keys is None or measurement.key is None:
            return []
        return [self._of_tag(measurement.key, keys, tag_table)]

    def _of_tag(self, tag: str, values: Sequence[str], tag_table: str) -> str:
        """Return the condition that a tag of a row's series has one of the values."""
        if tag_table := "m" if self.tag_table == "m" else tag_table:
            return self.among(f"{tag_table}.{quoted(tag)}", values)
        return f'm."tags_id" IN (SELECT "id" FROM "tags" WHERE {self.among(quoted(tag), values)})'

    def _conditions(self, query: Raw | Aggregated) -> list[str]:
        """Return the conditions on fields."""
        return [f"m.{quoted(one.field)} {one.comparison} {self.arg(one.operand)}" for one in query.where]

    def _rows(self, query: Raw) -> str:
        m = query.measurement
        where = [self.window(query.window), *self._conditions(query)]
        where += self.chosen(query, tag_table=self.tag_table)
        if query.may_be_void:
            where.append(f"({' OR '.join(f'm.{quoted(name)} IS NOT NULL' for name in query.fields)})")
        key = f", {self.tag_table}.{quoted(m.key)}" if m.key else ""
        join = ' JOIN "tags" t ON t."id" = m."tags_id"' if m.key and self.tag_table == "t" else ""
        order = "" if query.top is None else f"\n{_first(query.top, _TIME)}"
        return (
            f'SELECT m."time"{key}, {fields("m", query.fields)}\n'
            f"FROM {quoted(m.name)} m{join}\n"
            f"WHERE {' AND '.join(where)}{order}"
        )

    def aggregated(self, query: Aggregated) -> str:
        """Return the text for aggregates; by the key alone they are those of rows of one `tags_id`."""
        by = [f"{self.tag_table}.{quoted(tag)}" for tag in query.by]
        if self.numbers_rows and any(how not in _FUNCTION for how, _ in query.values):
            return self._of_numbered_rows(query, by)
        if self.tag_table == "t" and query.by == (query.measurement.key,) and query.bucket_ns is not None:
            return self._by_series(query, query.bucket_ns)
        source, where = self._source(query)
        time = [] if query.bucket_ns is None else [f'{self.bucket(_TIME, query.bucket_ns)} AS "time"']
        lines = [
            f"SELECT {', '.join([*time, *by, self.aggregates(query)])}",
            source,
            where,
        ]
        return "\n".join([*lines, *self._by_places(query)])

    def _source(self, query: Aggregated) -> tuple[str, str]:
        """Return the clauses for the rows that are aggregated, with their tags if these are grouped by."""
        joined = self.tag_table if query.by else ""
        where = [self.window(query.window), *self.chosen(query, tag_table=joined), *self._conditions(query)]
        join = ' JOIN "tags" t ON t."id" = m."tags_id"' if joined == "t" else ""
        return f"FROM {quoted(query.measurement.name)} m{join}", f"WHERE {' AND '.join(where)}"

    def _by_places(self, query: Aggregated) -> list[str]:
        """Return the clauses that group rows by the answer's first columns and order the answer, as a list."""
        groups = (query.bucket_ns is not None) + len(query.by)
        order = "ORDER BY " + ", ".join(map(str, range(1, 1 + groups)))
        if query.top is not None:
            place = groups + 1 + query.value_names.index(query.top.column)
            order = _first(query.top, str(place))
        return [" ".join([*self.grouping(query), order])] if groups else []

    def _of_numbered_rows(self, query: Aggregated, by: Sequence[str]) -> str:
        """Return the text for aggregates: a first or last value is that of row number 1 of its group.

        A percentile is the sum of the two rows nearest to its place, each weighed by how near it is.
        """
        kinds = {field.name: field.kind for field in query.measurement.fields}
        source, where = self._source(query)
        groups = [*([] if query.bucket_ns is None else [self.bucket(_TIME, query.bucket_ns)]), *by]
        names = [*([] if query.bucket_ns is None else ["time"]), *query.by]
        parts = f"PARTITION BY {', '.join(groups)} " if groups else ""
        rows = [f"{group} AS {quoted(name)}" for group, name in zip(groups, names, strict=True)]
        rows += [f"m.{quoted(name)}" for name in query.fields]
        columns = [f"m.{quoted(name)}" for name in names]
        numbers: dict[str, str] = {}

        def numbered(window: str) -> str:
            return f"m.{numbers.setdefault(window, quoted(f'number {len(numbers)}'))}"

        for (how, name), alias in zip(query.values, query.value_names, strict=True):
            value, share = f"m.{quoted(name)}", share_of(how)
            if how in _FUNCTION:
                value = self._value(how, value, kinds[name])
            else:
                order = value if share is not None else f"{_TIME}{' DESC' * (how == 'last')}"
                row = numbered(f"row_number() OVER ({parts}ORDER BY {value} IS NULL, {order})")
                if share is None:
                    value = f"max(CASE WHEN {row} = 1 THEN {value} END)"
                else:
                    away = f"abs({row} - 1 - ({numbered(f'count({value}) OVER ({parts.rstrip()})')} - 1) * {share})"
                    value = f"sum(CASE WHEN {away} < 1 THEN {value} * (1e0 - {away}) END)"
            columns.append(f"{value} AS {quoted(alias)}")
        rows += [f"{window} AS {number}" for window, number in numbers.items()]
        inner = f"  SELECT {', '.join(rows)}\n  {source}\n  {where}"
        return "\n".join([f"SELECT {', '.join(columns)}\nFROM (\n{inner}\n) m", *self._by_places(query)])

    def grouping(self, query: Aggregated) -> list[str]:
        """Return the clause that groups rows by their buckets and tags, the answer's first columns."""
        if query.bucket_ns is not None and not query.by:
            return [self.by_bucket(query.bucket_ns)]
        places = (query.bucket_ns is not None) + len(query.by)
        return [f"GROUP BY {', '.join(map(str, range(1, 1 + places)))}"]

    def _by_series(self, query: Aggregated, bucket_ns: int) -> str:
        """Return the text for aggregates by bucket and series."""
        m = query.measurement
        where = [self.window(query.window), *self.chosen(query), *self._conditions(query)]
        return (
            f'SELECT b."time", t.{quoted(m.key or "")}, {fields("b", query.value_names)}\n'
            "FROM (\n"
            f'  SELECT {self.bucket(_TIME, bucket_ns)} AS "time", m."tags_id", {self.aggregates(query)}\n'
            f"  FROM {quoted(m.name)} m\n"
            f"  WHERE {' AND '.join(where)}\n"
            "  GROUP BY 1, 2\n"
            ') b JOIN "tags" t ON t."id" = b."tags_id"\n'
            "ORDER BY 1, 2"
        )

    def _newest(self, query: Latest) -> str:
        m = query.measurement
        before = "".join(f"\nWHERE {condition}" for condition in self.before(query))
        return (
            f'SELECT m."time", {fields("m", query.fields)}\n'
            f"FROM {quoted(m.name)} m{before}\n"
            'ORDER BY m."time" DESC LIMIT 1'
        )

    def _latest_buckets(self, query: LatestBuckets) -> str:
        return (
            f'SELECT {self.bucket(_TIME, query.bucket_ns)} AS "time", {self.aggregates(query)}\n'
            f"FROM {quoted(query.measurement.name)} m\n"
            f"WHERE {' AND '.join(self.before(query))}\n"
            f"{self.by_bucket(query.bucket_ns)} ORDER BY 1 DESC LIMIT {int(query.limit)}"
        )

    def before(self, query: Latest | LatestBuckets, table: str = "m") -> list[str]:
        """Return the condition that a row's time is before a query's moment, as a list of none or one."""
        return [] if query.before_ns is None else [f'{table}."time" < {self.arg(self.bound(query.before_ns))}']

    def _stored(self, query: Stored) -> str:
        """Return the text for all columns of points, whoever made them."""
        where = []
        if query.start_ns is not None:
            where.append(f"{_TIME} >= {self.arg(self.bound(query.start_ns))}")
        if query.end_ns is not None:
            before = f"{_TIME} < {self.arg(self.bound(query.end_ns))}"
            where.append(before if where else f"({before} OR {_TIME} IS NULL)")
        where += self.any_series(query.measurement) if where else []
        lines = ["SELECT m.*", f"FROM {quoted(query.measurement.name)} m"]
        lines += [f"WHERE {' AND '.join(where)}"] if where else []
        lines += [f"LIMIT {int(query.limit)}"] if query.limit is not None else []
        return "\n".join(lines)

    def aggregates(self, query: Aggregated | LatestBuckets) -> str:
        """Return the columns with the aggregates of a query's fields."""
        kinds = {field.name: field.kind for field in query.measurement.fields}
        return ", ".join(
            f"{self._value(how, f'm.{quoted(name)}', kinds[name])} AS {quoted(alias)}"
            for (how, name), alias in zip(query.values, query.value_names, strict=True)
        )


def _first(top: Top, column: str) -> str:
    """Return the clauses for the first rows in the order of a column."""
    return f"ORDER BY {column} {'ASC' if top.lowest else 'DESC'} LIMIT {top.limit}"


def fields(table: str, of: Iterable[str]) -> str:
    """Return the columns of one table, in order."""
    return ", ".join(f"{table}.{quoted(name)}" for name in of)
