"""Reports from run directories: frames, metrics, plots, HTML. Depends neither on targets nor on Locust."""

from tsbench.errors import require

PACKAGES = ("jinja2", "matplotlib", "pandas", "polars", "pyarrow")
"""What merging, checking and reporting need, and a load worker does not."""


def expect_packages() -> None:
    """Verify that the packages of the extra `report` are installed.

    Raises
    ------
    tsbench.errors.UserMistake
        If one is not: one line with the extra.
    """
    for name in PACKAGES:
        require(name, "report")
