"""Exports of result sets for CI: JUnit XML, Markdown, and the summary as JSON."""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tsbench.errors import Broken, UserMistake
from tsbench.report import junit, markdown
from tsbench.report.answer import answer_of
from tsbench.report.cells import ResultSet
from tsbench.report.comparison import to_json
from tsbench.results.json_files import read_json
from tsbench.results.rundir import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from tsbench.report.comparison import Comparison
    from tsbench.results.summary import GateResult

    Judged: TypeAlias = Sequence[tuple[Comparison, Sequence[GateResult]]]


@dataclass(frozen=True, slots=True)
class Exports:
    """Paths of the files to write; None means not to write one."""

    junit: Path | None = None
    markdown: Path | None = None
    json: Path | None = None

    def check(self) -> None:
        """Create the files' directories and verify that they are writable, before the run.

        Raises
        ------
        UserMistake
            If a file could not be written.
        """
        for option, path in (("--junit", self.junit), ("--markdown", self.markdown), ("--json", self.json)):
            if path is None:
                continue
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserMistake(f"{option} {path}: {error.strerror}; choose another file") from None
            if path.is_dir():
                raise UserMistake(f"{option} {path}: is a directory; choose a file in it")
            if stat.S_ISFIFO(path.lstat().st_mode if path.exists() else 0):
                raise UserMistake(f"{option} {path}: is a FIFO, for whose reader it could wait for ever; choose a file")
            if not os.access(path if path.exists() else path.parent, os.W_OK):
                raise UserMistake(f"{option} {path}: cannot be written; choose another file")

    def write(self, results: Sequence[Path], ratios: Judged = ()) -> None:
        """Write the files for these result sets; the JSON of several is a list.

        `ratios` are the comparisons with a baseline and the gates on them.

        Raises
        ------
        UserMistake
            If a result set has no run.
        Broken
            If a file cannot be written.
        """
        judged = tuple((one.new.name, gate) for one, gates in ratios for gate in gates)
        sets = [replace(ResultSet.read(path), ratios=judged) for path in results]
        if self.junit is not None:
            write_file(self.junit, junit.document(sets))
        if self.markdown is not None:
            write_file(self.markdown, markdown.document(sets))
        if self.json is not None:
            told = {"baseline": [to_json(one, gates) for one, gates in ratios]} if ratios else {}
            answers = [{"answer": answer_of(contents), **told} for contents in sets]
            contents = [read_json(path / "summary.json") | said for path, said in zip(results, answers, strict=True)]
            content = contents[0] if len(contents) == 1 else contents
            write_file(self.json, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


@contextmanager
def writing_into(place: Path) -> Iterator[Path]:
    """Yield a directory whose files move into `place`, which is made, at the end of the block; none if that fails.

    Raises
    ------
    Broken
        For errors of writing: one line with the cure.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".new-", dir=place) as beside:
            yield Path(beside)
            for path in Path(beside).iterdir():
                path.replace(place / path.name)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise Broken(f"cannot write into {place}: {why}; free some room or choose another --out") from None


def plain_name(name: str) -> str:
    """Return a name for a file in which other characters than letters, digits and `_.=-` are replaced."""
    return re.sub(r"[^\w.=-]+", "_", name, flags=re.ASCII)


def write_file(path: Path, text: str) -> None:
    """Write a text file, whole or not at all (a device or a file in a read-only directory at once).

    Raises
    ------
    Broken
        If that fails.
    """
    whole = path.resolve()  # a link stays one
    try:
        if (whole.exists() and not whole.is_file()) or not os.access(whole.parent, os.W_OK):
            path.write_text(text, encoding="utf-8")
        else:
            write_atomically(whole, text.encode())
    except OSError as error:
        raise Broken(f"cannot write {path}: {error.strerror}; free some room or choose another file") from None
