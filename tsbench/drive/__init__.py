"""The only package that imports locust or gevent; locustfiles import from here.

The two names are imported lazily: importing locust patches the whole process for gevent, and parts of this package
(figures, clocks, the exchange of files) can be used and tested without that.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsbench.drive.bare.standalone import standalone
    from tsbench.drive.user import TimeSeriesUser

__all__ = ["TimeSeriesUser", "standalone"]
_HOMES = {"TimeSeriesUser": "tsbench.drive.user", "standalone": "tsbench.drive.bare.standalone"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
