"""Reports from run directories: frames, metrics, plots, HTML. Depends neither on targets nor on Locust."""

from tsbench.errors import missing, require

PACKAGES = ("jinja2", "matplotlib", "pandas", "polars", "pyarrow")
"""What merging, checking and reporting need, and a load worker does not."""


def lacking() -> str:
    """Return one line on the packages of the extra `report` that are not installed; "" if all are."""
    names = missing(PACKAGES)
    return f"no report: {', '.join(names)} not installed; pip install 'tsbench[report]'" if names else ""


def expect_packages() -> None:
    """Verify that the packages of the extra `report` are installed.

    Raises
    ------
    tsbench.errors.UserMistake
        If one is not: one line with the extra.
    """
    for name in PACKAGES:
        require(name, "report")
