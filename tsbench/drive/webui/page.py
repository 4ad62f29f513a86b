"""tsbench in Locust's web UI: the tabs Latency, Writes and Host, their charts, and the run's report.

Locust's UI accepts tables for additional tabs, nothing else. Our script adds the charts below the tables in the same
tabs, and draws a page of its own, `/tsbench`.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Protocol

import gevent
from flask import Blueprint, Response, jsonify, make_response, request, send_file, send_from_directory
from gevent.lock import Semaphore
from locust.runners import (
    STATE_CLEANUP,
    STATE_RUNNING,
    STATE_SPAWNING,
    STATE_STOPPED,
    STATE_STOPPING,
    MasterRunner,
)

from tsbench.clock import epoch_ns
from tsbench.collect.processes import HostCollector, Tree
from tsbench.drive import locust_internals
from tsbench.drive.webui import login, start_form, tabs
from tsbench.drive.webui.live_figures import Figures, Updates
from tsbench.drive.webui.start_form import Stage, TestState
from tsbench.servers.children import Child, program
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from locust.env import Environment

    from tsbench.collect.sampler import Row
    from tsbench.drive.coordinator import Coordinator
    from tsbench.drive.load_process import LoadProcess
    from tsbench.drive.run_plan import RunPlan
    from tsbench.results.summary import Summary
    from tsbench.scenario.spec import Job

WATCH = "tsbench-watch"
"""Message of the master to its workers: a page watches a test, whose id follows."""
STATIC = Path(__file__).parent / "static"
WORKERS_LATE_S = 4
REPORT_TIMEOUT_S = 300.0
INDEX_EXTRA = (
    b'<link rel="stylesheet" href="./tsbench/panel.css"><script defer src="./tsbench/status.js"></script>'
    b'<script defer src="./tsbench/panel.js"></script></head>'
)


class WorkerReporter:
    """Sends a worker's updates along with Locust's reports, while a web UI shows them."""

    def __init__(self, environment: Environment, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._test = ""
        self._updates: Updates | None = None
        runner: Any = environment.runner
        runner.register_message(WATCH, self._on_watch)
        coordinator.began.append(self._on_began)
        environment.events.report_to_master.add_listener(self._on_report)

    def _on_watch(self, msg: Any, **_: Any) -> None:
        self._coordinator.keeps_running = True
        self._test = msg.data["test"]

    def _on_began(self, process: LoadProcess) -> None:
        self._updates = _attach(self._test, process) if self._test else None

    def _on_report(self, data: dict[str, Any], **_: Any) -> None:
        if self._updates is not None:
            data["tsbench"] = self._updates.take().packed()


def _attach(test: str, process: LoadProcess) -> Updates:
    updates = Updates(test, process.share.name)
    process.recorder.observer = process.files.loop_monitor.observer = updates
    return updates


class TestFace(Protocol):
    """The test of a bare Locust, as its page needs it."""

    run_time_s: float | None

    def server_pids(self) -> Sequence[int]:
        """Return the processes of the server that was started here."""
        ...

    def refusal(self, form: Mapping[str, str], picked: Collection[str]) -> str:
        """Return why no test can be started with these fields and user classes, "" if one can."""
        ...

    def abandon(self) -> None:
        """Stop the preparation of a test."""
        ...


class WebPage:
    """tsbench's part of the web UI: keeps the figures of the test and serves them."""

    def __init__(self, environment: Environment, coordinator: Coordinator, test: TestFace) -> None:
        self._runner: Any = environment.runner
        self._coordinator, self._test = coordinator, test
        self._master = environment.runner if isinstance(environment.runner, MasterRunner) else None
        self.figures = Figures(delay_s=0 if self._master is None else WORKERS_LATE_S)
        self._updates: Updates | None = None
        self._state = TestState()
        self._building = Semaphore()
        self._form: Mapping[str, str] = {}
        """The fields with which the last test was started or changed."""
        self._spec: Job | None = None
        self._watcher: gevent.Greenlet | None = None
        coordinator.keeps_running = True
        coordinator.began.append(self._on_began)
        environment.events.worker_report.add_listener(self._on_worker_report)
        environment.events.test_stop.add_listener(self._on_test_stop)
        base = environment.parsed_options.web_base_path if environment.parsed_options else None
        self._install(environment.web_ui, f"{base or ''}/tsbench")

    # --- the test -----------------------------------------------------------------------------------------------------

    def _refusal(self, form: Mapping[str, str], picked: Collection[str]) -> str:
        """Return why no test can be started, or the running one not changed, with these fields; "" if that can be."""
        reason = self._stage_now.why_no_start or self._test.refusal(form, picked)
        if not reason:
            self._form = {**self._form, **form}
        return reason

    def _stop_preparing(self) -> bool:
        if self._stage_now.stage is not Stage.PREPARING:
            return False
        self._test.abandon()
        self._state.end(None, "The test was stopped before it began.")
        return True

    def _end_after(self, run_time_s: float | None) -> None:
        if not self._running:  # which keeps its own
            self._test.run_time_s = run_time_s

    def planning(self) -> None:
        """Prepare for a test that is about to begin."""
        self._state.enter(Stage.PREPARING)
        self._spec = None
        if self._master is not None:  # should it not begin, its workers need not end
            self._master.send_message(WATCH, {"test": ""})

    def progressed(self, step: str, share: float | None) -> None:
        """Show how far the test's preparation or its checks are."""
        self._state.step, self._state.share = step, share

    def planned(self, run: RunPlan) -> None:
        """Start the figures of a test whose plan is known."""
        test = str(run.directory)
        self.figures.begin(test)
        self._spec = run.spec
        if self._master is not None:
            self._master.send_message(WATCH, {"test": test})
        self._watcher = self._watcher or gevent.spawn(self._watch)

    def checking(self) -> None:
        """Show that a test has ended and is being checked."""
        self._state.enter(Stage.CHECKING)
        self._take()
        if self._coordinator.end_s is not None:
            self.figures.end(self._coordinator.end_s)

    def reported(self, results: Path, summary: Summary) -> None:
        """Show the result of a test that was checked; `results` is its directory."""
        self._state.end(results, verdict=gevent.get_hub().threadpool.apply(start_form.verdict_of, (results, summary)))
        if summary.limited_by is not None:
            self.figures.verdict = summary.limited_by, summary.limit

    def _on_began(self, process: LoadProcess) -> None:
        self._updates = _attach(str(process.files.directory), process)

    def _on_worker_report(self, client_id: str, data: dict[str, Any], **_: Any) -> None:
        update = data.pop("tsbench", None)
        if update is not None:
            self.figures.window.start_s = self._coordinator.start_s
            try:
                self.figures.take(Updates.unpacked({**update, "process": client_id}))
            except ValueError as error:
                self._runner.server.refuse(client_id, str(error))

    def _on_test_stop(self, **_: Any) -> None:
        self._take()
        if self._state.results is None:
            self._state.end(None, "The test ended before it had begun to measure.")

    def _watch(self) -> None:
        """Sample this host once a second, in a thread of the pool: the event loop must not wait for it."""
        pids, pool = self._test.server_pids, gevent.get_hub().threadpool
        host, server = HostCollector(Tree(lambda: [os.getpid()], without=pids)), Tree(pids)

        def sample(passed_s: float) -> Row:
            used = {f"server_{name}": value for name, value in server.usage(passed_s).items()}
            return {"second": epoch_ns() / NS_PER_S, **host.sample(passed_s), **(used if pids() else {})}

        last = time.monotonic()
        pool.apply(sample, (0.0,))  # start of the first difference
        while True:
            gevent.sleep(1.0)
            passed_s, last = time.monotonic() - last, time.monotonic()
            row = pool.apply(sample, (passed_s,))
            if self._running:
                self.figures.host.append({name: float(value) for name, value in row.items()})
                self._take()

    def _take(self) -> None:
        if self._updates is not None:
            self.figures.window.start_s = self._coordinator.start_s or self.figures.window.start_s
            self.figures.take(self._updates.take())

    @property
    def _running(self) -> bool:
        return self._runner.state in {STATE_SPAWNING, STATE_RUNNING}

    @property
    def _stage_now(self) -> TestState:
        """The state of the test, after a look at what Locust has done meanwhile."""
        state = self._state
        if state.stage is Stage.PREPARING and self._coordinator.start_error:
            state.end(state.results, self._coordinator.start_error)
        elif state.stage is Stage.PREPARING and self._running:
            state.enter(Stage.RUNNING)
        return state

    @property
    def _progress(self) -> dict[str, str | float | None] | None:
        """The step of the test and its share, as the page shows them; None if no test is on."""
        state, start_s, spec = self._stage_now, self.figures.window.start_s, self._spec
        if state.stage is not Stage.RUNNING or spec is None:
            return state.progress
        passed_s = -1.0 if start_s is None else epoch_ns() / NS_PER_S - start_s
        warmup_s, run_time_s = spec.drive.longest_warmup / NS_PER_S, self._test.run_time_s
        return start_form.measuring(passed_s, None if run_time_s is None else run_time_s - warmup_s)

    @property
    def _shown_state(self) -> str:
        """Locust's state, as its page should take it.

        Until its `test_start` listeners return Locust reports "ready" or "stopped": its page would show the start form
        again, and not watch the test. In "cleanup" and "stopping" it would ask no more, and not see the end.
        """
        if self._stage_now.stage is Stage.PREPARING:
            return STATE_SPAWNING
        state = str(self._runner.state)
        return STATE_STOPPED if state in {STATE_CLEANUP, STATE_STOPPING} else state

    # --- the pages ----------------------------------------------------------------------------------------------------

    def _install(self, web_ui: Any, prefix: str) -> None:
        routes = Blueprint("tsbench", __name__, url_prefix=prefix)
        login.protect(web_ui, routes)
        start_form.guard(web_ui, self._refusal, self._stop_preparing, self._end_after)
        views = {
            "/": lambda: send_from_directory(STATIC, "page.html"),
            "/panel.js": lambda: send_from_directory(STATIC, "panel.js"),
            "/status.js": lambda: send_from_directory(STATIC, "status.js"),
            "/panel.css": lambda: send_from_directory(STATIC, "panel.css"),
            "/live": self._live,
            "/report": self._report,
        }
        for path, view in views.items():
            routes.add_url_rule(path, endpoint=path[1:].replace(".", "-") or "page", view_func=_guarded(web_ui, view))
        routes.after_request(_careful)
        web_ui.app.register_blueprint(routes)
        web_ui.app.after_request(self._extend)
        web_ui.template_args["extended_tabs"] = [{"title": t.title, "key": t.key} for t in tabs.TABLES]
        web_ui.template_args["extended_tables"] = [
            {"key": t.key, "structure": [{"key": key, "title": title} for key, title in t.columns.items()]}
            for t in tabs.TABLES
        ]
        web_ui.template_args["extended_csv_files"] = [
            {"href": "./tsbench/report", "title": "Download the tsbench report of the last test"}
        ]
        locust_internals.after_template_args(web_ui, self._correct)

    def _correct(self, template_args: dict[str, Any]) -> None:
        """Set the state of a page that opens, and the last test's parameters; drop the warning on a missing host.

        A server is started without one.
        """
        extra = {
            name: {**option, "default_value": self._form.get(name, option["default_value"])}
            for name, option in template_args["extra_options"].items()
        }
        run_time = self._form.get("run_time", template_args["run_time"])
        template_args.update(
            missing_host_warning=False, state=self._shown_state, extra_options=extra, run_time=run_time
        )

    def _extend(self, response: Response) -> Response:
        """Add the tables to Locust's figures, and the script to its page."""
        if response.status_code == 200 and request.endpoint == "locust.request_stats":
            stats = {**response.get_json(), "state": self._shown_state}
            stats["extended_stats"] = [{"key": t.key, "data": t.rows(self.figures, self._users)} for t in tabs.TABLES]
            return jsonify(stats)  # another response: Locust keeps its own for 2 s and hands it to several readers
        if response.status_code == 200 and request.endpoint == "locust.index":
            response.set_data(response.get_data().replace(b"</head>", INDEX_EXTRA, 1))
        return response

    @property
    def _users(self) -> int:
        return int(self._runner.user_count)

    def _live(self) -> Response:
        """Return the changes since the reader's last request."""
        same = request.args.get("test", "") == self.figures.test
        live = self.figures.since(request.args.get("revision", 0, int) if same else 0, ended=not self._running)
        verdict, spec = self.figures.verdict, self._spec
        name, why = self.figures.limit(self._users) if self._running else (verdict[0] if verdict else "", "")
        return jsonify(
            {
                "test": self.figures.test,
                "running": self._running,
                "state": self._shown_state,
                "users": self._users,
                "start": self.figures.window.start_s,
                **live,
                "host": self.figures.host_since(request.args.get("host", 0.0, float) if same else 0.0),
                "tables": [
                    {"key": t.key, "columns": list(t.columns.items()), "rows": t.rows(self.figures, self._users)}
                    for t in tabs.TABLES
                ],
                "limited_by": {"name": name, "why": why},
                "trouble": self._coordinator.start_error,
                "stage": self._stage_now.stage,
                "progress": self._progress,
                "time": None if spec is None else spec.drive.time,
                "gates": [] if spec is None else list(map(asdict, self.figures.gates(spec.demands, spec.drive.time))),
                "verdict": self._stage_now.verdict,
                "report": self._coordinator.start_error or self._stage_now.why_no_report,
            }
        )

    def _report(self) -> Response:
        """Return the report of the last test: as a file, or with `?show=1` as a page."""
        state = self._stage_now
        results = state.results
        if state.why_no_report or results is None:
            answer = make_response(self._coordinator.start_error or state.why_no_report, 409)
            answer.mimetype = "text/plain"
            if state.stage is Stage.CHECKING:
                answer.headers["Refresh"] = "2"  # the browser asks again, until the report is there
            return answer
        with self._building:
            path = results / "report.html"
            if not path.exists():
                # A child process: drive may not import report, and plotting would delay the event loop.
                others = (name for name in os.environ if not name.startswith(("LOCUST_", "TSBENCH_")))
                hidden = {name: os.environ[name] for name in others}
                with TemporaryFile() as said:
                    command = [*program("tsbench.cli.main"), "report", str(results)]
                    child = Child(command, stdout=DEVNULL, stderr=said, env=hidden)
                    in_time = child.wait(REPORT_TIMEOUT_S)
                    child.kill()
                    said.seek(0)
                    text = said.read().decode(errors="replace").strip()
                if not in_time:
                    return make_response(f"The report was not made within {REPORT_TIMEOUT_S:g} s.", 500)
                if not path.exists():
                    return make_response(text or "The report could not be made.", 500)
        show = bool(request.args.get("show"))
        response = send_file(path, "text/html", as_attachment=not show, download_name=f"tsbench-{results.name}.html")
        response.headers["Content-Security-Policy"] = "sandbox allow-scripts"
        return response


def _guarded(web_ui: Any, view: Callable[[], Response]) -> Callable[[], Response]:
    def guarded() -> Response:
        return view()

    wrapped: Callable[[], Response] = web_ui.auth_required_if_enabled(guarded)
    return wrapped


def _careful(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault(
        "Content-Security-Policy", "default-src 'self'; base-uri 'none'; frame-ancestors 'self'"
    )
    return response
