"""The scenario's locustfile beside a greenlet that burns its process's CPU: a load generator that is in its own way."""

import time

import gevent
from locust import events

from tsbench.drive.locustfile import *  # noqa: F403 - it is that locustfile, and a burner


def burn() -> None:
    while True:
        until = time.perf_counter() + 0.008
        while time.perf_counter() < until:
            pass
        gevent.sleep(0.001)


@events.test_start.add_listener
def begin(**_: object) -> None:
    gevent.spawn(burn)
