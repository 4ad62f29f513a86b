"""TimescaleDB: a hundred single writes to one query, or batches. Schema `hypertable`; see docs/databases/postgres.md.

locust -f locustfiles/timescaledb.py                      # web UI; starts TimescaleDB where it is installed
locust -f locustfiles/timescaledb.py --headless -u 10 -r 10 -t 20s
locust -f locustfiles/timescaledb.py --endpoint postgresql://me@db.example/bench     # password: TSBENCH_PASSWORD
"""

from locust import between, task

from tsbench.drive import TimeSeriesUser, standalone

standalone()


class SingleWriter(TimeSeriesUser):
    """Writes one point per request, and asks now and then."""

    target = "timescaledb"
    weight = 3
    wait_time = between(0.01, 0.03)

    @task(100)
    def write_one_point(self) -> None:
        self.write(1)

    @task(1)
    def max_cpu_of_one_host(self) -> None:
        self.query("single-groupby-1-1-1")


class BatchWriter(TimeSeriesUser):
    """Writes 250 points per request, and asks for the newest values now and then."""

    target = "timescaledb"
    weight = 1
    wait_time = between(0.1, 0.3)

    @task(100)
    def write_250_points(self) -> None:
        self.write(250)

    @task(1)
    def newest_row_of_every_host(self) -> None:
        self.query("lastpoint")
