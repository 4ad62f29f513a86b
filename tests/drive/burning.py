"""The scenario's locustfile with a greenlet that uses its process's CPU: a load generator that slows itself down.

It stops the event loop for BURN_S (8 ms unless set) and lets it go on for REST_S (1 ms).
"""

import os
import time

import gevent
from locust import events

from tsbench.drive.locustfile import *  # noqa: F403 - it is that locustfile, and a burner


def burn() -> None:
    while True:
        until = time.perf_counter() + float(os.environ.get("BURN_S", "0.008"))
        while time.perf_counter() < until:
            pass
        gevent.sleep(float(os.environ.get("REST_S", "0.001")))


@events.test_start.add_listener
def begin(**_: object) -> None:
    gevent.spawn(burn)
