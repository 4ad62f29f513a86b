"""The table of metrics is held to the model of the summary: no figure without a writer, none that nobody sees."""

from __future__ import annotations

import dataclasses
import types
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from tsbench.report.metrics import COLUMNS, COMPARED, METRICS
from tsbench.results.figures import OpFigures
from tsbench.results.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

ELSEWHERE = {
    *("format", "users", "users_least", "processes", "encode_s"),  # the load of a run, and the box of its limit
    *("measured.duration_s", "measured.window.start_s", "measured.window.duration_s", "measured.window.warmup_s"),
    *("limit.sent_in_bursts", "limit.cores", "limit.others_cores", "limit.steal_percent"),  # as sentences
    *("warmup.duration_s", "warmup.limit_s"),
    *("size.directory_bytes", "answers.sampled", "answers.given"),
    *("answers.torn_reads.answers", "answers.torn_reads.rows"),
    *("cold.pages", "cold.before", "cold.after"),  # in the row before those of the first ops
    *("writes.expected", "writes.unrecorded", "writes.of_lost_processes"),  # in the verdict's reason
}
"""Numbers of a summary that stand in a sentence, a plot's axis or a verdict's reason, and in no table of metrics."""


def parts_of(model: type) -> dict[str, Any]:
    """Return the fields of a model with their types, without what may be None."""
    hints = get_type_hints(model)
    return {
        name: next((one for one in get_args(kind) if one is not type(None)), kind)
        if get_origin(kind) in {Union, types.UnionType}
        else kind
        for name, kind in hints.items()
        if name in {*getattr(model, "model_fields", ())} | {f.name for f in _fields(model)}
    }


def _fields(model: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(model) if dataclasses.is_dataclass(model) else ()


def numbers(model: type, at: str = "") -> Iterator[str]:
    """Yield the places of all numbers below a model; those in lists, and by name, are in tables of their own."""
    for name, kind in parts_of(model).items():
        if isinstance(kind, type) and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)):
            if kind is not OpFigures:
                yield from numbers(kind, f"{at}{name}.")
        elif kind in {int, float} or (get_origin(kind) is Literal and isinstance(get_args(kind)[0], int)):
            yield f"{at}{name}"


def kind_at(path: str) -> Any:
    """Return the type at the place of a metric; raises KeyError if the model has no such place."""
    kind: Any = Summary
    for name in path.split("."):
        computed = getattr(kind, name, None)
        kind = float if isinstance(computed, property) else parts_of(kind)[name]
    return kind


def test_every_metric_has_its_place_in_the_summary() -> None:
    for metric in METRICS:
        kind = kind_at(metric.path)
        assert kind is OpFigures if metric.percentile else kind in {int, float, str}, metric.path


def test_every_number_of_a_summary_is_a_metric_or_known_to_stand_elsewhere() -> None:
    found = set(numbers(Summary))
    assert {"load.points", "schedule.late", "warmup.rise", "limit.in_flight"} <= found
    assert found - {metric.path for metric in METRICS} == ELSEWHERE


def test_what_runs_are_compared_by_has_a_name_with_its_unit_and_every_column_is_one() -> None:
    assert all(metric.label or metric.title for metric in METRICS)
    assert {key for column in COLUMNS for key in column.keys} <= set(COMPARED)
    assert all(key.endswith("_ns") for key, metric in COMPARED.items() if metric.unit == "ns")
