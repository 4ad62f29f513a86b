"""A fleet of servers: the peers' `devops` (nine measurements, 101 fields) and `cpu-only` use cases.

Names, types, tags and processes are those of TSBS (Source: TSBS pkg/data/usecases/devops, one file per measurement;
`postgresl` is the name on the wire there). The form `peer` also has TSBS's processes, so that results are comparable:
42 of the 101 fields then soon keep a single value. In the form `bounded` the same fields move within the same
limits, and none keeps its value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tsbench.model import Field, Kind
from tsbench.units import NS_PER_S
from tsbench.workload.layout import Layout, Tag, UseCase
from tsbench.workload.processes import Choice, Fixed, Normal, Steady, TickCount, Uniform, Walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.workload.random_numbers import Floats

GIB = float(2**30)
DISK = float(2**40)

REGIONS = (
    ("us-east-1", ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1e")),
    ("us-west-1", ("us-west-1a", "us-west-1b")),
    ("us-west-2", ("us-west-2a", "us-west-2b", "us-west-2c")),
    ("eu-west-1", ("eu-west-1a", "eu-west-1b", "eu-west-1c")),
    ("eu-central-1", ("eu-central-1a", "eu-central-1b")),
    ("ap-southeast-1", ("ap-southeast-1a", "ap-southeast-1b")),
    ("ap-southeast-2", ("ap-southeast-2a", "ap-southeast-2b")),
    ("ap-northeast-1", ("ap-northeast-1a", "ap-northeast-1c")),
    ("sa-east-1", ("sa-east-1a", "sa-east-1b", "sa-east-1c")),
)
HOST_TAGS = (
    Tag("hostname", "host_{}".format, numbered=True),
    Tag("region", choices=tuple(region for region, _ in REGIONS)),
    Tag("datacenter", within="region", choices_by=REGIONS),
    Tag("rack", count=100),
    Tag("os", choices=("Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10")),
    Tag("arch", choices=("x64", "x86")),
    Tag("team", choices=("SF", "NYC", "LON", "CHI")),
    Tag("service", count=20),
    Tag("service_version", count=2),
    Tag("service_environment", choices=("production", "staging", "test")),
)
PORT = Tag("port", first=1024, count=20_000)


def _serial(number: int) -> str:
    """Return nine digits in three groups: 012-345-678."""
    return f"{number:011_}".replace("_", "-")


def _ints(*names: str, unit: str = "") -> tuple[Field, ...]:
    return tuple(Field(name, Kind.INT, unit) for name in names)


def _clamped(names: tuple[str, ...], mean: float, high: float, start: float = 0.0) -> Walk:
    """Return the peer's gauge: steps with a mean above zero drive it to `high`, where it stays."""
    return Walk(names, Normal(mean, 1.0), Fixed(start), 0.0, high, "clamp")


def _bounded(names: tuple[str, ...], sd: float, high: float) -> Walk:
    """Return a gauge with the same limits that never stays at one of them."""
    return Walk(names, Normal(0.0, sd), Uniform(0.0, high), 0.0, high, "reflect")


def _counter(names: tuple[str, ...], mean: float) -> Walk:
    return Walk(names, Normal(mean, 1.0), Fixed(0.0), monotone=True)


# --- cpu, diskio, disk, kernel, mem, net ------------------------------------------------------------------------------

CPU_FIELDS = (
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
)
CPU = Layout(
    "cpu",
    _ints(*CPU_FIELDS, unit="%"),
    (Walk(CPU_FIELDS, Normal(0.0, 1.0), Uniform(0.0, 100.0), 0.0, 100.0, "clamp"),),
)
DISKIO = Layout(
    "diskio",
    (
        *_ints("reads", "writes"),
        *_ints("read_bytes", "write_bytes", unit="B"),
        *_ints("read_time", "write_time", "io_time", unit="ms"),
    ),
    (
        _counter(("reads", "writes"), 50.0),
        _counter(("read_bytes", "write_bytes"), 100.0),
        _counter(("read_time", "write_time", "io_time"), 5.0),
    ),
    (Tag("serial", _serial, count=10**9),),
)


def _disk(hidden: Mapping[str, Floats], interval_ns: int) -> dict[str, Floats]:
    free = np.floor(hidden["free"])
    used = DISK - free
    inodes_free = np.floor(free * (1 / 4096))
    return {
        "total": hidden["total"],
        "free": free,
        "used": used,
        "used_percent": used * (100.0 / DISK),
        "inodes_total": hidden["inodes_total"],
        "inodes_free": inodes_free,
        "inodes_used": DISK / 4096 - inodes_free,
    }


def _disk_layout(free: Walk) -> Layout:
    return Layout(
        "disk",
        (
            *_ints("total", "free", "used", unit="B"),
            *_ints("used_percent", unit="%"),
            *_ints("inodes_total", "inodes_free", "inodes_used"),
        ),
        (Steady(("total",), Fixed(DISK)), Steady(("inodes_total",), Fixed(DISK / 4096)), free),
        (Tag("path", "/dev/sda{}".format, count=10), Tag("fstype", choices=("ext3", "ext4", "btrfs"))),
        _disk,
    )


DISK_PEER = _disk_layout(Walk(("free",), Normal(50.0, 1.0), Fixed(DISK / 2), 0.0, DISK, "clamp"))
DISK_BOUNDED = _disk_layout(
    Walk(("free",), Normal(0.0, DISK / 1000), Uniform(0.2 * DISK, 0.8 * DISK), 0.0, DISK, "reflect")
)
KERNEL_COUNTERS = (
    "interrupts",
    "context_switches",
    "processes_forked",
    "disk_pages_in",
    "disk_pages_out",
)
KERNEL = Layout(
    "kernel",
    (*_ints("boot_time", unit="s"), *_ints(*KERNEL_COUNTERS)),
    (Steady(("boot_time",), Uniform(0.0, 240.0)), _counter(KERNEL_COUNTERS, 5.0)),
)


def _mem(hidden: Mapping[str, Floats], interval_ns: int) -> dict[str, Floats]:
    # The walks are fractions of the total, so that one process is enough for all sizes of machine.
    total = hidden["total"]
    used, buffered = np.floor(total * hidden["used"]), np.floor(total * hidden["buffered"])
    available = total - used
    return {
        "total": total,
        "available": available,
        "used": used,
        "free": available,
        "cached": total * hidden["cached"],
        "buffered": buffered,
        "used_percent": 100.0 * (used / total),
        "available_percent": 100.0 * (available / total),
        "buffered_percent": 100.0 * buffered / total,
    }


MEM = Layout(
    "mem",
    (
        *_ints("total", "available", "used", "free", "cached", "buffered", unit="B"),
        Field("used_percent", unit="%"),
        Field("available_percent", unit="%"),
        Field("buffered_percent", unit="%"),
    ),
    (
        Steady(("total",), Choice((8 * GIB, 12 * GIB, 16 * GIB))),
        Walk(
            ("used", "cached", "buffered"),
            Normal(0.0, 1 / 64),
            Uniform(0.0, 1.0),
            0.0,
            1.0,
            "clamp",
        ),
    ),
    derive=_mem,
)
NET_TRAFFIC = ("bytes_sent", "bytes_recv", "packets_sent", "packets_recv")
NET_ERRORS = ("err_in", "err_out", "drop_in", "drop_out")
NET = Layout(
    "net",
    _ints(*NET_TRAFFIC, *NET_ERRORS),
    (_counter(NET_TRAFFIC, 50.0), _counter(NET_ERRORS, 5.0)),
    (Tag("interface", "eth{}".format, count=4),),
)

# --- nginx, postgresl, redis ------------------------------------------------------------------------------------------

NGINX_COUNTERS = ("accepts", "handled", "requests")
NGINX_GAUGES = ("active", "reading", "waiting", "writing")


def _nginx(gauges: Walk) -> Layout:
    return Layout(
        "nginx",
        _ints("accepts", "active", "handled", "reading", "requests", "waiting", "writing"),
        (_counter(NGINX_COUNTERS, 5.0), gauges),
        (PORT, Tag("server", "nginx_{}".format, count=100_000)),
    )


NGINX_PEER = _nginx(_clamped(NGINX_GAUGES, 5.0, 100.0))
NGINX_BOUNDED = _nginx(_bounded(NGINX_GAUGES, 5.0, 100.0))

POSTGRES_FIELDS = (
    "numbackends",
    "xact_commit",
    "xact_rollback",
    "blks_read",
    "blks_hit",
    "tup_returned",
    "tup_fetched",
    "tup_inserted",
    "tup_updated",
    "tup_deleted",
    "conflicts",
    "temp_files",
    "temp_bytes",
    "deadlocks",
    "blk_read_time",
    "blk_write_time",
)
POSTGRES_GAUGES = tuple(name for name in POSTGRES_FIELDS if name != "temp_bytes")
POSTGRES_PEER = Layout(
    "postgresl",
    _ints(*POSTGRES_FIELDS),
    (_clamped(POSTGRES_GAUGES, 5.0, 1000.0), _clamped(("temp_bytes",), 1024.0, GIB)),
)
POSTGRES_BOUNDED = Layout(
    "postgresl",
    _ints(*POSTGRES_FIELDS),
    (_bounded(POSTGRES_GAUGES, 5.0, 1000.0), _bounded(("temp_bytes",), GIB / 1000, GIB)),
)

REDIS_FIELDS = (
    "uptime_in_seconds",
    "total_connections_received",
    "expired_keys",
    "evicted_keys",
    "keyspace_hits",
    "keyspace_misses",
    "instantaneous_ops_per_sec",
    "instantaneous_input_kbps",
    "instantaneous_output_kbps",
    "connected_clients",
    "used_memory",
    "used_memory_rss",
    "used_memory_peak",
    "used_memory_lua",
    "rdb_changes_since_last_save",
    "sync_full",
    "sync_partial_ok",
    "sync_partial_err",
    "pubsub_channels",
    "pubsub_patterns",
    "latest_fork_usec",
    "connected_slaves",
    "master_repl_offset",
    "repl_backlog_active",
    "repl_backlog_size",
    "repl_backlog_histlen",
    "mem_fragmentation_ratio",
    "used_cpu_sys",
    "used_cpu_user",
    "used_cpu_sys_children",
    "used_cpu_user_children",
)
REDIS_KEYS = REDIS_FIELDS[2:6]
REDIS_RATES = REDIS_FIELDS[6:9]
REDIS_MEMORY = REDIS_FIELDS[10:14]
REDIS_LARGE = ("connected_clients", "rdb_changes_since_last_save")
REDIS_GAUGES = (*REDIS_FIELDS[15:26], *REDIS_FIELDS[27:31])


def _redis_uptime(hidden: Mapping[str, Floats], interval_ns: int) -> dict[str, Floats]:
    return {**hidden, "uptime_in_seconds": hidden["uptime_in_seconds"] * (interval_ns / NS_PER_S)}


def _redis(rates: Walk, large: Walk, memory: Walk, gauges: Walk, ratio: Walk) -> Layout:
    return Layout(
        "redis",
        _ints(*REDIS_FIELDS),
        (
            TickCount(("uptime_in_seconds",)),
            _counter(("total_connections_received",), 5.0),
            _counter(REDIS_KEYS, 50.0),
            rates,
            large,
            memory,
            gauges,
            ratio,
        ),
        (PORT, Tag("server", "redis_{}".format, count=100_000)),
        _redis_uptime,
    )


REDIS_PEER = _redis(
    Walk(REDIS_RATES, Normal(1.0, 1.0), Fixed(0.0)),
    _clamped(REDIS_LARGE, 50.0, 10_000.0),
    _clamped(REDIS_MEMORY, 50.0, 16 * GIB, start=8 * GIB),
    _clamped(REDIS_GAUGES, 5.0, 1000.0),
    _clamped(("mem_fragmentation_ratio",), 5.0, 100.0),
)
REDIS_BOUNDED = _redis(
    _bounded(REDIS_RATES, 50.0, 10_000.0),
    _bounded(REDIS_LARGE, 50.0, 10_000.0),
    _bounded(REDIS_MEMORY, 16 * GIB / 1000, 16 * GIB),
    _bounded(REDIS_GAUGES, 5.0, 1000.0),
    _bounded(("mem_fragmentation_ratio",), 5.0, 100.0),
)

# --- the use cases ----------------------------------------------------------------------------------------------------

DEVOPS = UseCase(
    "devops",
    "a fleet of servers: 9 measurements, 101 fields, 10 tags a host",
    HOST_TAGS,
    {
        "peer": (
            CPU,
            DISKIO,
            DISK_PEER,
            KERNEL,
            MEM,
            NET,
            NGINX_PEER,
            POSTGRES_PEER,
            REDIS_PEER,
        ),
        "bounded": (
            CPU,
            DISKIO,
            DISK_BOUNDED,
            KERNEL,
            MEM,
            NET,
            NGINX_BOUNDED,
            POSTGRES_BOUNDED,
            REDIS_BOUNDED,
        ),
    },
)
CPU_ONLY = UseCase(
    "cpu-only",
    "the cpu measurement of a fleet of servers: 10 fields, 10 tags a host",
    HOST_TAGS,
    {"peer": (CPU,), "bounded": (CPU,)},
)
