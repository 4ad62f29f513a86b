"""Values of recorded columns: numbers, and the codes of texts and booleans, as points have them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl

from tsbench.encode.file_letters import EXACT
from tsbench.errors import UserMistake
from tsbench.model import Field, Kind
from tsbench.scenario import recorded_files
from tsbench.scenario.own_data import MOST_TEXTS
from tsbench.text import CONTROL, printable_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tsbench.scenario.own_data import FieldColumn, RecordingPart

Place: TypeAlias = "Callable[[int], str]"
"""Returns the place of a row, or of a point, by its number: the file, and what finds it in that."""


class WidenedError(Exception):
    """A column has a value that it has no room for: it is read once more, as `kind`, or with room for none."""

    def __init__(self, name: str, kind: Kind | None) -> None:
        super().__init__(name)
        self.name = name
        self.kind = kind


class TextCodes:
    """Different texts, numbered in the order in which they come."""

    def __init__(self) -> None:
        self._known = pl.DataFrame(schema={"text": pl.String, "code": pl.Int64})

    def __len__(self) -> int:
        return len(self._known)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts by their numbers."""
        return tuple(self._known["text"].to_list())

    def of(self, column: pl.Series, name: str, where: Place, *, may_lack: bool = False) -> pl.Series:
        """Return the numbers of texts, null for null; a text may be empty where it `may_lack`.

        Raises
        ------
        UserMistake
            If a new one cannot be stored by every database.
        """
        codes = self._codes(column)
        if codes.null_count() > column.null_count():
            new = column.filter(codes.is_null() & column.is_not_null()).unique(maintain_order=True)
            for text in new.to_list():
                if (text or not may_lack) and (why := _unfit(text)):
                    at = int((column == text).arg_true()[0])
                    raise UserMistake(f"{where(at)}: {name}: the text '{printable_line(text[:80])}' {why}")
            numbers = pl.Series("code", range(len(self), len(self) + len(new)), pl.Int64)
            self._known = self._known.vstack(pl.DataFrame({"text": new, "code": numbers}))
            codes = self._codes(column)
        return codes

    def _codes(self, column: pl.Series) -> pl.Series:
        asked = column.alias("text").to_frame()
        return asked.join(self._known, on="text", how="left", maintain_order="left")["code"]


@dataclass
class ValueColumn:
    """A field, and what its column has turned out to have."""

    name: str
    part: FieldColumn
    kind: Kind | None
    merges: bool = False
    """Whether rows of one time and series are parts of one point, so that each may lack what another one has."""
    lacks: bool = False
    codes: TextCodes = field(default_factory=TextCodes)

    def field(self) -> Field:
        """Return the field that the values so far make."""
        return Field(self.name, self.kind or Kind.FLOAT, self.part.unit, self.lacks, self.codes.texts)

    def values(self, given: pl.Series, where: Place) -> pl.Series:
        """Return the values of a column, null where a row has none, as they are kept: see `whole`.

        Raises
        ------
        UserMistake
            If a value is not of the field's kind.
        WidenedError
            If integers have to be floats, or a column has to have room for none.
        """
        if given.dtype.is_nested() or given.dtype.is_temporal():
            kind = "a list or a structure" if given.dtype.is_nested() else "a time"
            raise UserMistake(f"recording.fields.{self.name}: column '{self.part.column}' is {kind}; take it out")
        if self.kind is None:
            self.kind = _kind_of(given, self.part)
        if isinstance(given.dtype, (pl.Categorical, pl.Enum)):
            given = given.cast(pl.String)
        if self.kind is Kind.BOOL:
            made = self._flags(given)
        elif self.kind is Kind.TEXT:
            made = given.cast(pl.String)
        else:
            made = recorded_files.numbers(given, pl.Int64 if self.kind is Kind.INT else pl.Float64)
        if (at := recorded_files.first_odd(given, made)) is not None:
            self._refuse(given, at, where)
        if self.kind is Kind.TEXT:
            made = self._coded(made, where)
        elif self.kind is Kind.BOOL:
            made = made.cast(pl.Int64)
        elif self.kind is Kind.FLOAT:
            made = self._floats(given, made, where)
        return made if self.merges else self.whole(made, where)

    def whole(self, made: pl.Series, where: Place) -> pl.Series:
        """Return numbers, and the codes of texts and booleans, with the default, or NaN, where a point has none.

        Raises
        ------
        UserMistake
            If an integer of a column with room for none is none that a float holds.
        WidenedError
            If the column has to have room for none.
        """
        default = None if self.part.default is None else self._default()
        if not made.null_count():
            return self._roomy(made, where) if self.lacks else made
        if default is not None:
            if self.kind is Kind.TEXT:
                return made.fill_null(int(self.codes.of(pl.Series([default]), self.part.column, where)[0]))
            return made.fill_null(int(default) if self.kind is Kind.BOOL else default)
        if self.kind is not Kind.FLOAT and not self.lacks:
            raise WidenedError(self.name, self.kind)
        self.lacks = True
        return self._roomy(made, where).fill_null(float("nan"))

    def _roomy(self, made: pl.Series, where: Place) -> pl.Series:
        """Return whole numbers as floats; raises `UserMistake` for one that would be changed."""
        floats = made.cast(pl.Float64)
        if made.dtype == pl.Int64 and len(changed := (floats.cast(pl.Int64, strict=False) != made).arg_true()):
            raise self._inexact(made[changed[0]], where(changed[0]))
        return floats

    def _inexact(self, value: int, place: str) -> UserMistake:
        said = f"{self.part.column} is {value}, which no float holds, and not every row has a whole number"
        return UserMistake(f"{place}: {said}; give it a default, or say type = 'text'")

    def _default(self) -> Any:
        default = self.part.default
        fits = {
            Kind.TEXT: isinstance(default, str),
            Kind.BOOL: isinstance(default, bool),
        }.get(self.kind or Kind.FLOAT, isinstance(default, float) and not isinstance(default, bool))
        if not fits:
            raise UserMistake(f"recording.fields.{self.name}.default: {default!r} is no {self.kind} value")
        if self.kind is Kind.INT and isinstance(default, float):
            return int(default)
        return default

    def _flags(self, given: pl.Series) -> pl.Series:
        if given.dtype == pl.Boolean:
            return given
        texts = given.cast(pl.String)
        true, false = self.part.true or ("true", "True", "TRUE"), self.part.false or ("false", "False", "FALSE")
        said = dict.fromkeys(true, True) | dict.fromkeys(false, False)
        return texts.replace_strict(said, default=None, return_dtype=pl.Boolean)

    def _floats(self, given: pl.Series, made: pl.Series, where: Place) -> pl.Series:
        values: NDArray[np.float64] = made.to_numpy().astype(np.float64)
        if (np.abs(values) > EXACT).any():
            whole = recorded_files.numbers(given, pl.Int64)
            changed = (made.cast(pl.Int64, strict=False) != whole).arg_true()
            if len(changed):
                raise self._inexact(whole[changed[0]], where(changed[0]))
        if np.isinf(values).any():
            at = int(np.argmax(np.isinf(values)))
            raise UserMistake(f"{where(at)}: {self.part.column} is infinite; put such values into null, or mend them")
        return pl.Series(values, nan_to_null=True)

    def _coded(self, made: pl.Series, where: Place) -> pl.Series:
        """Return the numbers of texts, null for null."""
        codes = self.codes.of(made, self.part.column, where)
        if len(self.codes) > MOST_TEXTS:
            raise UserMistake(
                f"{where(0)}: '{self.part.column}' has more than {MOST_TEXTS:,} different texts; take the field out, "
                "or make it a tag"
            )
        return codes

    def _refuse(self, given: pl.Series, at: int, where: Place) -> None:
        if self.kind is Kind.INT and recorded_files.numbers(given, pl.Float64)[at] is not None:
            raise WidenedError(self.name, Kind.FLOAT)
        known = "true or false" if self.kind is Kind.BOOL else "a number"
        cure = "true and false" if self.kind is Kind.BOOL else "null"
        raise UserMistake(
            f"{where(at)}: {self.part.column} is '{printable_line(str(given[at])[:80])}', which is not {known}; "
            f"name it in {cure}, or say type = 'text'"
        )

    def again(self, widened: WidenedError) -> ValueColumn:
        """Return this before the first row, with the type that it has; widened, if it is the one."""
        if widened.name != self.name:
            return replace(self, codes=TextCodes())
        return replace(self, kind=widened.kind, lacks=widened.kind is not Kind.FLOAT, codes=TextCodes())


def _kind_of(given: pl.Series, part: FieldColumn) -> Kind:
    """Return the kind of a field: as its keys say, else that of its first values."""
    if part.type is not None:
        return Kind(part.type)
    if part.true is not None:
        return Kind.BOOL
    if not given.count():
        given = pl.Series([part.default])
    made = recorded_files.typed(given)
    if made.dtype == pl.String:  # a text among numbers is a mistake, a number among texts is none
        return Kind.FLOAT if recorded_files.are_mostly_numbers(given) or not given.count() else Kind.TEXT
    if isinstance(made.dtype, (pl.Categorical, pl.Enum)):
        return Kind.TEXT
    return Kind.BOOL if made.dtype == pl.Boolean else Kind.INT if made.dtype.is_integer() else Kind.FLOAT


def _unfit(text: str) -> str:
    """Return why a text cannot be stored by every database; "" if it can."""
    if len(text) > 200:
        return f"has {len(text)} letters, more than 200; take the column out"
    if text.strip() != text or not text:
        return "begins or ends with a space, which not all databases tell apart; mend it"
    return "has a line end, or another character that cannot be shown; mend it" if CONTROL.search(text) else ""


@dataclass(frozen=True)
class NullValues:
    """What stands for none."""

    texts: tuple[str, ...]
    numbers: tuple[float, ...]
    is_said: bool
    """Whether the use case says so; else texts of files with types, which have a null of their own, are as they are."""

    @classmethod
    def of(cls, part: RecordingPart) -> NullValues:
        """Return what stands for none by a recording's keys."""
        given = recorded_files.NULLS if part.null is None else ("", *part.null)
        numbers = tuple(float(one) for one in given if not isinstance(one, str))
        return cls(tuple(one for one in given if isinstance(one, str)), numbers, part.null is not None)

    def without(self, column: pl.Series) -> pl.Series:
        """Return the column with nulls in place of these values."""
        if isinstance(column.dtype, (pl.Categorical, pl.Enum)):
            if not self.is_said:
                return column
            return column.set(column.cast(pl.String).is_in(self.texts).fill_null(value=False), None)
        if column.dtype == pl.String:
            lacking = column.is_in(self.texts)
            if self.numbers:
                lacking |= recorded_files.numbers(column, pl.Float64).is_in(self.numbers).fill_null(value=False)
        elif column.dtype.is_numeric():
            lacking = column.cast(pl.Float64, strict=False).is_in([*self.numbers])
            if column.dtype.is_float():
                lacking |= column.is_nan()
        else:
            return column
        if not lacking.any():
            return column
        return column.set(lacking.fill_null(value=False), None)


@dataclass(frozen=True)
class RowPlace:
    """The place of a row: its file, and its number in it, from 1."""

    path: str
    before: int
    rows: NDArray[Any] | None = None
    """Numbers of the rows that are left, if some were left out."""

    def __call__(self, row: int) -> str:
        number = row if self.rows is None else int(self.rows[row])
        return f"{self.path}: row {self.before + number + 1:,}"
