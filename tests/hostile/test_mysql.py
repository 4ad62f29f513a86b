from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.hostile.doors import Attack, holds_secret
from tests.hostile.mysql import WAYS, Dialogue, Greedy, Watch, attacker, got_file, rsa_key, table, use

if TYPE_CHECKING:
    import ssl

    from tests.hostile.doors import Certificates, Channel

pytestmark = pytest.mark.needs("MySQLdb")


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
        made = AsksForFile(channel)
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
    with attacker(Dialogue) as (server, endpoint, dialogues):
        assert use(endpoint) == []
        assert bytes(server.channels[0].heard).count(b"2016-01-01T00:00:00.000000\t") == 1
    (one,) = dialogues
    assert [re.split(rb"\W", statement)[0] for statement in one.statements].count(b"LOAD") == 1


# --- logging in

REFUSED = "the server asks for the password itself, or in a way that gives it away"
CURE = "add ssl-mode=REQUIRED or VERIFY_IDENTITY to the endpoint, or, for caching_sha2_password, server-public-key=FILE"


@pytest.mark.parametrize("way", WAYS[1:])
def test_without_tls_no_server_gets_the_password(way: str, certificates: Certificates) -> None:
    def make(channel: Channel) -> Greedy:
        made = Greedy(channel)
        made.ask, made.key = way, rsa_key(certificates.directory)
        return made

    with attacker(make) as (server, endpoint, dialogues):
        (said,) = use(endpoint)
        assert not holds_secret(b"".join(bytes(channel.heard) for channel in server.channels))
    assert said == f"cannot connect to {endpoint}: {REFUSED}, which it does not get without TLS; {CURE}"
    assert not any(one.took_password or one.statements for one in dialogues)


def test_the_endpoint_may_allow_what_gives_the_password_away(certificates: Certificates) -> None:
    key = rsa_key(certificates.directory)
    path = certificates.directory / "rsa.pub"
    for way, options in {
        "mysql_clear_password": "auth-plugins=mysql_clear_password,mysql_native_password",
        "RSA caching_sha2_password": f"server-public-key={path}",
    }.items():

        def make(channel: Channel, way: str = way) -> Greedy:
            made = Greedy(channel)
            made.ask, made.key = way, key
            return made

        with attacker(make) as (server, endpoint, dialogues):
            use(f"{endpoint}?{options}")
        assert holds_secret(bytes(server.channels[0].heard)) == way.startswith("mysql")
    # The client had the key and did not ask for one: what came is the password, encrypted for the owner of the key.
    assert dialogues[0].requests[-1][0] != 2


class Changes(Dialogue):
    """Offers TLS in its first greeting only."""

    greetings = 0

    def greet(self) -> None:
        Changes.greetings += 1
        if Changes.greetings > 1:
            self.channel.context = None
        super().greet()


def test_a_server_that_offers_tls_once_and_then_not_gets_neither_password_nor_statement(
    certificates: Certificates,
) -> None:
    Changes.greetings = 0
    with attacker(Changes, certificates.context(Attack.PASSIVE)) as (
        server, endpoint, dialogues,
    ):  # fmt: skip
        (said,) = use(f"{endpoint}?ssl-mode=REQUIRED")
    assert Changes.greetings == 2
    assert said == f"cannot connect to {endpoint}: TLS/SSL error: SSL is required, but the server does not support it"
    assert not any(one.statements for one in dialogues)
    assert bytes(server.channels[1].heard) == b""  # not even the user's name, or a hash


class ChangesCertificate(Dialogue):
    """Shows another certificate each time."""

    others: list[ssl.SSLContext | None]

    def greet(self) -> None:
        self.channel.context = self.others.pop(0)
        super().greet()


def test_a_server_that_shows_another_certificate_a_moment_later_gets_nothing(certificates: Certificates) -> None:
    ChangesCertificate.others = [certificates.context(attack) for attack in (Attack.PASSIVE, Attack.OTHER_NAME)]
    first = certificates.context(Attack.PASSIVE)
    with attacker(ChangesCertificate, first) as (
        server,
        endpoint,
        dialogues,
    ):
        (said,) = use(f"{endpoint}?ssl-mode=REQUIRED")
    assert "Fingerprint verification of server certificate failed" in said
    assert not any(one.statements for one in dialogues)
    assert not holds_secret(bytes(server.channels[1].heard))
