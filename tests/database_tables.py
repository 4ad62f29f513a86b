"""The tables of docs/ that enumerate databases, made from what the targets declare.

`python -m tests.database_tables` writes them anew; `tests/test_docs.py` compares them.
"""

from __future__ import annotations

import re
from pathlib import Path

from tsbench.targets.registry import TARGETS

DOCS = Path(__file__).parent.parent / "docs"
END = "<!-- end -->"


def _places(names: list[str]) -> str:
    """Return the databases of some targets as a list."""
    return ", ".join(TARGETS[name].label for name in names)


def _secrets() -> list[str]:
    kinds = {"TSBENCH_PASSWORD": "database password", "TSBENCH_TOKEN": "database token"}
    rows = ["| secret | variable | or a file named by | for |", "|---|---|---|---|"]
    for variable, kind in kinds.items():
        names = [name for name, target in TARGETS.items() if target.secrets[:1] == (variable,)]
        others = sorted({other for name in names for other in TARGETS[name].secrets[1:]})
        rest = f" (without it, `{'`, `'.join(others)}`)" if others else ""
        rows.append(f"| {kind} | `{variable}` | `{variable}_FILE` | {_places(names)}{rest} |")
    return [
        *rows,
        "| web UI | `TSBENCH_WEB_PASSWORD` | `TSBENCH_WEB_PASSWORD_FILE` | whoever opens the page |",
        "| cluster | `TSBENCH_CLUSTER_SECRET` | `TSBENCH_CLUSTER_SECRET_FILE` | master and workers |",
    ]


def _durability() -> list[str]:
    texts = dict.fromkeys(target.durability for target in TARGETS.values() if target.durability)
    names = {text: [name for name, target in TARGETS.items() if target.durability == text] for text in texts}
    rows = [f"  | {_places(names[text])} | {text} |" for text in texts]
    return ["  | database | set by tsbench |", "  |---|---|", *rows]


TABLES = {"secrets": ("security.md", _secrets), "durability": ("fair-play.md", _durability)}
"""The page of each table, and what makes its lines."""


def written(name: str) -> tuple[str, str]:
    """Return a page as it is, and as it is with the table made anew."""
    page, made = TABLES[name]
    text = (DOCS / page).read_text(encoding="utf-8")
    begin = f"<!-- {name}: made by python -m tests.database_tables -->"
    lines = made()
    indent = re.match(" *", lines[0])[0]  # type: ignore[index]
    new = "\n".join([f"{indent}{begin}", *lines, f"{indent}{END}"])
    found = re.subn(rf"^ *{re.escape(begin)}.*?{re.escape(END)}$", lambda _: new, text, flags=re.MULTILINE | re.DOTALL)
    assert found[1] == 1, f"{page} has no place for the table '{name}'"
    return text, found[0]


if __name__ == "__main__":
    for name, (page, _) in TABLES.items():
        (DOCS / page).write_text(written(name)[1], encoding="utf-8")
