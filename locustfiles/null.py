"""No database: writes that take no time, to try the page and to find what the load generator itself can do.

locust -f locustfiles/null.py                      # web UI; nothing is stored, so that no answer can be checked
locust -f locustfiles/null.py --headless -u 10 -r 10 -t 20s
locust -f locustfiles/null.py --endpoint 'null://?service=5ms&stall_at=10s&stall=2s'
"""

from locust import between, task

from tsbench.drive import TimeSeriesUser, standalone

standalone()


class SingleWriter(TimeSeriesUser):
    """Writes one point per request."""

    target = "null"
    weight = 3
    wait_time = between(0.01, 0.03)

    @task
    def write_one_point(self) -> None:
        self.write(1)


class BatchWriter(TimeSeriesUser):
    """Writes 250 points per request."""

    target = "null"
    weight = 1
    wait_time = between(0.1, 0.3)

    @task
    def write_250_points(self) -> None:
        self.write(250)
