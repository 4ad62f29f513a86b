from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.certificates import self_signed
from tests.targets.mysql.support import bare, new_database
from tsbench.errors import UserMistake
from tsbench.model import WriteMode
from tsbench.targets.base import Statement
from tsbench.targets.mysql import MARIADB, MYSQL
from tsbench.targets.mysql.server import MariadbServer
from tsbench.testing import data
from tsbench.testing.data import CPU, DISK, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tsbench.model import Rows
    from tsbench.targets.target import Target

pytestmark = pytest.mark.every_user


@pytest.fixture
def certificate() -> Iterator[Path]:
    """A certificate for 127.0.0.1, beside its key, where a server's own user can read both."""
    place = Path(tempfile.mkdtemp(prefix="tsbench-test-"))
    place.chmod(0o755)
    try:
        yield self_signed(place)
    finally:
        shutil.rmtree(place)


def cipher(target: Target, url: str) -> str:
    """Connect, and return the cipher that the server says it uses."""
    session = target.connect(url, target.schemas["innodb"])
    try:
        found: Rows = session.query(Statement("SHOW SESSION STATUS LIKE 'Ssl_cipher'"), ("name", "value"))
        return str(found.records[0][1])
    finally:
        session.close()


@pytest.mark.mariadb
@pytest.mark.needs("MySQLdb")
def test_a_server_is_verified_by_its_certificate_and_name(
    own_server: Callable[[MariadbServer], MariadbServer], certificate: Path, tmp_path: Path
) -> None:
    files = {"ssl_cert": str(certificate), "ssl_key": str(certificate.with_name("key.pem"))}
    settings = {"innodb_buffer_pool_size": "64M", "innodb_log_file_size": "64M", **files}
    url = own_server(MariadbServer(tmp_path / "db", settings)).endpoint
    verified = f"{url}&ssl-mode=VERIFY_IDENTITY"
    assert cipher(MARIADB, url) == ""
    assert cipher(MARIADB, f"{url}&ssl-mode=required").startswith("TLS_")
    assert cipher(MARIADB, f"{verified}&ssl-ca={certificate}").startswith("TLS_")
    with pytest.raises(UserMistake, match="TLS/SSL error: self-signed certificate"):
        cipher(MARIADB, verified)
    with pytest.raises(UserMistake, match="TLS/SSL error"):  # the same server by a name that it does not have
        cipher(MARIADB, f"{verified}&ssl-ca={certificate}".replace("@127.0.0.1:", "@127.1:"))
    assert cipher(MARIADB, url.replace("@127.0.0.1:", "@127.1:")) == ""


@pytest.mark.mariadb
@pytest.mark.needs("MySQLdb")
def test_a_server_without_tls_is_refused_where_tls_is_asked_for(mysql_server: Callable[[str], Any]) -> None:
    url = mysql_server("mariadb").endpoint
    with pytest.raises(UserMistake, match="the server offers no TLS, which ssl-mode=REQUIRED asks for"):
        cipher(MARIADB, f"{url}&ssl-mode=REQUIRED")


@pytest.mark.mysql
def test_a_server_that_demands_tls_is_answered_with_the_option(mysql_server: Callable[[str], Any]) -> None:
    url = mysql_server("mysql").endpoint
    with bare(url) as cursor:
        cursor.execute("SET GLOBAL require_secure_transport = ON")
        try:
            with pytest.raises(UserMistake, match="add ssl-mode=REQUIRED or VERIFY_IDENTITY to the endpoint"):
                cipher(MYSQL, url)
            assert cipher(MYSQL, f"{url}&ssl-mode=REQUIRED").startswith("TLS_")
        finally:
            cursor.execute("SET GLOBAL require_secure_transport = OFF")


@pytest.mark.mysql
def test_a_password_is_encrypted_only_with_the_key_that_the_endpoint_names(
    mysql_server: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = mysql_server("mysql").endpoint
    key = own.partition("&server-public-key=")[2]
    monkeypatch.setenv("TSBENCH_PASSWORD", "open sesame")
    (tmp_path / "odd.pem").write_text("-----BEGIN CERTIFICATE-----")
    with bare(own) as cursor:
        for user in ("first", "second"):  # whose passwords the server does not know yet
            cursor.execute(f"CREATE USER '{user}'@'127.0.0.1' IDENTIFIED BY 'open sesame'")
    try:
        url = own.partition("?")[0].replace("//tsbench@", "//first@")
        with pytest.raises(UserMistake, match=r"asks for the password itself.* without TLS; add ssl-mode=REQUIRED or"):
            cipher(MYSQL, url)
        for name, said in {"none": "cannot be read: No such file or directory", "odd": "is not a public key"}.items():
            path = tmp_path / f"{name}.pem"
            with pytest.raises(UserMistake, match=rf"server-public-key={path} {said}"):
                cipher(MYSQL, f"{url}?server-public-key={path}")
        # The last one: the server knows the first user's password now, and asks only for a proof.
        over_tls = f"{url.replace('first@', 'second@')}?ssl-mode=REQUIRED"
        for allowed in (over_tls, f"{url}?server-public-key={key}", url):
            with pytest.raises(UserMistake, match="to database 'tsbench'"):  # it was let in, without any right
                cipher(MYSQL, allowed)
    finally:
        with bare(own) as cursor:
            cursor.execute("DROP USER 'first'@'127.0.0.1', 'second'@'127.0.0.1'")


@pytest.mark.mysql
def test_rows_loaded_over_tls_are_those_loaded_without(mysql_server: Callable[[str], Any]) -> None:
    schema, shared = MYSQL.schemas["innodb"], data.shared_tags(len(data.ODD))
    times = [START_NS + i * S for i in range(8_000)]
    cpu = data.batch(CPU, shared, time_ns=times)
    disk = data.batch(DISK, shared, time_ns=times[:7], series=[*range(7)])
    disk = replace(disk, tags={**disk.tags, "path": data.codes([*data.ODD])})
    found = []
    with new_database(mysql_server("mysql").endpoint) as url:
        for options in ("", "&ssl-mode=REQUIRED"):
            session = MYSQL.connect(url + options, schema)
            session.run(schema.create([CPU, DISK], shared))
            payload = schema.encode(cpu, WriteMode.BULK)
            assert len(payload.data) > 256 * 1024  # several statements
            assert session.write(payload) == len(cpu)
            assert session.write(schema.encode(disk, WriteMode.BULK)) == len(disk)
            for name in ("cpu", "disk"):
                text = f'SELECT * FROM "{name}" ORDER BY "time", "tags_id"'
                found.append(session.query(Statement(text), ("x",)).records)
            session.close()
    assert [*map(len, found)] == [len(cpu), len(disk)] * 2
    assert found[:2] == found[2:]
