"""A fleet of trucks that send where they are and how they are: TSBS's use case `iot`.

Names, tags, fields and their limits are those of TSBS (Source: TSBS pkg/data/usecases/iot). A truck's tags never
change, and every truck has a load of its own, which TSBS shares among all by mistake; `status` is a float as all other
fields, so that a point may lack it. In the form `peer` points are late, lost and held back, and lack fields, and trucks
lack tags, with shares like TSBS's; `bounded` has none of that.

The questions of this use case are `model.Analysis`. For all of them a truck is its `name`; tags are the truck's; points
are those of the window; values and tags that are lacking are skipped; buckets of ten minutes and days are aligned to
the epoch in UTC, and only those exist in which a truck has a value of the field. Their answers:

- `single-last-loc`, `last-loc`: of the truck, or each of the fleet, the newest point with both latitude and longitude
- `low-fuel`: the newest fuel_state of the fleet's trucks where it is below 0.1
- `high-load`: the newest current_load of the fleet's trucks where it is above 0.9 times the load_capacity
- `stationary-trucks`: mean velocity of the fleet's trucks where it is below 1
- `long-driving-sessions`, `long-daily-sessions`: number of buckets with a mean velocity above 1, of the fleet's trucks,
  where it is above 22 or 60
- `avg-vs-projected-fuel-consumption`: per fleet the means of fuel_consumption and of the nominal one over points with
  a velocity above 1 and a fuel_consumption
- `avg-daily-driving-duration`: per truck the mean over its days of hours in buckets with a mean velocity above 1
- `avg-daily-driving-session`: per truck and day on which they begin, the mean length in minutes of runs of buckets with
  a mean velocity above 5; a run ends where the next bucket of the truck begins that has none, and one that begins with
  the truck's first bucket, or does not end, is left out
- `avg-load`: per fleet and model the mean over trucks of the mean current_load divided by the load_capacity
- `daily-activity`: per fleet, model and day the mean over trucks of the share of the day's 144 buckets that have a mean
  status below 1
- `breakdown-frequency`: per model the number of buckets, over all trucks, in which at least half of the points have a
  status above 0, and less than half in the truck's bucket before
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tsbench.model import Field
from tsbench.workload.layout import Layout, Tag, UseCase
from tsbench.workload.processes import Fixed, Lazy, Normal, Uniform, Walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.workload.random_numbers import Floats

MODELS = ("F-150", "G-2000", "H-2")
LOAD_CAPACITIES = ("2000", "5000", "1500")


def _of_model(name: str, values: tuple[str, ...]) -> Tag:
    return Tag(
        name, within="model", choices_by=tuple((model, (value,)) for model, value in zip(MODELS, values, strict=True))
    )


TRUCK_TAGS = (
    Tag("name", "truck_{}".format, numbered=True),
    Tag("fleet", choices=("East", "West", "North", "South")),
    Tag("driver", choices=("Derek", "Rodney", "Albert", "Andy", "Seth", "Trish")),
    Tag("model", choices=MODELS),
    Tag("device_version", choices=("v1.0", "v1.5", "v2.0", "v2.3")),
    _of_model("load_capacity", LOAD_CAPACITIES),
    _of_model("fuel_capacity", ("200", "300", "150")),
    _of_model("nominal_fuel_consumption", ("15", "19", "12")),
)


def _walk(name: str, step: float, low: float, high: float, start: Uniform | Fixed) -> Walk:
    return Walk((name,), Uniform(-step, step), start, low, high, "clamp")


def _cut(values: Floats, decimals: int) -> Floats:
    """Return the values without further decimals, as TSBS cuts them off."""
    scale = 10.0**decimals
    shortened_values: Floats = (
        np.trunc(values.astype(np.float64) * scale) / scale + 0.0
    )  # without a minus before a zero
    return shortened_values


_DECIMALS = {"latitude": 5, "longitude": 5, "fuel_consumption": 1, "fuel_state": 1}


def _readings(hidden: Mapping[str, Floats], interval_ns: int) -> dict[str, Floats]:
    return {name: _cut(values, _DECIMALS.get(name, 0)) for name, values in hidden.items()}


def _diagnostics(hidden: Mapping[str, Floats], interval_ns: int) -> dict[str, Floats]:
    used = hidden["fuel_used"]
    left = 1.0 - (used - np.floor(used))  # filled up when nothing is left
    return _readings({**hidden, "fuel_state": left}, interval_ns)


def _fields(*named: tuple[str, str]) -> tuple[Field, ...]:
    return tuple(Field(name, unit=unit, nullable=True) for name, unit in named)


READINGS = Layout(
    "readings",
    _fields(
        ("latitude", "deg"), ("longitude", "deg"), ("elevation", "m"), ("velocity", "km/h"), ("heading", "deg"),
        ("grade", ""), ("fuel_consumption", "l"),
    ),
    (
        _walk("latitude", 0.005, -90.0, 90.0, Uniform(0.0, 90.0)),
        _walk("longitude", 0.005, -180.0, 180.0, Uniform(0.0, 180.0)),
        _walk("elevation", 10.0, 0.0, 5000.0, Uniform(0.0, 500.0)),
        _walk("velocity", 10.0, 0.0, 100.0, Fixed(0.0)),
        _walk("heading", 5.0, 0.0, 360.0, Uniform(0.0, 360.0)),
        _walk("grade", 5.0, 0.0, 100.0, Fixed(0.0)),
        _walk("fuel_consumption", 5.0, 0.0, 50.0, Fixed(25.0)),
    ),
    derive=_readings,
)  # fmt: skip
DIAGNOSTICS = Layout(
    "diagnostics",
    _fields(("fuel_state", ""), ("current_load", "kg"), ("status", "")),
    (
        Walk(("fuel_used",), Uniform(0.0, 0.001), Fixed(0.0)),
        Lazy(("current_load",), 0.0, 5000.0, 0.05),
        Walk(("status",), Normal(0.0, 1.0), Fixed(0.0), 0.0, 5.0, "clamp"),
    ),
    derive=_diagnostics,
)
_BOTH = (READINGS, DIAGNOSTICS)
IOT = UseCase(
    "iot",
    "a fleet of trucks: 2 measurements, 10 fields, 8 tags a truck",
    TRUCK_TAGS,
    {"peer": _BOTH, "bounded": _BOTH},
    (("late", 0.05), ("missing", 0.1), ("lost", 0.01), ("held", 0.05), ("null", 0.09), ("null_tags", 0.1)),
)
