"""Prices of a few stocks, one a minute (Source: study B, time-series collections against regular ones)."""

from __future__ import annotations

from tsbench.model import Field
from tsbench.workload.layout import Layout, Tag, UseCase
from tsbench.workload.processes import Uniform, Walk

_NAMES = ("Apple", "Orange", "Banana")


def _symbol(number: int) -> str:
    """Return the study's three names, then the same with a number: `Apple-2`."""
    again, which = divmod(number, len(_NAMES))
    return f"{_NAMES[which]}-{again + 1}" if again else _NAMES[which]


# The price only rises, by less than 1 a minute, and is not rounded, as in the study.
_PRICES = Layout(
    "prices",
    (Field("price"),),
    (Walk(("price",), Uniform(0.0, 1.0), Uniform(10.0, 100.0)),),
)

STOCKS = UseCase(
    "stocks",
    "prices of stocks: 1 measurement of one value, tags symbol and currency",
    (Tag("symbol", _symbol, numbered=True), Tag("currency", choices=("dollar", "euro", "yen"))),
    {"peer": (_PRICES,), "bounded": (_PRICES,)},
)
