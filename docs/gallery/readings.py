"""Writes readings.csv: a day of 100 meters at 8 sites, which report about once a minute, made up by a seed."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

METERS, DAY_S, START = 100, 86_400, datetime(2026, 3, 1, tzinfo=UTC)
random = np.random.default_rng(7)
rows = []
for meter in range(METERS):
    begins, ends = (0, DAY_S) if random.random() < 0.9 else sorted(random.integers(0, DAY_S, 2))
    times = np.cumsum(random.normal(60, 4, size=1_600)) + begins
    times = times[(times < ends) & (random.random(len(times)) < 0.97)]  # some readings never arrive
    energy = 1_000 * meter + np.cumsum(random.gamma(2.0, 0.02, size=len(times)))
    volts = 230 + np.cumsum(random.normal(0, 0.2, size=len(times)))
    for second, total, voltage in zip(times.tolist(), energy.tolist(), volts.tolist(), strict=True):
        moment = START + timedelta(seconds=round(second, 3))
        state = "fault" if voltage > 238 else "ok"
        rows.append((moment.isoformat(), f"m-{meter:03}", f"site-{meter % 8}", f"{total:.3f}", f"{voltage:.1f}", state))
with Path("readings.csv").open("w", newline="", encoding="utf-8") as file:
    table = csv.writer(file)
    table.writerow(("time", "meter", "site", "energy", "volts", "state"))
    table.writerows(sorted(rows))
