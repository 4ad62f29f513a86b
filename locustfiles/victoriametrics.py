"""VictoriaMetrics: a fleet of hosts, written in batches, with a question now and then.

locust -f locustfiles/victoriametrics.py               # web UI; starts a VictoriaMetrics of its own (tsbench servers)
locust -f locustfiles/victoriametrics.py --headless -u 10 -r 10 -t 20s
locust -f locustfiles/victoriametrics.py --headless -u 10 -r 10 -t 20s SingleWriter
locust -f locustfiles/victoriametrics.py --endpoint http://me@db.example:8428/tsbench     # password: TSBENCH_PASSWORD
"""

from locust import between, task

from tsbench.drive import TimeSeriesUser, standalone

standalone()


class BatchWriter(TimeSeriesUser):
    """Writes 250 points per request, and asks for maxima and newest values now and then."""

    target = "victoriametrics"
    weight = 3
    wait_time = between(0.1, 0.3)

    @task(100)
    def write_250_points(self) -> None:
        self.write(250)

    @task(3)
    def max_cpu_of_one_host(self) -> None:
        self.query("single-groupby-1-1-1")

    @task(1)
    def newest_values(self) -> None:
        self.query("lastpoint")


class SingleWriter(TimeSeriesUser):
    """Writes one point per request."""

    target = "victoriametrics"
    weight = 1
    wait_time = between(0.01, 0.03)

    @task
    def write_one_point(self) -> None:
        self.write(1)
