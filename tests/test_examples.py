"""examples/: each file is valid where it is to be used, and says what this version understands."""

from __future__ import annotations

import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml
from check_jsonschema.cli import main as check_jsonschema
from support.command import REPOSITORY
from support.scenarios import judged

from preflight import registry
from preflight.cli import main as cli
from preflight.cli.flags import flags_of
from preflight.config import file
from preflight.config import resolve as config
from preflight.identity.discover import discover
from preflight.judge.verdict import EXIT
from preflight.model import Verdict
from preflight.render import prometheus

EXAMPLES = REPOSITORY / "examples"
FILES = sorted(path for path in EXAMPLES.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix in (".sbatch", ".sh")]
MANIFESTS = sorted((EXAMPLES / "kubernetes").iterdir())
KUBERNETES = "1.37"

# what a shell would put in the place of a variable of these scripts
VARIABLES = {"SLURM_JOB_ID": "4711", "SLURM_NNODES": "4", "SLURM_NODEID": "3"}


def named(path: Path) -> str:
    return path.relative_to(EXAMPLES).as_posix()


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def test_the_table_names_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)) == {
        named(path) for path in FILES if path.name != "README.md"
    }


# --- what they say to preflight ---


def lists(value: Any) -> Iterator[list[str]]:
    """Every list of words in a document; `command` and `args` of a container are one."""
    if isinstance(value, Mapping):
        if "command" in value:
            yield [*value["command"], *value.get("args", ())]
        for key, inner in value.items():
            if key not in ("command", "args"):
                yield from lists(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from lists(inner)


def lines(path: Path) -> Iterator[list[str]]:
    """The words of every `preflight …` in a script or in a `run:` of a workflow."""
    text = re.sub(r"^\s*#.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for found in re.findall(r"\bpreflight .*", text.replace("\\\n", " ")):
        known = re.sub(r"\$\{?(\w+)\}?", lambda m: VARIABLES.get(m[1], m[0]), found)
        yield shlex.split(known)


def command_lines() -> Iterator[tuple[str, list[str]]]:
    for path in (path for path in FILES if path.parent.name != "grafana"):
        if path.suffix == ".yaml" and path.parent.name != "github":
            found = [words for document in documents(path) for words in lists(document)]
        elif path.suffix != ".md":
            found = list(lines(path))
        for words in found if path.suffix != ".md" else []:
            if words[0] == "preflight":
                yield named(path), words[1:]


COMMAND_LINES = list(command_lines())


def test_the_command_lines_are_found() -> None:
    """All but these two start preflight themselves; they leave it to the image."""
    entry = {"docker/run.sh", "docker/compose.yaml"}
    assert {name for name, _ in COMMAND_LINES} == {
        named(p) for p in FILES if p.name != "README.md" and p.parent.name != "grafana"
    } - entry


@pytest.mark.parametrize(("name", "words"), COMMAND_LINES, ids=lambda v: str(v)[:40])
def test_a_command_line_is_understood(name: str, words: Sequence[str]) -> None:
    app = typer.main.get_command(cli.app)
    with app.make_context("preflight", list(words)) as top:
        verb, _, rest = app.resolve_command(top, list(words))
        assert verb in ("run", "gate")
        command = app.commands[verb]
        with command.make_context(verb, list(rest), parent=top) as ctx:
            given = {key: value for key, value in ctx.params.items() if key != "command"}
            flags = flags_of(ctx, given)
            today = datetime.date(2026, 1, 1)
            chosen = config.resolve(flags, {}, "", registry.load(), today)
            if verb == "gate":
                assert ctx.params["command"][0] == "torchrun"
            if "--arrive" in words:
                assert chosen.arrive < chosen.deadline, "who comes last must be judged, too"


# --- Prometheus and Grafana ---

METRIC = re.compile(r"\b(preflight_\w+)(?:\{([^}]*)\})?")
WRITTEN = dict(
    re.findall(r"^(preflight_\w+)(?:\{(.*)\})? \S+$", prometheus.render(judged("nodes-64")), re.M)
)
"""Each metric that we write, with the labels of one of its series."""


def expressions() -> Iterator[str]:
    board = json.loads((EXAMPLES / "grafana/dashboard.json").read_text(encoding="utf-8"))
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for group in documents(EXAMPLES / "grafana/rules.yaml")[0]["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def test_what_is_asked_of_prometheus_is_what_we_write() -> None:
    asked = [found for expression in expressions() for found in METRIC.findall(expression)]
    assert len({name for name, _ in asked}) >= 6
    for name, labels in asked:
        assert name in WRITTEN
        # instance is Prometheus' own
        used = set(re.findall(r"(\w+)(?==|!=|=~|!~)", labels)) - {"instance"}
        assert used <= set(re.findall(r'(\w+)="', WRITTEN[name])), (name, used)


def test_the_rules_are_rules_of_prometheus() -> None:
    path = EXAMPLES / "grafana/rules.yaml"
    rules = [rule for group in documents(path)[0]["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 4
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
    if promtool := shutil.which("promtool"):
        subprocess.run([promtool, "check", "rules", path], check=True, timeout=20)


def test_the_panels_of_the_dashboard_lie_beside_each_other() -> None:
    board = json.loads((EXAMPLES / "grafana/dashboard.json").read_text(encoding="utf-8"))
    assert board["uid"] == "preflight"
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
    known = {variable["name"] for variable in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) <= known


# --- shell ---


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_a_script_is_one_for_its_shell(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    shell = {"#!/bin/bash": "bash", "#!/bin/sh": "sh"}[text.splitlines()[0]]
    subprocess.run([shell, "-n", path], check=True, timeout=10)
    assert os.access(path, os.X_OK) == (path.suffix == ".sh"), "sbatch reads its file"
    # sbatch reads its directives up to the first command
    head = text.partition("\nset ")[0]
    assert head.count("#SBATCH") == text.count("#SBATCH")


STUB = """#!/bin/sh
echo "$(basename "$0") $*" | tr -s ' \\\\\\n' ' ' >> "$CALLS"
echo >> "$CALLS"
case "$1 $2" in "preflight "*) exit "${CODE:-0}" ;; "show hostnames") echo n1; echo n2 ;; esac
"""


def called(script: str, folder: Path, *args: str, **variables: str) -> tuple[int, list[str]]:
    """How a script ends, and what it calls."""
    for name in ("srun", "scontrol", "docker"):
        stub = folder / name
        stub.write_text(STUB)
        stub.chmod(0o755)
    calls = folder / "calls"
    calls.write_text("")
    environ = {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(calls)}
    given = {"SLURM_JOB_ID": "4711", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    ended = subprocess.run(
        [EXAMPLES / script, *args] if script.endswith(".sh") else ["bash", EXAMPLES / script],
        env=environ | given | variables,
        timeout=20,
        check=False,
    )
    return ended.returncode, [line.strip() for line in calls.read_text().splitlines()]


@pytest.mark.parametrize(
    ("code", "restarts", "then"),
    [
        ("0", "0", ["srun bash"]),
        ("3", "0", []),
        ("4", "0", []),
        ("5", "0", ["scontrol requeue"]),
        ("5", "1", []),
    ],
)
def test_a_first_step_that_fails_starts_no_training(
    code: str, restarts: str, then: list[str], tmp_path: Path
) -> None:
    ended, calls = called(
        "slurm/first-step.sbatch", tmp_path, CODE=code, SLURM_RESTART_COUNT=restarts
    )
    assert ended == int(code)
    assert calls[0].startswith("scontrol show hostnames")
    assert calls[1].startswith("srun preflight run --nproc 8")
    assert [" ".join(call.split()[:2]) for call in calls[2:]] == then


def test_the_gate_is_the_only_step(tmp_path: Path) -> None:
    ended, calls = called("slurm/gate.sbatch", tmp_path, CODE="3")
    assert ended == 3
    assert calls[1:] == [
        "srun preflight gate -- torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend "
        "c10d --rdzv-id 4711 --rdzv-endpoint n1:14711 train.py"
    ]


def test_a_docker_container_is_given_what_a_job_needs(tmp_path: Path) -> None:
    variables = {"NODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "gpu1"}
    ended, (call,) = called("docker/run.sh", tmp_path, "IMAGE", "train.py", **variables)
    words = call.split()
    assert ended == 0
    assert words[-3:] == ["IMAGE", "torchrun", "train.py"]
    assert [words[words.index(flag) + 1] for flag in ("--gpus", "--shm-size", "--network")] == [
        *("all", "8g", "host")
    ]
    environ = dict(word.split("=", 1) for word in words if word.startswith("PET_"))
    found = discover(environ, "gpu2")
    assert (len(found.nodes), found.size, found.master_addr) == (1, 16, "gpu1")
    assert found.nodes[0].ranks == tuple(range(8, 16))


# --- manifests ---


def templates(value: Any) -> Iterator[dict[str, Any]]:
    """Every PodTemplateSpec in a document."""
    if isinstance(value, Mapping):
        if "containers" in value.get("spec", {}):
            yield dict(value)
        for inner in value.values():
            yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


ALL = [(named(path), d) for path in MANIFESTS for d in documents(path)]
an_object = pytest.mark.parametrize(("name", "document"), ALL, ids=lambda v: str(v)[:30])


def of_kind(kind: str) -> dict[str, Any]:
    (document,) = (d for _, d in ALL if d["kind"] == kind)
    return document


def job(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}


def valid(document: dict[str, Any]) -> None:
    """By the schemas of Kubernetes itself, silently that they don't know."""
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_what_kubernetes_knows_itself() -> None:
    for document in (of_kind("Service"), of_kind("Job")):
        valid(document)
    misspelt = json.loads(json.dumps(of_kind("Job")).replace("completionMode", "completionMod"))
    with pytest.raises(kubernetes_validate.ValidationError):
        valid(misspelt)


@an_object
def test_the_pods_are_pods(name: str, document: dict[str, Any]) -> None:
    found = list(templates(document))
    assert found or document["kind"] in ("Service", "TrainJob")
    for template in found:
        pod = {"restartPolicy": "Never"} | template["spec"]  # an operator's runtime may add it
        valid(job({"template": {**template, "spec": pod}}))


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("JobSet", "JobsetV1alpha2JobSet"),
        ("TrainingRuntime", "TrainerV1alpha1TrainingRuntime"),
        ("TrainJob", "TrainerV1alpha1TrainJob"),
    ],
)
def test_an_operators_kinds_are_as_it_has_published_them(kind: str, model: str) -> None:
    """The models drop what they don't know: nothing may be lost."""
    from kubeflow_trainer_api import models  # a second or two, which every worker would take

    published = getattr(models, model)
    document = of_kind(kind)
    assert published.from_dict(document).to_dict() == document
    assert published.from_dict(document | {"spek": {}}).to_dict() == document, "so it would be seen"


def test_the_jobs_of_the_jobset_are_jobs() -> None:
    (replicated,) = of_kind("JobSet")["spec"]["replicatedJobs"]
    valid(job(replicated["template"]["spec"]))


def test_the_pytorchjob() -> None:
    """Its schema is published nowhere that a test could take it from: this is written by hand from
    the API of the training operator 1.9 (PyTorchJobSpec, ReplicaSpec)."""
    document = of_kind("PyTorchJob")
    assert document["apiVersion"] == "kubeflow.org/v1"
    assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
    spec = document["spec"]
    assert set(spec) <= {"elasticPolicy", "nprocPerNode", "pytorchReplicaSpecs", "runPolicy"}
    assert isinstance(spec["nprocPerNode"], str), "auto, cpu, gpu or a number, as text"
    assert set(spec["pytorchReplicaSpecs"]) == {"Master", "Worker"}
    for replicas in spec["pytorchReplicaSpecs"].values():
        assert set(replicas) == {"replicas", "restartPolicy", "template"}
        assert replicas["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode")
        names = [c["name"] for c in replicas["template"]["spec"]["containers"]]
        assert names == ["pytorch"], "the operator looks for it"
    assert spec["pytorchReplicaSpecs"]["Master"]["replicas"] == 1


def test_nobody_meets_in_an_init_container() -> None:
    """It has no identity there and the others have no name yet: the gate does that."""
    for _, document in ALL:
        for template in templates(document):
            for container in template["spec"].get("initContainers", ()):
                words = container["command"]
                assert words[words.index("--level") + 1] == "quick"
                (main,) = template["spec"]["containers"]
                assert container["resources"] == main["resources"], "it sees what it asks for"


def rules(document: Mapping[str, Any]) -> Mapping[str, list[int]]:
    """action -> exit codes of a podFailurePolicy."""
    spec = document["spec"]
    if "replicatedJobs" in spec:
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    found = {}
    for rule in spec["podFailurePolicy"]["rules"]:
        if codes := rule.get("onExitCodes"):
            assert (codes["operator"], codes["containerName"]) == ("In", container["name"])
            assert codes["values"] == sorted(set(codes["values"])), "the API asks for it"
            found[rule["action"]] = codes["values"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "the policy needs it"
    return found


def test_exit_codes_mean_what_the_contract_says() -> None:
    failed = [cli.USAGE, EXIT[Verdict.NOT_READY]]
    again = [EXIT[Verdict.UNDECIDED], EXIT[Verdict.INCOMPLETE]]
    assert rules(of_kind("Job")) == {"FailJob": failed, "Count": again}
    assert rules(of_kind("JobSet")) == {"FailJob": failed}
    script = (EXAMPLES / "slurm/first-step.sbatch").read_text(encoding="utf-8")
    cases = re.findall(r"^(\d)\)", script, re.MULTILINE)
    assert cases == [str(EXIT[Verdict.READY]), str(EXIT[Verdict.INCOMPLETE])]


@pytest.mark.parametrize(
    ("kind", "master"), [("Job", "train-0.train"), ("JobSet", "train-node-0-0.train")]
)
def test_the_pods_know_who_they_are(kind: str, master: str) -> None:
    document = of_kind(kind)
    (template,) = templates(document["spec"])
    (container,) = template["spec"]["containers"]
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    environ = {"JOB_COMPLETION_INDEX": "1", "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    for variable in container["env"]:
        source = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        assert source in (None, index)
        environ[variable["name"]] = "1" if source else variable["value"]
    found = discover(environ, "train-1")
    assert (found.size, found.nodes[0].ranks) == (16, tuple(range(8, 16)))
    assert (found.master_addr, found.master_port) == (master, 29500)
    # the name is made of the manifest's own
    spec = document["spec"]
    if kind == "Job":
        assert master == f"{document['metadata']['name']}-0.{template['spec']['subdomain']}"
        service = of_kind("Service")
        assert service["metadata"]["name"] == template["spec"]["subdomain"]
        assert service["spec"]["publishNotReadyAddresses"]
        assert service["spec"]["selector"] == {
            "batch.kubernetes.io/job-name": document["metadata"]["name"]
        }
    else:
        name = document["metadata"]["name"]
        assert master == f"{name}-{spec['replicatedJobs'][0]['name']}-0-0.{name}"


@an_object
def test_a_pod_has_shared_memory(name: str, document: dict[str, Any]) -> None:
    for template in templates(document):
        volumes = {v["name"]: v["emptyDir"] for v in template["spec"]["volumes"]}
        for container in template["spec"]["containers"]:
            (mount,) = container["volumeMounts"]
            assert mount["mountPath"] == "/dev/shm"
            assert volumes[mount["name"]]["medium"] == "Memory"


# --- files of others' tools ---


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("docker/compose.yaml", "vendor.compose-spec"),
        ("github/preflight.yaml", "vendor.github-workflows"),
        ("../.github/workflows/ci.yml", "vendor.github-workflows"),
    ],
)
def test_a_file_is_what_its_schema_says(file: str, schema: str, tmp_path: Path) -> None:
    def problems(path: Path) -> int | str | None:
        with pytest.raises(SystemExit) as ended:
            check_jsonschema(["--builtin-schema", schema, str(path)])
        return ended.value.code

    assert not problems(EXAMPLES / file)
    broken = documents(EXAMPLES / file)[0]
    broken["services" if "services" in broken else "jobs"] = 3
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(broken))
    assert problems(tmp_path / "broken.yaml")


def test_the_services_are_given_what_a_job_needs() -> None:
    (service,) = documents(EXAMPLES / "docker/compose.yaml")[0]["services"].values()
    assert (service["shm_size"], service["ulimits"]["memlock"]) == ("8gb", -1)
    context = EXAMPLES / "docker" / service["build"]["context"]
    assert (context / "Dockerfile").samefile(REPOSITORY / "Dockerfile")
    assert service["build"]["target"] == "full"
    found = discover(service["environment"], "here")
    assert (found.size, len(found.nodes)) == (8, 1)


def test_continuous_integration_runs_what_a_developer_can() -> None:
    """Each job has one command: whatever is tested there can be repeated anywhere."""
    (workflow,) = documents(REPOSITORY / ".github/workflows/ci.yml")
    jobs = workflow["jobs"]
    whole, fast = ([s["run"] for s in jobs[n]["steps"] if "run" in s] for n in ("test", "pythons"))
    assert [command.split()[-1] for command in whole] == [".ci/run"]
    assert [command.split()[:2] for command in fast] == [["make", "check"]]
    classifiers = file.read(REPOSITORY / "pyproject.toml")["project"]["classifiers"]
    tested = [*jobs["pythons"]["strategy"]["matrix"]["python"], "3.11"]
    said = [text.rpartition(" ")[2] for text in classifiers if ":: Python :: 3" in text]
    assert said == sorted(tested)


def test_hooks_of_a_commit_are_the_projects_own_tools() -> None:
    """Local hooks: a version that another repository pins would differ from `make lint`'s."""
    (config,) = documents(REPOSITORY / ".pre-commit-config.yaml")
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    entries = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text(), re.M)
    assert lint is not None
    assert [f"\t$(BIN)/{entry.removeprefix('.venv/bin/')}" for entry in entries] == lint[
        1
    ].splitlines()
