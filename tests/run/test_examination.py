from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tsbench.errors import UserMistake
from tsbench.results.manifest import Manifest
from tsbench.results.rundir import RunDir
from tsbench.run.examination import Examiner
from tsbench.workload.version import WORLD_VERSION

if TYPE_CHECKING:
    from pathlib import Path


def test_answers_are_not_checked_against_another_version_of_the_data(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "a")
    Manifest(world_version=WORLD_VERSION + 1).write(run)
    unused: Any = None  # it is refused before anything is connected to
    with pytest.raises(UserMistake, match=f"world version {WORLD_VERSION + 1}, now {WORLD_VERSION}.*update tsbench"):
        Examiner(run, unused, unused, unused, "", loaded_points=0)
