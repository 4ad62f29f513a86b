"""The web UI in a real Chromium: with workers, with a password, with mistakes in the start form."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.drive.webui.browser import Browser, wait_until
from tests.drive.webui.served import LOCUSTFILES, SMALL, Served
from tsbench.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.warm import WarmLocust

SENTINEL = "sentinel-4711"


def tab(title: str) -> str:
    return f"[...document.querySelectorAll('[role=tab]')].find(e => e.textContent === '{title}')"


def button(title: str) -> str:
    return f"[...document.querySelectorAll('button')].find(e => e.textContent.includes('{title}'))"


SEEN = """JSON.stringify({
    table: document.querySelector('.tsb-table') ? document.querySelector('.tsb-table').innerText : '',
    legends: [...document.querySelectorAll('.tsb-legend')].map(e => e.innerText),
    charts: [...document.querySelectorAll('.tsb-chart canvas')].map(e => e.toDataURL())})"""


@pytest.mark.chromium
@pytest.mark.slow
def test_a_ramp_is_seen_moving_in_every_tab_and_its_report_opens(
    served: Callable[..., Served], chromium: Browser, tmp_path: Path
) -> None:
    locust = served()
    chromium.go(f"{locust.url}/")
    chromium.click(button("Custom parameters"))
    labels = chromium.until("[...document.querySelectorAll('label')].map(e => e.innerText).join('|')", "the form")
    for parameter in ("Endpoint", "Schema", "Scale", "Seed", "Load Window", "Warmup"):
        assert parameter in labels
    assert chromium.ask("document.querySelector('input[name=host]').offsetParent === null")  # Endpoint is for that
    chromium.type_into("input[name=userCount]", "8")
    chromium.type_into("input[name=spawnRate]", "2")
    chromium.click("document.querySelector('button[type=submit]')")
    for title in ("Latency", "Writes", "Host"):
        # Locust draws its tabs anew when the test starts, and a click before that is lost.
        drawn = f"document.querySelector('#tsb-{title.lower()} canvas') !== null"
        chromium.until(f"{drawn} || ({tab(title)}?.click(), false)", f"the charts of {title}")
        chromium.until("/[0-9]/.test(document.querySelector('.tsb-legend').innerText)", f"figures of {title}")
        first = json.loads(chromium.ask(SEEN))

        def moved(before: dict[str, object] = first) -> bool:
            now = json.loads(chromium.ask(SEEN))
            return all(now[part] != before[part] for part in before)

        wait_until(moved, f"table, legends and charts of {title} to move")
        assert chromium.ask(f"({button('Download the report')}).disabled")
        chromium.shoot(tmp_path / f"{title}.png")
    chromium.click(button("Stop"))
    chromium.until("document.body.innerText.includes('The report is ready')", "the report to be ready")
    chromium.download_to(tmp_path / "downloads")
    chromium.click(button("Download the report"))
    wait_until(lambda: list((tmp_path / "downloads").glob("tsbench-*-locust.html")), "the report to be downloaded")
    chromium.go(f"{locust.url}/tsbench/report?show=1")
    assert "A test from Locust" in chromium.until("document.body.innerText", "the report")
    chromium.shoot(tmp_path / "report.png")
    assert chromium.errors == []


STATUS = "document.getElementById('tsb-status').innerText"


@pytest.mark.nightly
@pytest.mark.chromium
def test_the_page_says_what_the_report_says_and_a_second_test_has_other_classes_and_parameters(
    served: Callable[..., Served], chromium: Browser, tmp_path: Path
) -> None:
    locust = served("--class-picker", "--gate", "failures<50%,write:max<1us")
    chromium.go(f"{locust.url}/")
    chromium.click(button("Custom parameters"))
    chromium.until("Boolean(document.querySelector('input[name=scale]'))", "the parameters")
    chromium.type_into("input[name=scale]", "7")
    chromium.click("document.querySelector('button[type=submit]')")
    chromium.until(f"{STATUS}.includes('Measuring for')", "the measured window")
    chromium.until(f"{STATUS}.includes('write:max<1us: is broken so far')", "a gate that is broken")
    chromium.until(f"{STATUS}.includes('failures<50%: holds so far, 0 %')", "a gate that holds")
    chromium.click(tab("Latency"))
    chromium.until("document.querySelector('[name=tsb-kind]')?.value === 'service'", "service time in a closed loop")
    chromium.click(button("Edit"))
    chromium.until(
        "document.querySelector('form')?.innerText.includes('press STOP, then NEW')", "a line in their place"
    )
    assert "CUSTOM" not in str(chromium.ask("document.querySelector('form').innerText")).upper()
    chromium.ask("document.querySelector('[class*=MuiModal] svg').parentElement.click()")
    chromium.click(button("Stop"))
    chromium.until(f"{STATUS}.includes('Open the report')", "the verdict")
    said = compact(chromium.ask(STATUS))
    (path,) = tmp_path.glob("results/*/*/summary.json")
    summary = json.loads(path.read_text())
    assert compact(summary["validity"]["state"]).lower() in said.lower()
    expect_the_end(chromium, summary, said)
    gates = {gate["gate"]: gate for gate in summary["gates"]}
    assert gates["write:max<1us"]["state"] in {"fail", "not judged"}
    for name in ("failures<50%", "write:max<1us"):
        assert compact(f"{name}: {gates[name]['state']}: {gates[name]['text']}") in said
    chromium.go(f"{locust.url}/tsbench/report?show=1")
    report = compact(chromium.until("document.body.innerText", "the report"))
    live = locust.live()
    assert live["verdict"]["answer"]
    for sentence in live["verdict"]["answer"]:
        assert compact(sentence) in said
        assert compact(sentence) in report

    chromium.go(f"{locust.url}/")  # anew: the parameters are those of the last test all the same
    chromium.click(button("New"))
    chromium.click(button("Custom parameters"))
    chromium.until("document.querySelector('input[name=scale]')?.value === '7'", "the scale of the first test")
    chromium.click("document.querySelectorAll('input[type=checkbox]')[1]")  # of all, BatchWriter, SingleWriter
    chromium.type_into("input[name=scale]", "6")
    chromium.click("document.querySelector('button[type=submit]')")
    chromium.until(f"{STATUS}.includes('Measuring for')", "the second test")
    assert "Open the report" not in chromium.ask(STATUS)
    seconds(locust, 3)
    locust.post("/stop")
    wait_until(lambda: locust.live()["verdict"], "the second verdict")
    second = max(tmp_path.glob("results/*/*/spec.json"), key=lambda one: one.stat().st_mtime)
    assert json.loads(second.read_text())["world"]["scale"] == 6
    assert "write-250" not in json.loads((second.parent / "summary.json").read_text())["measured"]["ops"]
    assert chromium.errors == []
    assert not [line for line in locust.log().splitlines() if "ERROR" in line or "Traceback" in line]


def expect_the_end(chromium: Browser, summary: dict[str, Any], said: str) -> None:
    """Verify the first line of the verdict and the tabs' tables after the checks, which fit a telephone, too."""
    if summary["validity"]["state"] == "valid":  # its first line must not read as if all were well
        asked = [gate for gate in summary["gates"] if not gate["built_in"]]
        assert compact(f"valid, but 1 of {len(asked)} gates failed") in said.lower()
    for title in ("Latency", "Writes", "Host"):
        chromium.click(tab(title))
        chromium.until(f"document.querySelector('#tsb-{title.lower()}') !== null", title)
        tables = "[...document.querySelectorAll('table')].filter(e => e.offsetParent !== null)"
        assert chromium.ask(f"{tables}.length") == 1, title  # Locust's own stays as it was at STOP
        chromium.resize(390, 900)
        assert chromium.ask("document.documentElement.scrollWidth") == 390, title
        chromium.resize(1400, 900)
    limited = f"the test was limited by: {summary['limited_by']}"
    chromium.until(f"document.querySelector('#tsb-table-host')?.innerText.includes('{limited}')", limited)


def compact(text: str) -> str:
    """Return a text without what pages break and print otherwise: blanks, no-break spaces."""
    return "".join(text.split())


@pytest.mark.nightly
@pytest.mark.chromium
def test_the_charts_have_a_page_of_their_own_too(served: Callable[..., Served], chromium: Browser) -> None:
    locust = served()
    locust.start()
    chromium.go(f"{locust.url}/tsbench/")
    chromium.until("document.querySelectorAll('.tsb-legend b').length >= 15", "all legends")
    chromium.until("document.querySelector('#tsb-table-writes').innerText.includes('write-250')", "the writes' table")
    assert chromium.errors == []


@pytest.mark.nightly
def test_what_workers_send_adds_up_to_what_their_files_say(served: Callable[..., Served], tmp_path: Path) -> None:
    locust = served("--processes", "2")
    wait_until(lambda: locust.get("/worker-count").json()["worker_count"] == 2, "two workers")
    locust.start(8)
    wait_until(lambda: any(row["op"] == "write-1" and row["count"] > 200 for row in locust.rows("latency")), "writes")
    wait_until(lambda: locust.rows("host") and locust.live()["limited_by"]["name"] not in {"", "unknown"}, "the limit")
    locust.post("/stop")
    wait_until(lambda: not locust.live()["report"], "the checks")
    (summary_file,) = tmp_path.glob("results/*/*/summary.json")
    summary = json.loads(summary_file.read_text())
    assert summary["validity"]["state"] != "invalid", summary["validity"]
    ops = summary["measured"]["ops"]
    for row in locust.rows("writes"):
        if row["op"] != "all":
            assert row["ok"] == ops[row["op"]]["ok"] > 0
    counts = {op: of["count"] for op, of in ops.items() if of["count"]}
    assert {row["op"]: row["count"] for row in locust.rows("latency")} == counts


def seconds(locust: Served, more: int) -> None:
    """Wait for so many more seconds of a test."""
    seen = {row["second"] for row in locust.live()["seconds"]}
    wait_until(lambda: len({row["second"] for row in locust.live()["seconds"]} - seen) >= more, f"{more} more seconds")


@pytest.mark.nightly
def test_users_that_were_added_to_a_running_test_are_in_its_report_and_the_host_tab_says_what_the_verdict_says(
    served: Callable[..., Served], tmp_path: Path
) -> None:
    locust = served()
    locust.start(2)
    wait_until(lambda: locust.live()["users"] == 2, "two users")
    seconds(locust, 4)
    locust.start(6)
    wait_until(lambda: locust.live()["users"] == 6, "six users")
    seconds(locust, 4)
    locust.post("/stop")
    wait_until(lambda: not locust.live()["report"], "the checks")
    (path,) = tmp_path.glob("results/*/*/summary.json")
    summary = json.loads(path.read_text())
    assert (summary["users_least"], summary["users"]) == (2, 6)
    assert "2 to 6 users" in locust.get("/tsbench/report?show=1").text
    assert summary["limited_by"] == locust.live()["limited_by"]["name"]
    assert locust.rows("host")[0]["note"] == f"the test was limited by: {summary['limited_by']}"
    for op in summary["measured"]["ops"].values():
        shown = {row["op"]: row for row in locust.rows("latency") if row["kind"] == "service"}
        assert op["kind"] == "query" or shown["write-1"]["p999"] == "" or shown["write-1"]["count"] >= 1000


@pytest.mark.slow
def test_a_password_guards_every_route_and_is_shown_nowhere(served: Callable[..., Served], tmp_path: Path) -> None:
    locust = served("--processes", "2", TSBENCH_WEB_PASSWORD=SENTINEL, TSBENCH_PASSWORD=SENTINEL)
    routes = ("/", "/stats/requests", "/exceptions/csv", "/logs", "/tsbench/", "/tsbench/live", "/tsbench/report")
    for path in routes:
        answer = locust.get(path)
        assert answer.status == 302, path
        assert answer.headers["Location"].startswith("/login"), path
    assert locust.post("/swarm", {"user_count": 1, "spawn_rate": 1}).status == 302
    locust.post("/tsbench/login", {"password": "a guess"})
    assert locust.get("/tsbench/live").status == 302
    answer = locust.post("/tsbench/login", {"password": SENTINEL})
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    wait_until(lambda: locust.get("/worker-count").json()["worker_count"] == 2, "two workers")
    locust.start()
    wait_until(lambda: locust.rows("writes"), "writes")
    pages = [locust.get(path).text for path in (*routes[:-1], "/login", "/tsbench/panel.js")]
    family = [psutil.Process(locust.child.pid), *psutil.Process(locust.child.pid).children(recursive=True)]
    assert len(family) >= 3
    locust.post("/stop")
    wait_until(lambda: not locust.live()["report"], "the checks")
    pages += [locust.get("/tsbench/report").text, locust.get("/logs").text, locust.log()]
    pages += [
        path.read_text(errors="replace") for path in tmp_path.glob("results/**/*") if path.suffix in {".json", ".log"}
    ]
    assert not any(SENTINEL in page for page in pages)
    assert not any(SENTINEL in word for process in family if process.is_running() for word in process.cmdline())


@pytest.mark.slow
def test_a_password_in_the_form_is_refused_and_shown_nowhere(served: Callable[..., Served]) -> None:
    locust = served()
    for field in ("endpoint", "host"):
        said = locust.refusal(**{field: f"sqlite://me:{SENTINEL}@there/x.db"})
        assert "holds a password" in said
        assert locust.get("/tsbench/report").status == 409
        pages = [locust.get(path).text for path in ("/", "/stats/requests", "/logs", "/tsbench/live")]
        assert not any(SENTINEL in page for page in [said, *pages, locust.log()])
    locust.start(endpoint="", host="")  # and the form can be corrected
    wait_until(lambda: locust.rows("writes"), "writes")
    assert locust.live()["trouble"] == ""


@pytest.mark.nightly
def test_a_mistake_in_the_form_does_not_end_the_workers(served: Callable[..., Served], tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("no database, which is found only when the test is prepared" * 100)
    locust = served("--processes", "2", "--endpoint", f"sqlite://{tmp_path / 'a.db'}")
    wait_until(lambda: locust.get("/worker-count").json()["worker_count"] == 2, "two workers")
    locust.start(endpoint=f"sqlite://{tmp_path / 'a.db'}")
    wait_until(lambda: locust.live()["trouble"], "the refusal")
    wait_until(lambda: locust.get("/stats/requests").json()["state"] in {"ready", "stopped"}, "the test to end")
    assert locust.live()["report"] == locust.live()["trouble"]
    assert "Traceback" not in locust.log()
    locust.start(endpoint="", load_window="2h")
    wait_until(lambda: locust.rows("writes"), "writes")


def unserved(warm_locust: WarmLocust, place: Path, *words: str, **variables: str) -> str:
    """What Locust with its web UI says when it refuses to serve."""
    bus, port = str(free_port()), str(free_port())
    ports = ["--web-port", port, "--master-bind-port", bus, "--master-port", bus]
    done = warm_locust.run(place, "-f", str(LOCUSTFILES / "sqlite.py"), *ports, *words, env={**SMALL, **variables})
    assert done.code == 2
    return done.stdout + done.stderr


def test_a_password_in_the_endpoint_option_ends_locust_before_it_serves(
    warm_locust: WarmLocust, tmp_path: Path
) -> None:
    said = unserved(warm_locust, tmp_path, TSBENCH_ENDPOINT=f"sqlite://me:{SENTINEL}@there/x.db")
    assert "holds a password" in said
    assert SENTINEL not in said


def test_pages_of_other_sites_are_refused(one: Served) -> None:
    form = {"user_count": 1, "spawn_rate": 1}
    assert one.post("/swarm", form, Origin="http://evil.example").status == 403
    assert one.post("/swarm", form, **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert one.get("/stats/requests", Host="evil.example").status == 403  # DNS rebinding
    assert one.get("/stats/requests", Origin=one.url).status == 200
    assert one.post("/swarm", form, Origin="null").status == 403


BROKEN = (
    b"[",
    b"http://[",
    b"null",
    b"http://[::1",
    b"http://a:b@",
    b"\xff\xfe",
    b"http://\xe2\x84\x80/",
    b"",
    b"x" * 3000,
)


@pytest.mark.slow
def test_a_request_that_cannot_be_read_is_refused_and_is_no_error_of_the_page(served: Callable[..., Served]) -> None:
    for locust in (served().ready(), served(TSBENCH_WEB_PASSWORD=SENTINEL).ready()):
        for path in ("/", "/stats/requests", "/tsbench/live", "/swarm", "/tsbench/login"):
            method = "POST" if path in {"/swarm", "/tsbench/login"} else "GET"
            for odd in BROKEN:
                assert locust.raw(method, path, b"Origin: " + odd)[0] == 403, odd
                assert locust.raw(method, path, b"Sec-Fetch-Site: same-origin", b"Origin: " + odd)[0] == 403, odd
            for odd in (b"[", b"[::1", b"", b"a b", b"\xff", b"x" * 3000):
                assert locust.raw(method, path, b"Host: " + odd)[0] == 403, odd
            for odd in (b"tsbench=\xff", b"tsbench=.eJx.x.y", b"=;;=", b"remember_token=\xff|"):
                assert locust.raw(method, path, b"Cookie: " + odd)[0] < 500, odd
        for path in ("/swarm", "/user", "/tsbench/login", "/stop", "/stats/reset"):
            for kind in (b"multipart/form-data", b"multipart/form-data; boundary=\xff", b"application/json", b"\xff;;"):
                for body in (b"\xff\xfe", b"{", b"null", b"[" * 100_000, b"--x\r\n", b"x" * 2_000_000):
                    assert locust.raw("POST", path, b"Content-Type: " + kind, body=body)[0] < 500, (
                        path,
                        kind,
                        body[:9],
                    )
        assert "Traceback" not in locust.log()
        form = b"Content-Type: application/x-www-form-urlencoded"
        assert locust.raw("POST", "/swarm", form, body=b"a" * 2_000_000)[0] in {302, 413}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ("POST", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403),  # another port of this host, say
        ("POST", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403),
        ("POST", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403),
        ("POST", {"Sec-Fetch-Site": "whatever comes next"}, 403),
        ("GET", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ("GET", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403),
        ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
    ],
)
def test_a_browser_says_whether_a_page_of_ours_asks(
    one: Served, method: str, headers: dict[str, str], status: int
) -> None:
    answer = one.post("/stop", None, **headers) if method == "POST" else one.get("/stats/requests", **headers)
    assert answer.status == status


@pytest.mark.slow
def test_locust_listens_on_this_host_alone_unless_told_otherwise(one: Served, served: Callable[..., Served]) -> None:
    listening = [c for c in psutil.Process(one.child.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert {c.laddr.ip for c in listening if c.laddr.port == one.port} == {"127.0.0.1"}
    told = served("--web-host", "0.0.0.0", TSBENCH_WEB_PASSWORD=SENTINEL)
    listening = [c for c in psutil.Process(told.child.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert {c.laddr.ip for c in listening if c.laddr.port == told.port} == {"0.0.0.0"}


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "", "::"])
def test_locust_does_not_serve_others_without_a_password(warm_locust: WarmLocust, tmp_path: Path, host: str) -> None:
    said = unserved(warm_locust, tmp_path, "--web-host", host)
    assert "set TSBENCH_WEB_PASSWORD (or TSBENCH_WEB_PASSWORD_FILE), or use 127.0.0.1" in said
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_named_in_one_line(warm_locust: WarmLocust, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = unserved(warm_locust, tmp_path, "--web-port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another --web-port" in said
    assert "Traceback" not in said
    assert "Aggregated" not in said


OPTIONS = ("results", "gate", "logfile", "loglevel", "processes", "web_host", "html_file", "tags", "stop_timeout", "x")


def test_the_start_form_sets_what_it_has_fields_for_and_nothing_else(one: Served) -> None:
    form = {"user_count": 1, "spawn_rate": 1}
    for field in (*OPTIONS, "user_classes", "shape_class"):
        answer = one.post("/swarm", {**form, field: "value"})
        assert answer.status == 400, field
        assert f"the form has no field '{field}'" in answer.json()["message"]
    assert one.get("/stats/requests").json()["state"] in {"ready", "stopped"}
    for body in (b'{"user_class_name": "SingleWriter", "target": "null"}', b"[]", b"{"):
        assert one.post_bytes("/user", body).status == 400


@pytest.mark.parametrize("run_time", ["999999999999999999999s", "9" * 30, "169h"])
def test_a_run_time_beyond_a_week_is_refused_in_one_line(one: Served, run_time: str) -> None:
    answer = one.post("/swarm", {"user_count": 1, "spawn_rate": 1, "run_time": run_time})
    assert (answer.status, answer.json()["success"]) == (400, False)
    assert answer.json()["message"] == "run_time: at most 7 days; leave it empty to stop the test by hand"
    assert one.get("/stats/requests").json()["state"] in {"ready", "stopped"}


@pytest.mark.slow
def test_no_value_of_any_field_ends_in_an_error_of_the_server(served: Callable[..., Served]) -> None:
    locust = served("--class-picker")
    form = {"user_count": 1, "spawn_rate": 1}
    answer = locust.post("/swarm", {**form, "shape_class": "x"})
    assert (answer.status, answer.json()["message"]) == (400, "shape_class: there is no 'x'; there are Default")
    fields = ("user_count", "spawn_rate", "run_time", "user_classes", "shape_class")
    for field in fields:
        for value in ("x", "-1", "1e999", "nan", "9" * 400, "\N{SNOWMAN}", "\0"):
            assert locust.post("/swarm", {**form, field: value}).status < 500, (field, value)
    assert locust.get("/stats/requests").json()["state"] in {"ready", "stopped"}


@pytest.mark.slow
def test_a_test_that_runs_when_locust_ends_is_still_checked(served: Callable[..., Served], tmp_path: Path) -> None:
    locust = served()
    locust.start()
    wait_until(lambda: locust.rows("writes"), "writes")
    locust.close()
    (status,) = tmp_path.glob("results/*/*/status.json")
    assert json.loads(status.read_text())["state"] == "complete"
    summary = json.loads(status.with_name("summary.json").read_text())
    assert summary["writes"] is not None, summary["validity"]["checks"]


def test_there_is_no_report_before_a_test_has_run(served: Callable[..., Served]) -> None:
    answer = served().get("/tsbench/report")
    assert answer.status == 409
    assert "No test has run yet" in answer.text
