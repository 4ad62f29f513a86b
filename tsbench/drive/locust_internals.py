"""Everything that depends on Locust's private names, or puts something in the place of its own; nothing else does.

Each function says why it is needed and what happens with a Locust that no longer has the name. `missing` lists the
names that the installed Locust lacks; a test asks it of the oldest and of the newest that pyproject.toml allows.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import gevent
import gevent.os
from locust import argument_parser, runners, web
from locust.event import EventHook
from locust.rpc import zmqrpc
from locust.user.task import TaskSet

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from locust.env import Environment
    from locust.runners import WorkerNode, WorkerRunner
    from locust.web import WebUI

RpcServer: TypeAlias = zmqrpc.Server
RpcClient: TypeAlias = zmqrpc.Client


def missing() -> list[str]:
    """Return the private names that the installed Locust does not have."""
    needed = {
        "locust.argument_parser.default_args_dict": hasattr(argument_parser, "default_args_dict"),
        "locust.event.EventHook._handlers": hasattr(EventHook(), "_handlers"),
        "locust.rpc.zmqrpc.BaseSocket.socket": "socket" in zmqrpc.BaseSocket.__init__.__code__.co_names,
        "locust.runners.HEARTBEAT_INTERVAL": hasattr(runners, "HEARTBEAT_INTERVAL"),
        "locust.runners.HEARTBEAT_LIVENESS": hasattr(runners, "HEARTBEAT_LIVENESS"),
        "locust.runners.WorkerNode.heartbeat": "heartbeat" in runners.WorkerNode.__init__.__code__.co_names,
        "locust.runners.WorkerRunner._send_stats": hasattr(runners.WorkerRunner, "_send_stats"),
        "locust.runners.rpc": getattr(runners, "rpc", None) is zmqrpc,
        "locust.user.task.TaskSet._sleep": "_sleep" in TaskSet.wait.__code__.co_names,
        "locust.web.WebUI._swarm_greenlet": "_swarm_greenlet" in web.WebUI.__init__.__code__.co_names,
        "locust.web.WebUI.update_template_args": hasattr(web.WebUI, "update_template_args"),
    }
    return [name for name, there in needed.items() if not there]


# --- events -----------------------------------------------------------------------------------------------------------


def count_request_listeners(environment: Environment) -> int:
    """Return how many listen to the request event, Locust's own statistics included.

    Locust has no public API for this. Without the name the answer is 2: every op is fired as an event, which is slower
    but right.
    """
    handlers = getattr(environment.events.request, "_handlers", None)
    return 2 if handlers is None else len(handlers)


# --- users ------------------------------------------------------------------------------------------------------------


SLEPT = float(0)
"""What a `wait_time` returns that has slept itself: this very object, for `sleep_once`."""


def sleep_once() -> None:
    """Let a user whose `wait_time` returns `SLEPT` go on at once; Locust would take one more turn of the event loop.

    Without the name it does: users sleep for 0 s.
    """
    sleep = getattr(TaskSet, "_sleep", None)
    if sleep is not None and sleep.__module__ != __name__:

        def unless_slept(self: TaskSet, seconds: float) -> None:
            if seconds is not SLEPT:
                sleep(self, seconds)

        TaskSet._sleep = unless_slept  # type: ignore[method-assign]  # noqa: SLF001 - there is no public way


# --- the start, and workers' statistics -------------------------------------------------------------------------------


def parse_defaults_once() -> None:
    """Let Locust parse its own options' defaults once in a process.

    A worker does so for each option of each message to spawn users, of which a ramp has one a second: 0.7 s of its
    event loop on an idle machine. Without the name it goes on to do so.
    """
    parse = getattr(argument_parser, "default_args_dict", None)
    if parse is not None and not hasattr(parse, "cache_info"):
        argument_parser.default_args_dict = cache(parse)


def take_over_run_time(options: Namespace) -> float | None:
    """Return --run-time in seconds and keep it from Locust, which would count it from its message to spawn users.

    Locust then logs that there is no limit, which is not passed on.
    """
    run_time_s, options.run_time = options.run_time, None
    if run_time_s:
        logging.getLogger("locust.main").addFilter(lambda record: "No run time limit" not in record.getMessage())
    return run_time_s or None


def kill_start(environment: Environment) -> None:
    """Kill a start of users that is under way from the web UI, as Locust's own stop button does.

    `runner.stop` alone lets a master's start go on, and does nothing before the first user of any test but the first.
    Without the name of the web UI's greenlet a master's start goes on.
    """
    runner, starting = environment.runner, getattr(environment.web_ui, "_swarm_greenlet", None)
    own = gevent.getcurrent()
    for greenlet in (starting, getattr(runner, "shape_greenlet", None), getattr(runner, "spawning_greenlet", None)):
        if greenlet is not None and greenlet is not own:
            greenlet.kill(block=True)
    if runner is not None:
        runner.shape_greenlet = runner.shape_last_tick = None


def send_stats(runner: WorkerRunner) -> None:
    """Send the worker's statistics to the master now.

    Locust does so every 3 s. Without the name the master's count may lack the last ops, and the check `counts` fails.
    """
    send = getattr(runner, "_send_stats", None)
    if send is not None:
        send()


# --- lost workers -----------------------------------------------------------------------------------------------------


def allow_silence(silence_s: int) -> None:
    """Let workers count as lost after that time without a heartbeat; Locust has no option for its own limit, 3 s.

    Without the name Locust's own limit holds, and busy workers are lost.
    """
    runners.HEARTBEAT_LIVENESS = silence_s // getattr(runners, "HEARTBEAT_INTERVAL", 1)


def count_as_lost(worker: WorkerNode) -> None:
    """Let a worker count as lost at Locust's next look. Without the name it does after its time of silence."""
    worker.heartbeat = -1


def forked() -> list[int]:
    """Return the process ids of this process's forks, ended ones included. Without the name of gevent's list: none."""
    return list(getattr(gevent.os, "_watched_children", {}))


def exit_code_of(pid: int) -> int | None:
    """Return how a worker that was forked here ended, as `Popen.returncode`; None if it runs or was started elsewhere.

    gevent has waited for it already, and its `waitpid` forgets what it returns, which Locust needs at the end.
    """
    seen = getattr(gevent.os, "_watched_children", {}).get(pid)
    return os.waitstatus_to_exitcode(seen[1]) if isinstance(seen, tuple) else None


# --- sockets ----------------------------------------------------------------------------------------------------------


def prepared_socket(prepare: str) -> property:
    """Return a property for the attribute in which Locust puts its socket, once, before it binds or connects.

    The method called `prepare` sets the socket's options then. Without the name `is_prepared` is False: the process
    ends.
    """

    def put(self: Any, socket: Any) -> None:
        getattr(self, prepare)(socket)
        self.__dict__["socket"] = socket

    return property(lambda self: self.__dict__["socket"], put)


def is_prepared(end: object) -> bool:
    """Return whether Locust has put its socket where `prepared_socket` prepares it."""
    return "socket" in vars(end)


def replace_rpc(server: type[Any], client: type[Any]) -> None:
    """Let masters and workers of this process use these classes, made from `RpcServer` and `RpcClient`.

    Locust has no option for them. It looks them up in their module for each master and worker; a Locust that did not
    would talk in the clear to others of its kind, and not at all to those that encrypt.
    """
    zmqrpc.Server, zmqrpc.Client = server, client  # type: ignore[misc]


# --- the page ---------------------------------------------------------------------------------------------------------


def after_template_args(web_ui: WebUI, change: Callable[[dict[str, Any]], None]) -> None:
    """Let `change` alter the values of the page's template after Locust has made them, for each page anew.

    Locust overwrites what `template_args` had. Without the method the page would not open.
    """
    update = web_ui.update_template_args

    def update_template_args() -> None:
        update()
        change(web_ui.template_args)

    web_ui.update_template_args = update_template_args  # type: ignore[method-assign]
