from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from tests.hostile.doors import holds_secret
from tests.hostile.mysql import Dialogue, Watch, attacker, got_file, table, use

if TYPE_CHECKING:
    from tests.hostile.doors import Channel

pytest.importorskip("MySQLdb", reason="mysqlclient is not installed; pip install 'tsbench[mysql]'")


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    return Watch(tmp_path_factory.mktemp("files"))


class AsksForFile(Dialogue):
    """Asks for a file when the client sends a certain statement; `then` what it does afterwards."""

    file = b""
    at = b""
    after_ours = False

    def answer(self, statement: bytes) -> None:
        if self.at not in statement:
            super().answer(statement)
            return
        if self.after_ours:
            self.ask_for_file(b"rows of tsbench")
        self.ask_for_file(self.file)
        self.send(*table([b"x"], [(b"1",)]))


ASKED = "the server asked for a file of this machine, which it does not get; do you know that server?"
PLACES = {
    "SET NAMES": ASKED,
    "SET SESSION": ASKED,
    "@@max_allowed_packet": ASKED,
    "START TRANSACTION": ASKED,
    "REPLACE INTO": ASKED,
    "count(*)": ASKED,
    "SHOW GLOBAL": ASKED,
    "LOAD DATA": "the server asked for the file {file} in place of the rows to load",
    "LOAD DATA, after ours": "the server asked for a second file",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["environ", "bait", "ours"])
def test_a_server_that_asks_for_a_file_gets_none_and_the_connection_ends(watch: Watch, place: str, kind: str) -> None:
    file = {"environ": watch.files[0], "bait": watch.files[1], "ours": b"rows of tsbench"}[kind]
    at, _, after_ours = place.partition(", ")
    if kind == "ours" and at == "LOAD DATA" and not after_ours:
        return  # which is no attack

    def make(channel: Channel) -> AsksForFile:
        made = AsksForFile(channel, random.Random(0))
        made.at, made.file, made.after_ours = at.encode(), file, bool(after_ours)
        return made

    with attacker(make) as (server, endpoint, dialogues):
        with watch.opened() as opened:
            found = use(endpoint)
        heard = b"".join(bytes(channel.heard) for channel in server.channels)
    assert any(PLACES[place].format(file=repr(file)) in line for line in found), found
    assert not opened
    assert not got_file(heard)
    assert not holds_secret(heard)
    attacked = [one for one in dialogues if any(at.encode() in statement for statement in one.statements)]
    assert attacked
    for one in attacked:  # what asked for a file is talked to no more
        (last,) = [i for i, statement in enumerate(one.statements) if at.encode() in statement]
        assert one.statements[last + 1 :] == []


def test_a_server_that_asks_as_agreed_gets_the_rows_once() -> None:
    def make(channel: Channel) -> Dialogue:
        return Dialogue(channel, random.Random(0))

    with attacker(make) as (server, endpoint, dialogues):
        assert use(endpoint) == []
        assert bytes(server.channels[0].heard).count(b"2016-01-01T00:00:00.000000\t") == 1
    (one,) = dialogues
    assert [re.split(rb"\W", statement)[0] for statement in one.statements].count(b"LOAD") == 1
