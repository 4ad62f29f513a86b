"""The only package that imports locust or gevent; locustfiles import from here.

The two names are imported lazily: importing locust patches the whole process for gevent, and parts of this package
(figures, clocks, the exchange of files) can be used and tested without that.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsbench.drive.bare.standalone import standalone
    from tsbench.drive.user import TimeSeriesUser

__all__ = ["TimeSeriesUser", "standalone"]


def __getattr__(name: str) -> Any:
    if name == "standalone":
        from tsbench.drive.bare.standalone import standalone

        return standalone
    if name == "TimeSeriesUser":
        from tsbench.drive.user import TimeSeriesUser

        return TimeSeriesUser
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
