"""Keys of a scenario file that concern all its cells, and the axes of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, WithJsonSchema, model_validator

from tsbench.errors import UserMistake
from tsbench.measure.gates import parse_figure
from tsbench.scenario.file import explain
from tsbench.scenario.matrix import CASE, MAX_NAME
from tsbench.scenario.types import Part

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_REPEAT = 200
"""Most runs of a cell; what needs more of them to be found is below the noise."""
SEARCH_REPEAT = 3
"""Most runs of a step of a search, by default."""
_VALUES = {"type": "array", "minItems": 1}
_CASES = {**_VALUES, "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}
_MATRIX = {
    "type": "object",
    "properties": {CASE: _CASES},
    "additionalProperties": {"anyOf": [_VALUES, {"type": "object"}]},
}


def _figure(text: str) -> str:
    if parse_figure(text).is_latency:
        raise ValueError(f"{text} is a time, which does not grow for the better; take a rate such as load:points/s")
    return text


class SearchAxis(Part):
    """[[search.axes]]: a key that is raised."""

    key: str
    """Key of the scenario with dots, such as `load.batch`."""
    first: Annotated[int, Field(ge=1)]
    """Its first value."""
    most: Annotated[int, Field(ge=1, le=2**31)]
    """Its highest value: it is doubled as long as it is not above."""

    @property
    def values(self) -> list[int]:
        """All values that it can have."""
        return [self.first << n for n in range(32) if self.first << n <= max(self.first, self.most)]


class SearchPart(Part):
    """[search]: raise one key after the other by doublings, from the first values, until a doubling gains little.

    Each combination of the matrix is a search of its own. Each of its steps is run twice, and up to `repeat` times (by
    default 3) as long as chance could decide.
    """

    figure: Annotated[str, AfterValidator(_figure)] = "load:points/s"
    """The rate that is to be high, as in a gate."""
    gain: Annotated[float, Field(ge=0, le=1)] = 0.05
    """The share by which a doubling has to raise it; one that gains no more ends the raising of its key."""
    axes: Annotated[tuple[SearchAxis, ...], Field(strict=False, min_length=1, max_length=4)]
    """The keys in the order in which they are raised."""

    @model_validator(mode="after")
    def _once(self) -> SearchPart:
        if len({axis.key for axis in self.axes}) < len(self.axes):
            raise ValueError("axes: a key is raised twice; take one out")
        return self

    @property
    def values(self) -> dict[str, list[int]]:
        """All values of each key."""
        return {axis.key: axis.values for axis in self.axes}


class FileKeys(Part):
    """Keys of a file that concern all cells; `Scenario` removes them before parsing a cell."""

    name: str | None = None
    """Name of the scenario in results. Default: the file's name."""
    matrix: Annotated[dict[str, Any], WithJsonSchema(_MATRIX)] = Field(default_factory=dict)
    """Lists of values by dotted key; every combination is one run. `case` lists tables of keys that change together."""
    search: SearchPart | None = None
    """Keys that are raised as long as that gains something."""
    repeat: Annotated[int, Field(ge=1, le=MAX_REPEAT)] = 1
    """How often each cell is run, with a fresh server and load: in rounds, each of all cells in an order of its own."""
    reuse: bool = False
    """If true, cells that differ only in [drive], [[op]], [[event]], [check] and gates share one load, and run one
    after the other on what those before stored: in an order drawn from the seed; with `knee`, in the matrix's."""
    short: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(default_factory=dict)
    """What `--set short=true` changes for a quick look, by dotted key: `"drive.duration" = "5s"`. `only` lists patterns
    of the cells that then run."""
    knee: bool = False
    """If true, the matrix is a ramp: the first run that is invalid or fails a gate ends it, the one before is named."""


def check_keys(document: Mapping[str, Any], repeat: object) -> SearchPart | None:
    """Verify the keys that concern all cells and return [search]; `claim` and `figure` are verified by their readers.

    Raises
    ------
    UserMistake
        One line with the key and the cure.
    """
    name = document["name"]
    if not isinstance(name, str) or not name.strip():
        raise UserMistake("name: must be text in quotes")
    if len(name) > MAX_NAME:
        raise UserMistake(f"name: must have at most {MAX_NAME} characters")
    for key in ("knee", "reuse"):
        if not isinstance(document.get(key, False), bool):
            raise UserMistake(f"{key}: must be true or false")
    if not isinstance(repeat, int) or isinstance(repeat, bool) or not 1 <= repeat <= MAX_REPEAT:
        raise UserMistake(f"repeat: must be a whole number from 1 to {MAX_REPEAT}")
    knee, search = document.get("knee", False), read_search(document)
    if search is not None:
        for key in ("knee", "reuse"):
            if document.get(key, False):
                raise UserMistake(f"search: chooses its runs, and loads for each; take {key} or [search] out")
        if twice := next((key for key in search.values if key in document.get("matrix", {})), None):
            raise UserMistake(f"search.axes: {twice} is an axis of [matrix], too; take it out of one")
    elif repeat > 1 and knee:
        raise UserMistake("repeat: a ramp ends at its first failure; repeat a scenario without knee")
    return search


def read_search(document: Mapping[str, Any]) -> SearchPart | None:
    """Return the parsed [search] of a document, None without one; raises UserMistake."""
    if "search" not in document:
        return None
    try:
        return SearchPart.model_validate(document["search"])
    except ValidationError as error:
        raise UserMistake(explain(error, SearchPart, {"axes": SearchAxis}, within="search")) from None
