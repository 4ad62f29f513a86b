"""DuckDB: a hundred single writes to one query, or batches.

The file is not called duckdb.py: Locust imports it under its own name, which is that of the driver.

locust -f locustfiles/duck.py                      # web UI; makes a database file
locust -f locustfiles/duck.py --headless -u 10 -r 10 -t 20s
locust -f locustfiles/duck.py --endpoint duckdb:////var/tmp/bench.duckdb
"""

from locust import between, task

from tsbench.drive import TimeSeriesUser, standalone

standalone()


class SingleWriter(TimeSeriesUser):
    """Writes one point per request, and asks now and then."""

    target = "duckdb"
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

    target = "duckdb"
    weight = 1
    wait_time = between(0.1, 0.3)

    @task(100)
    def write_250_points(self) -> None:
        self.write(250)

    @task(1)
    def newest_row_of_every_host(self) -> None:
        self.query("lastpoint")
