"""docker-compose.yml and the CI workflow fit their schemas and this project's rules. No container engine runs here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner
from ruamel.yaml import YAML

from tsbench.targets import TARGETS

ROOT = Path(__file__).parent.parent
COMPOSE = ROOT / "docker-compose.yml"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
FULL_VERSION = re.compile(r"[\w./-]+:\d+\.\d+(\.\d+)?(-\w+)*")


def loaded(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    return content


SERVICES: dict[str, dict[str, Any]] = loaded(COMPOSE)["services"]
each_service = pytest.mark.parametrize("service", SERVICES)


def found_wrong(path: Path, schema: str) -> str:
    """What the schema, which comes with check-jsonschema, finds wrong; it is not fetched."""
    done = CliRunner().invoke(check_jsonschema, ["--builtin-schema", f"vendor.{schema}", str(path)])
    return "" if done.exit_code == 0 else done.output


def test_the_compose_file_fits_the_compose_specification():
    assert found_wrong(COMPOSE, "compose-spec") == ""


def test_the_workflow_fits_githubs_schema():
    assert found_wrong(WORKFLOW, "github-workflows") == ""


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


@each_service
def test_ports_are_for_this_host_only(service: str):
    for port in SERVICES[service].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


def test_no_two_services_want_the_same_port():
    ports = [port.rpartition(":")[0] for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == len(set(ports))
    assert "127.0.0.1:8089" in ports


@each_service
def test_images_are_pinned_to_a_full_version(service: str):
    wanted = [SERVICES[service]["image"]]
    build = SERVICES[service].get("build", {})
    wanted += re.findall(r"^FROM (\S+)", build.get("dockerfile_inline", ""), re.MULTILINE)
    assert all(FULL_VERSION.fullmatch(image) for image in wanted), wanted


@each_service
def test_memory_is_limited(service: str):
    assert re.fullmatch(r"\d+[mg]", SERVICES[service]["mem_limit"])


@each_service
def test_a_service_has_a_health_check_or_says_why_not(service: str):
    assert ("healthcheck" in SERVICES[service]) != bool(SERVICES[service].get("x-no-healthcheck"))


def test_no_secret_is_in_the_file_or_in_an_environment():
    whole = loaded(COMPOSE)
    assert all(list(secret) == ["environment"] for secret in whole["secrets"].values())
    for service in SERVICES.values():
        assert set(service.get("secrets", [])) <= set(whole["secrets"])
        for name, value in service.get("environment", {}).items():
            secret = re.search("PASSWORD|TOKEN|SECRET", name)
            assert not secret or str(value).startswith("/run/secrets/"), name


def test_the_image_installs_what_the_lock_says_with_the_uv_of_the_makefile():
    recipe = SERVICES["master"]["build"]["dockerfile_inline"]
    (version,) = re.findall(r"^UV_VERSION := (\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"uv=={version} " in recipe
    assert "--require-hashes -r requirements.lock" in recipe
    copied = {name for line in re.findall(r"^COPY (.*) \S+$", recipe, re.MULTILINE) for name in line.split()}
    assert all((ROOT / name).exists() for name in copied), copied


def test_the_locustfile_and_the_endpoint_go_together():
    (default,) = set(re.findall(r"\$\{TSBENCH_LOCUSTFILE:-(\w+)\}", COMPOSE.read_text(encoding="utf-8")))
    assert default in TARGETS
    assert (ROOT / "locustfiles" / f"{default}.py").exists()
    assert default in SERVICES
    assert f"@{default}:" in SERVICES["master"]["environment"]["TSBENCH_ENDPOINT"]


def test_master_and_workers_see_the_same_results():
    assert SERVICES["master"]["volumes"] == SERVICES["worker"]["volumes"]


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
