"""The only package that imports locust or gevent; locustfiles take what they need from here."""

from tsbench.drive.standalone import standalone
from tsbench.drive.users import TimeSeriesUser

__all__ = ["TimeSeriesUser", "standalone"]
