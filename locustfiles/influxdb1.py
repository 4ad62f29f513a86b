"""InfluxDB 1.x: tens of thousands of devices with seven sensors, a hundred writes to one query (study F).

locust -f locustfiles/influxdb1.py                      # web UI; starts an InfluxDB of its own (tsbench servers)
locust -f locustfiles/influxdb1.py --headless -u 50 -r 50 -t 60s SingleWriter
locust -f locustfiles/influxdb1.py --headless -u 50 -r 50 -t 20s SingleWriterFlatOut    # what the client itself can do
locust -f locustfiles/influxdb1.py --endpoint http://me@db.example:8086/bench     # password: TSBENCH_PASSWORD
"""

from locust import between, constant, task

from tsbench.drive import TimeSeriesUser, standalone

standalone()


class Device(TimeSeriesUser):
    """Asks now and then; the classes below write."""

    abstract = True
    target = "influxdb1"
    use_case = "sensors"
    wait_time = between(1, 3)

    @task(1)
    def six_hours_of_five_devices(self) -> None:
        self.query("select-6h-5-devices")

    @task(1)
    def last_value_of_everything(self) -> None:
        self.query("last-value")


class SingleWriter(Device):
    """Writes one point per request."""

    weight = 3

    @task(200)
    def write_one_point(self) -> None:
        self.write(1)


class BatchWriter(Device):
    """Writes 250 points per request."""

    weight = 1

    @task(200)
    def write_250_points(self) -> None:
        self.write(250)


class SingleWriterFlatOut(TimeSeriesUser):
    """Writes one point per request without a pause, to find what the client can do."""

    target = "influxdb1"
    use_case = "sensors"
    weight = 0.000_001  # no user, unless it is named on the command line: Locust refuses to run a class of weight 0
    wait_time = constant(0)

    @task
    def write_a_hundred_points(self) -> None:
        for _ in range(100):  # a task each would cost Locust's choice of the next one and a turn of its event loop
            self.write(1)
