"""Who asks for a hundred users and lets them come one a second is warned that they do not come in time."""

from __future__ import annotations

import pytest

from tsbench.drive.run_plan import slow_ramp


@pytest.mark.parametrize(
    ("users", "per_s", "run_time_s", "warned"),
    [
        (100, None, 60.0, True),  # Locust's default is one a second
        (100, 1.0, 500.0, False),
        (100, 1.0, 499.0, True),
        (100, 100.0, 60.0, False),
        (None, None, 60.0, False),
        (100, None, None, False),  # until it is stopped
    ],
)
def test_users_that_come_too_slowly_are_named_with_the_cure(
    users: int | None, per_s: float | None, run_time_s: float | None, warned: bool
) -> None:
    said = slow_ramp(users, per_s, run_time_s)
    assert bool(said) is warned
    assert not warned or "-r 100 lets all come at once" in said
