"""MongoDB: a hundred single writes to one query, or batches.

locust -f locustfiles/mongodb.py                      # web UI; starts FerretDB (tsbench servers)
locust -f locustfiles/mongodb.py --headless -u 10 -r 10 -t 20s
locust -f locustfiles/mongodb.py --headless -u 20 -r 20 -t 20s SingleWriterFlatOut      # what the client itself can do
locust -f locustfiles/mongodb.py --endpoint mongodb://me@db.example:27017/tsbench     # password: TSBENCH_PASSWORD
"""

from locust import between, constant, task

from tsbench.drive import TimeSeriesUser, standalone

standalone()


class SingleWriter(TimeSeriesUser):
    """Writes one point per request, and asks now and then."""

    target = "mongodb"
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

    target = "mongodb"
    weight = 1
    wait_time = between(0.1, 0.3)

    @task(100)
    def write_250_points(self) -> None:
        self.write(250)

    @task(1)
    def newest_row_of_every_host(self) -> None:
        self.query("lastpoint")


class SingleWriterFlatOut(TimeSeriesUser):
    """Writes one point per request without a pause, to find what the client can do."""

    target = "mongodb"
    weight = 0.000_001  # no user, unless it is named on the command line: Locust refuses to run a class of weight 0
    wait_time = constant(0)

    @task
    def write_a_hundred_points(self) -> None:
        for _ in range(100):  # a task each would cost Locust's choice of the next one and a turn of its event loop
            self.write(1)
