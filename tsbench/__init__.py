"""Load-tests time-series databases: checked answers, honest latencies, accounted writes.

>>> import tsbench
>>> tsbench.run_scenario("quickstart")                 # what `tsbench run quickstart` does # doctest: +SKIP
>>> results = tsbench.read_results("results/*")        # frames and plots of result sets    # doctest: +SKIP
>>> results.runs[["set", "cell", "validity", "write_p99_ns"]]                               # doctest: +SKIP
>>> next(tsbench.world("cpu-only", scale=10).batches(0, points=100))                        # doctest: +SKIP
"""

from __future__ import annotations

TYPE_CHECKING = False  # not that of `typing`, whose import Ctrl-C would end with a traceback
if TYPE_CHECKING:
    from typing import Any

    from tsbench.report.results import Results, read_results
    from tsbench.scenario.spec import world
    from tsbench.study.campaign import run_scenario
    from tsbench.study.request import RunRequest
    from tsbench.workload.world import World

__version__ = "0.1.0"
__all__ = ["Results", "RunRequest", "World", "__version__", "read_results", "run_scenario", "world"]
_HOMES = {
    "RunRequest": "tsbench.study.request",
    "Results": "tsbench.report.results",
    "World": "tsbench.workload.world",
    "read_results": "tsbench.report.results",
    "run_scenario": "tsbench.study.campaign",
    "world": "tsbench.scenario.spec",
}


def __getattr__(name: str) -> Any:  # a load worker needs no pandas, and `tsbench --help` must not wait for it
    if name not in _HOMES:
        raise AttributeError(f"module 'tsbench' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415 - as for `typing`

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__]


def _find_plugins() -> None:
    from os import environ  # noqa: PLC0415 - as for `typing`

    if environ.get("TSBENCH_PLUGIN"):  # of `tsbench --plugin`, or of whoever starts Locust
        from tsbench.plugins import install  # noqa: PLC0415 - which few need

        install()


_find_plugins()
