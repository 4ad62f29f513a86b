"""docker-compose.yml and the CI workflow fit their schemas and this project's rules. No container engine runs here."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner
from ruamel.yaml import YAML

from tests.cli.support import PROGRAMS, TINY
from tests.namespaces import NETWORK
from tsbench import __version__
from tsbench.targets.registry import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
COMPOSE = ROOT / "docker-compose.yml"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
FULL_VERSION = re.compile(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-\w+)*")


def loaded(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    return content


SERVICES: dict[str, dict[str, Any]] = loaded(COMPOSE)["services"]


def found_wrong(path: Path, schema: str) -> str:
    """Return the schema's errors; the schema comes with check-jsonschema and is not downloaded."""
    done = CliRunner().invoke(check_jsonschema, ["--builtin-schema", f"vendor.{schema}", str(path)])
    return "" if done.exit_code == 0 else done.output


def test_the_compose_file_fits_the_compose_specification():
    assert found_wrong(COMPOSE, "compose-spec") == ""


@pytest.mark.parametrize("path", sorted(WORKFLOW.parent.glob("*.yml")), ids=lambda path: path.stem)
def test_the_workflows_fit_githubs_schema(path: Path):
    assert found_wrong(path, "github-workflows") == ""


def test_what_repeats_the_version_is_the_same():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    images = {one["image"] for one in SERVICES.values() if one.get("image", "").startswith("tsbench")}
    assert images == {f"tsbench-locust:{__version__}", f"tsbench-worker:{__version__}"}


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    """The workflow of docs/gates.md as a file."""
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "gates.md").read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / ".github" / "workflows" / "performance.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.nightly
def test_the_workflow_of_the_docs_fits_githubs_schema_and_keeps_a_baseline(workflow: Path, tmp_path: Path):
    assert found_wrong(workflow, "github-workflows") == ""
    (job,) = loaded(workflow)["jobs"].values()
    steps = {step.get("name", step.get("run", "")): step.get("run", "") for step in job["steps"]}
    # With time to think, so that a busy machine's load generator is not the limit, which would fail the step.
    calm = TINY.replace('wait = "5ms"', 'wait = "30ms"').replace('duration = "1s"', 'duration = "6s"')
    (tmp_path / "my.toml").write_text(calm, encoding="utf-8")
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": "summary.md"}
    for said in ("failures<0.1%", "write:p99<1.2x"):
        measure = f"{steps['Measure'].replace('--repeat 5', '--repeat 1')}\n{steps['mv results/* measured']}"
        command = ["bash", "-e", "-c", measure]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for file in ("summary.md", "junit.xml"):
            assert said in (tmp_path / file).read_text(encoding="utf-8").replace("&lt;", "<")
        if said == "failures<0.1%":
            (tmp_path / "measured").rename(tmp_path / "baseline")


def test_the_schema_would_find_a_mistake(tmp_path: Path):
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(COMPOSE.read_text(encoding="utf-8").replace("mem_limit", "memory_limit"), encoding="utf-8")
    assert "memory_limit" in found_wrong(wrong, "compose-spec")


def test_it_has_the_databases_and_a_locust_master_with_workers():
    images = {service["image"].rpartition(".")[0] for service in SERVICES.values()}
    assert {"influxdb:1.8", "influxdb:2.7"} <= images
    assert {"postgres", "master", "worker"} <= set(SERVICES)
    assert SERVICES["worker"].get("container_name") is None, "or there could be only one"
    assert SERVICES["worker"].get("ports") is None, "or there could be only one"
    assert "--master" in SERVICES["master"]["command"].split()
    assert "--master-host master" in SERVICES["worker"]["command"]


def test_ports_are_for_this_host_only_and_no_two_services_want_the_same():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert [port for port in ports if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)] == []
    outside = [port.rpartition(":")[0] for port in ports]
    assert len(outside) == len(set(outside))
    assert "127.0.0.1:8089" in outside


def test_images_are_pinned_to_a_full_version():
    images = [service["image"] for service in SERVICES.values()]
    recipes = "\n".join(service.get("build", {}).get("dockerfile_inline", "") for service in SERVICES.values())
    images += re.findall(r"^FROM (\S+)", recipes, re.MULTILINE)
    assert [image for image in images if not FULL_VERSION.fullmatch(image)] == []


def test_each_service_has_a_limit_of_memory_and_a_health_check_or_says_why_not():
    limits = {name: service.get("mem_limit", "") for name, service in SERVICES.items()}
    assert [name for name, limit in limits.items() if not re.fullmatch(r"\d+[mg]", limit)] == []
    checked = {name for name, service in SERVICES.items() if "healthcheck" in service}
    assert checked ^ {name for name, service in SERVICES.items() if service.get("x-no-healthcheck")} == {*SERVICES}


def test_no_secret_is_in_the_file_or_in_an_environment():
    whole = loaded(COMPOSE)
    assert all(list(secret) == ["environment"] for secret in whole["secrets"].values())
    for service in SERVICES.values():
        assert set(service.get("secrets", [])) <= set(whole["secrets"])
        for name, value in service.get("environment", {}).items():
            secret = re.search("PASSWORD|TOKEN|SECRET", name)
            assert not secret or str(value).startswith("/run/secrets/"), name


def test_a_plain_up_starts_no_database_and_each_has_a_profile_of_its_name():
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items()}
    assert {name for name, own in profiles.items() if not own} == {"master", "worker"}
    assert all(own in ([], [name]) for name, own in profiles.items())


def test_the_headers_first_line_makes_every_secret_that_the_file_needs(tmp_path: Path):
    (line,) = re.findall(r"^#   (umask .*)$", COMPOSE.read_text(encoding="utf-8"), re.MULTILINE)
    subprocess.run(["sh", "-ec", line], cwd=tmp_path, check=True)
    env = tmp_path / ".env"
    assert env.stat().st_mode & 0o077 == 0
    made = dict(text.split("=") for text in env.read_text().splitlines())
    assert set(made) == {secret["environment"] for secret in loaded(COMPOSE)["secrets"].values()}
    assert all(re.fullmatch(r"[0-9a-f]{64}", value) for value in made.values())
    assert len(set(made.values())) == len(made)


def test_a_service_has_only_the_secrets_that_its_variables_name():
    for name, service in SERVICES.items():
        text = json.dumps([service.get(key, "") for key in ("environment", "entrypoint", "command")])
        assert set(re.findall(r"/run/secrets/(\w+)", text)) == set(service.get("secrets", [])), name
    assert "web_password" not in SERVICES["worker"]["secrets"]


def test_the_image_installs_what_the_lock_says_with_the_uv_of_the_makefile():
    recipe = SERVICES["master"]["build"]["dockerfile_inline"]
    (version,) = re.findall(r"^UV_VERSION := (\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"uv=={version} " in recipe
    assert '--require-hashes -r "$(basename "$LOCK")"' in recipe
    locks = {name: SERVICES[name]["build"]["args"]["LOCK"] for name in ("master", "worker")}
    assert locks == {"master": "requirements.lock", "worker": ".ci/worker.lock"}
    assert SERVICES["master"]["image"] != SERVICES["worker"]["image"]
    copied = {name for line in re.findall(r"^COPY (.*) \S+$", recipe, re.MULTILINE) for name in line.split()}
    assert "$LOCK" in copied
    assert all((ROOT / name).exists() for name in {*copied, *locks.values()} - {"$LOCK"}), copied


def test_the_locustfile_and_the_endpoint_go_together():
    (default,) = set(re.findall(r"\$\{TSBENCH_LOCUSTFILE:-(\w+)\}", COMPOSE.read_text(encoding="utf-8")))
    assert default in TARGETS
    assert (ROOT / "locustfiles" / f"{default}.py").exists()
    assert default in SERVICES
    assert f"@{default}:" in SERVICES["master"]["environment"]["TSBENCH_ENDPOINT"]


def test_master_and_workers_see_the_same_results():
    assert SERVICES["master"]["volumes"] == SERVICES["worker"]["volumes"]


# --- run, as far as that is possible without a container engine -------------------------------------------------------

SECRETS = {
    "database_password": "d" * 32,
    "influxdb_token": "t" * 32,
    "web_password": "w" * 32,
    "cluster_secret": "0123456789abcdef" * 2,
}
AS_A_CONTAINER = """
echo "$1" > /proc/sys/kernel/hostname
mount --bind "$2/hosts" /etc/hosts
mount -t tmpfs none /run && cp -r "$2/secrets" /run
shift 2
exec "$@"
"""
ASK = """
import http.client, json, sys
connection = http.client.HTTPConnection(sys.argv[1], 8089, timeout=5)
cookie = {}
try:
    connection.connect()
except OSError:
    print("[]")
    sys.exit()
if sys.argv[3:]:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/tsbench/login", "password=" + sys.argv[3], headers)
    answer = connection.getresponse()
    answer.read()
    cookie = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
connection.request("GET", sys.argv[2], headers=cookie)
answer = connection.getresponse()
print(json.dumps([answer.status, answer.headers.get("Location"), answer.read().decode()]))
"""


class Containers:
    """The file's services as processes, each in namespaces of its own, with its secrets below /run/secrets."""

    def __init__(self, place: Path, hosts: list[str]) -> None:
        self.place = place
        self._hosts = dict(zip(("master", "worker", "outside"), hosts, strict=True))
        self._started: list[subprocess.Popen[bytes]] = []
        (place / "locustfiles").symlink_to(ROOT / "locustfiles")
        lines = [f"{NETWORK}.{number} {name}" for number, name in enumerate(self._hosts, 1)]
        (place / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

        for name in self._hosts:
            secrets = place / name / "secrets"
            secrets.mkdir(parents=True)
            for secret in SERVICES.get(name, {}).get("secrets", []):
                (secrets / secret).write_text(SECRETS[secret])
            shutil.copy(place / "hosts", secrets.parent)

    def _words(self, name: str, words: list[str]) -> list[str]:
        inside = ["unshare", "--uts", "sh", "-ec", AS_A_CONTAINER, "sh", name, str(self.place / name), *words]
        return ["ip", "netns", "exec", self._hosts[name], *inside]

    def _environment(self, name: str, more: dict[str, str]) -> dict[str, str]:
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = SERVICES.get(name, {}).get("environment", {})
        return {"PATH": programs, **{key: interpolated(value) for key, value in environment.items()}, **more}

    def start(self, name: str, *words: str, **variables: str) -> None:
        """Start the service's own command, with more words behind it."""
        command = [*shlex.split(interpolated(SERVICES[name]["command"])), *words]
        with self.log(name).open("wb") as log:
            self._started.append(
                subprocess.Popen(
                    self._words(name, command),
                    cwd=self.place,
                    env=self._environment(name, variables),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def log(self, name: str) -> Path:
        return self.place / f"{name}.log"

    def is_healthy(self, name: str) -> bool:
        """Run the service's health check in its container."""
        kind, *words = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        words = [interpolated(word) for word in words]
        done = subprocess.run(
            self._words(name, words), env=self._environment(name, {}), capture_output=True, check=False, timeout=30
        )
        return done.returncode == 0

    def ask(self, path: str, password: str = "") -> list[Any]:
        """Ask the master's page from another host: status, Location and text; nothing if it does not answer."""
        words = [sys.executable, "-c", ASK, f"{NETWORK}.1", path, *([password] if password else [])]
        done = subprocess.run(self._words("outside", words), capture_output=True, check=True, timeout=30)
        return list(json.loads(done.stdout))

    def close(self) -> None:
        for process in self._started:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def interpolated(text: str) -> str:
    """Return a value with the defaults of its variables, as compose makes it with an empty environment."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(text)).replace("$$", "$")


@pytest.fixture
def containers(tmp_path: Path, hosts: list[str]) -> Iterator[Containers]:
    made = Containers(tmp_path, hosts)
    yield made
    made.close()


def until(condition: Callable[[], object], log: Path) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, log.read_text()
        time.sleep(0.3)


@pytest.mark.netns
@pytest.mark.slow
def test_the_published_page_answers_with_a_login_and_takes_workers_that_know_the_secret(containers: Containers):
    assert not containers.is_healthy("master")
    containers.start("master")
    until(lambda: containers.is_healthy("master"), containers.log("master"))
    status, location, _ = containers.ask("/")
    assert status == 302
    assert location.startswith("/login")
    assert containers.ask("/login")[0] == 200
    assert containers.ask("/worker-count")[0] == 302
    assert containers.ask("/worker-count", "a guess")[0] == 302
    assert json.loads(containers.ask("/worker-count", SECRETS["web_password"])[2]) == {"worker_count": 0}
    containers.start("worker")

    def workers() -> int:
        return int(json.loads(containers.ask("/worker-count", SECRETS["web_password"])[2])["worker_count"])

    until(lambda: workers() == 1, containers.log("worker"))


@pytest.mark.netns
@pytest.mark.slow
def test_the_health_check_sees_a_page_that_nobody_else_can_reach(containers: Containers):
    containers.start("master", "--web-host", "127.0.0.1", TSBENCH_WEB_PASSWORD_FILE="")
    until(lambda: "Starting web interface" in containers.log("master").read_text(), containers.log("master"))
    time.sleep(3)
    assert containers.ask("/login") == []
    assert not containers.is_healthy("master")


def test_the_workflow_runs_what_ci_runs_with_no_more_rights_than_reading():
    workflow = loaded(WORKFLOW)
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert ".ci/run" in [step.get("run") for step in job["steps"]]
    for step in job["steps"]:
        assert re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", step.get("uses", "actions/x@v1.0.0"))
    assert "secrets." not in WORKFLOW.read_text(encoding="utf-8")


def test_what_the_workflow_keeps_is_what_ci_leaves():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    workflow = WORKFLOW.read_text(encoding="utf-8")
    assert "--junit results/quickstart.xml --markdown results/quickstart.md" in script
    assert "--junitxml=results/tests.xml" in script
    for copy, name in (("own", "ci"), ("other", "ci-other")):
        assert f"keep {copy} {name}\n" in script
    assert "for name in ci ci-other; do" in workflow
    assert "results/$name/quickstart.md" in workflow
    assert "path: results/" in workflow
