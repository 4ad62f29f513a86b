"""Small devices that each report seven readings (Source: study F, InfluxDB on low-end hardware)."""

from __future__ import annotations

from tsbench.model import Field
from tsbench.workload.layout import Layout, Tag, UseCase
from tsbench.workload.processes import Normal, Uniform, Walk


def _reading(name: str, unit: str, low: float, high: float, sd: float) -> Layout:
    """Return a measurement of one value that walks between limits, with two decimals as in the study."""
    walk = Walk(("value",), Normal(0.0, sd), Uniform(low, high), low, high, "reflect")
    return Layout(name, (Field("value", unit=unit),), (walk,), decimals=2)


_READINGS = (
    _reading("temperature", "degC", 15.0, 30.0, 0.05),
    _reading("humidity", "%", 20.0, 80.0, 0.2),
    _reading("co", "ppm", 0.0, 50.0, 0.2),
    _reading("co2", "ppm", 400.0, 2000.0, 5.0),
    _reading("motor", "A", 0.0, 30.0, 0.5),
    _reading("airflow", "m/s", 0.0, 20.0, 0.2),
    _reading("pressure", "hPa", 950.0, 1050.0, 0.1),
)

SENSORS = UseCase(
    "sensors",
    "devices with seven sensors each: 7 measurements of one value, tag device_id",
    (Tag("device_id", first=10_001, numbered=True),),
    {"peer": _READINGS, "bounded": _READINGS},
)
