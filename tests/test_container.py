"""The files of container/ keep the rules of `scripts/check_container.py`, which finds what does not."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spacy_elq.cli import spacy_app

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "check_container.py"


def load_script():
    spec = importlib.util.spec_from_file_location("check_container", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


check = load_script()


@pytest.fixture
def ours():
    """The files of container/, by name."""
    return {name: (check.FOLDER / name).read_text(encoding="utf8") for name in check.FILES}


def rules_of(texts):
    return {problem.rule for problem in check.find_problems(check.Container(ROOT, texts))}


# ---------------------------------------------------------------------- rules


def test_our_files_keep_the_rules():
    assert check.find_problems(check.read(check.FOLDER)) == []


def test_hadolint_has_nothing_to_say():
    problems = check.run_hadolint(check.FOLDER / "Containerfile")
    if problems is None:
        pytest.skip("hadolint is not installed")
    assert problems == []


BROKEN = [
    ("instructions", "EXPOSE 8000", "EXPOSE 8000\nRUNS true"),
    ("base-image", "FROM python:3.11-slim-bookworm AS build", "FROM python AS build"),
    ("base-image", "FROM python:3.11-slim-bookworm AS build", "FROM python:latest AS build"),
    ("base-image", "FROM python:3.11-slim-bookworm AS build", "FROM python:$VERSION AS build"),
    ("base-image", "FROM python:3.11-slim-bookworm AS build", "FROM localhost:5000/python AS build"),
    ("stages", "--from=build /opt/venv", "--from=builder /opt/venv"),
    ("user", "USER 10001:10001", ""),
    ("user", "USER 10001:10001", "USER nobody"),
    ("user", "USER 10001:10001", "USER 10001:0"),
    ("user", "USER 10001:10001", "USER 10001\nUSER 0"),
    ("exec-form command", 'CMD ["/pipeline"]', "CMD /pipeline"),
    ("exec-form command", 'CMD ["/pipeline"]', ""),
    ("exec-form command", '"--port", "8000"]', '"--port", "8000" ]; true'),
    ("apt-get", "mkdir /image ", "apt-get install -y git && rm -rf /var/lib/apt/lists/* "),
    (
        "apt-get",
        "mkdir /image ",
        "apt-get -q install --no-install-recommends git; rm -rf /var/lib/apt/lists/* ",
    ),
    ("apt-get", "mkdir /image ", "apt-get update && apt-get install -y --no-install-recommends git "),
    ("apt-get", "mkdir /image ", "apt install git "),
    ("pip", 'pip install --no-cache-dir "/context/', 'pip install "/context/'),
    ("pip", "RUN pip install --no-cache-dir", "RUN python3 -m pip install"),
    ("no-add", "COPY configs configs", "ADD configs configs"),
    ("secrets", "ARG PIP_EXTRA_INDEX_URL", "ARG PIP_EXTRA_INDEX_URL\nARG INDEX_PASSWORD"),
    ("secrets", "PYTHONUNBUFFERED=1", "PYTHONUNBUFFERED=1 SPACY_ELQ_TOKEN=x"),
    ("secrets addresses", "# without a password", "# http://me:mine@127.0.0.1/simple, without a password"),
    ("addresses", "# without a password", "# https://example.org/simple, without a password"),
    ("healthcheck compose-healthcheck", "HEALTHCHECK --interval", "# HEALTHCHECK --interval"),
    ("healthcheck compose-healthcheck", "8000/ready", "8000/health"),
    ("healthcheck", "--start-period=300s ", ""),
    ("stop-signal", "STOPSIGNAL SIGTERM", "STOPSIGNAL SIGKILL"),
    ("stop-signal", "STOPSIGNAL SIGTERM", ""),
    ("environment", "HF_HUB_OFFLINE=1", "HF_HUB_OFFLINE=0"),
    ("environment", "    ORT_DISABLE_TELEMETRY=1", "    A=1"),
    ("labels", "org.opencontainers.image.title", "title"),
    ("context", "COPY configs configs", "COPY docs docs"),
    ("context", "COPY configs configs", "COPY setup.toml ./"),
    ("command prometheus-target", "EXPOSE 8000", "EXPOSE 8001"),
    ("command", '"--host", "0.0.0.0"', '"--host", "127.0.0.1"'),
    ("command", '"--port", "8000"]', '"--port", "8000", "--colour", "red"]'),
    ("command", '"spacy", "elq", "serve"', '"spacy", "elq", "link"'),
    ("compose-grace", '"--port", "8000"]', '"--port", "8000", "--timeout", "40"]'),
]


@pytest.mark.parametrize(("rules", "old", "new"), BROKEN)
def test_broken_containerfile_is_found(ours, rules, old, new):
    assert old in ours["Containerfile"]
    ours["Containerfile"] = ours["Containerfile"].replace(old, new)
    assert rules_of(ours) == set(rules.split())


def test_one_stage_is_found(ours):
    final = ours["Containerfile"].rpartition("\nFROM ")[2]
    ours["Containerfile"] = "FROM " + re.sub(r"(?m)^COPY .*$", "", final)
    assert rules_of(ours) == {"stages"}


@pytest.mark.parametrize("old", ["*\n!LICENSE", "!setup.cfg"])
def test_broken_ignore_file_is_found(ours, old):
    ours["Containerfile.dockerignore"] = ours["Containerfile.dockerignore"].replace(old, "")
    assert rules_of(ours) == {"context"}


BROKEN_COMPOSE = [
    ("compose-keys", "    read_only: true\n    tmpfs", "    readonly: true\n    read_only: true\n    tmpfs"),
    ("compose-keys", "create_host_path", "make_host_path"),
    ("compose-keys", "name: spacy-elq", "title: spacy-elq"),
    ("compose-images", "prom/prometheus:v3.13.3", "prom/prometheus"),
    ("compose-images", "spacy-elq:local", "spacy-elq:latest"),
    ("compose-images", "container/Containerfile", "Dockerfile"),
    ("compose-hardening", "    read_only: true\n    tmpfs", "    read_only: false\n    tmpfs"),
    ("compose-hardening", "cap_drop: [ALL]", "cap_drop: [NET_RAW]"),
    ("compose-hardening", "cap_drop: [ALL]", "cap_drop: [ALL]\n    cap_add: [NET_ADMIN]"),
    ("compose-hardening", "cap_drop: [ALL]", "cap_drop: [ALL]\n    privileged: true"),
    ("compose-hardening", 'security_opt: ["no-new-privileges:true"]', "security_opt: []"),
    ("compose-hardening", "mem_limit: 512m", ""),
    ("compose-hardening", "pids_limit: 256", ""),
    ("compose-hardening", "- /tmp:size", "- /var/tmp:size"),
    ("compose-ports", '"127.0.0.1:${ELQ_PORT:-8000}:8000"', '"8000:8000"'),
    ("compose-ports", '"127.0.0.1:${PROMETHEUS_PORT:-9090}:9090"', '"0.0.0.0:9090:9090"'),
    ("compose-volumes", "        read_only: true\n", ""),
    ("compose-volumes", "prometheus.yml:ro", "prometheus.yml"),
    ("compose-volumes", "target: /pipeline", "target: /models"),
    ("compose-secrets", "- SPACY_ELQ_TOKEN", "- SPACY_ELQ_TOKEN=secret"),
    ("compose-secrets", "- SPACY_ELQ_TOKEN", "- SPACY_ELQ_TOKEN=${SPACY_ELQ_TOKEN:-secret}"),
    ("compose-secrets", "- SPACY_ELQ_TOKEN", "SPACY_ELQ_TOKEN: secret"),
    ("compose-secrets", "- SPACY_ELQ_TOKEN", "- OTHER=1"),
    ("compose-grace", "stop_grace_period: 45s", "stop_grace_period: 35s"),
    ("compose-grace", "stop_grace_period: 45s", ""),
    ("compose-grace", "stop_grace_period: 45s", "stop_grace_period: 45"),
    ("compose-healthcheck", "8000/ready", "8000/health"),
    ("compose-healthcheck", '"CMD", "wget"', '"CMD-SHELL", "wget"'),
    ("command", '"/pipeline", "--workers"', '"/models", "--workers"'),
    ("command", '"--workers"', '"--worker"'),
    ("prometheus-target", "./prometheus.yml:", "./other.yml:"),
    ("prometheus-target", "  server:\n", "  elq:\n"),
]


@pytest.mark.parametrize(("rules", "old", "new"), BROKEN_COMPOSE)
def test_broken_compose_file_is_found(ours, rules, old, new):
    assert old in ours["compose.yml"]
    ours["compose.yml"] = ours["compose.yml"].replace(old, new)
    assert rules_of(ours) == set(rules.split())


@pytest.mark.parametrize(
    ("value", "is_found"),
    [("", False), ("${SPACY_ELQ_TOKEN}", False), ("${SPACY_ELQ_TOKEN:?say it}", False), ("x", True)],
)
def test_token_may_be_passed_on_by_name(ours, value, is_found):
    ours["compose.yml"] = ours["compose.yml"].replace("- SPACY_ELQ_TOKEN", f"SPACY_ELQ_TOKEN: {value}")
    assert rules_of(ours) == ({"compose-secrets"} if is_found else set())


@pytest.mark.parametrize(
    ("rules", "old", "new"),
    [
        ("prometheus-keys", "scrape_interval", "scrap_interval"),
        ("prometheus-keys", "    static_configs", "    targets: []\n    static_configs"),
        ("prometheus-target", "server:8000", "server:9000"),
        ("prometheus-target", "metrics_path: /metrics", "metrics_path: /stats"),
    ],
)
def test_broken_prometheus_file_is_found(ours, rules, old, new):
    ours["prometheus.yml"] = ours["prometheus.yml"].replace(old, new)
    assert rules_of(ours) == {rules}


def test_no_services_are_found(ours):
    ours["compose.yml"] = "name: nothing\n"
    assert {"compose-images", "compose-volumes", "prometheus-target"} <= rules_of(ours)


def test_every_rule_has_a_broken_file():
    tested = {rule for rules, _, _ in [*BROKEN, *BROKEN_COMPOSE] for rule in rules.split()}
    assert set(check.RULES) - tested == {"prometheus-keys"}


def write_hadolint(folder, output):
    program = folder / "hadolint"
    program.write_text(f"#!/bin/sh\necho '{output}'\n", encoding="utf8")
    program.chmod(0o755)


def test_hadolint_is_asked_if_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    assert check.run_hadolint(tmp_path / "Containerfile") is None
    write_hadolint(tmp_path, '[{"code": "DL1", "line": 3, "message": "bad"}]')
    assert check.run_hadolint(tmp_path / "Containerfile") == [("hadolint DL1", "Containerfile:3: bad")]


# ---------------------------------------------------------------------- reading


def test_instructions_are_read():
    text = """\
# syntax=docker/dockerfile:1
FROM --platform=linux/amd64 image:1 as Build

RUN --mount=type=bind,target=/context --network=none \\
    # a comment

    one && \\
    two
env A=1 B="x y"
CMD ["a", "b"]
"""
    first, run, env, command = check.parse(text)
    assert (first.line, first.name, first.flags) == (2, "FROM", [("platform", "linux/amd64")])
    assert (run.line, run.text) == (4, "one && two")
    assert run.flags == [("mount", "type=bind,target=/context"), ("network", "none")]
    assert (str(env), env.pairs()) == ("Containerfile:9: ENV", [("A", "1"), ("B", "x y")])
    assert (command.words(), env.words()) == (["a", "b"], None)
    (stage,) = check.to_stages([first, run, env, command])
    assert (stage.image, stage.name, len(stage.steps)) == ("image:1", "Build", 3)


@pytest.mark.parametrize("text", ["[]", "[1]", '{"a": 1}', "a"])
def test_other_lists_are_no_exec_form(text):
    assert check.Instruction(1, "CMD", [], text).words() is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("Containerfile", "FROM a:1\nRUN one \\\n", "2: the last line ends with a backslash"),
        ("Containerfile", "FROM a:1\nRUN <<END\none\nEND\n", "2: a here-document"),
        ("Containerfile", "ARG A\n", "no FROM"),
        ("compose.yml", "services: [\n", "compose.yml: Invalid YAML"),
        ("compose.yml", "name: a\nname: b\n", "compose.yml: Invalid YAML"),
        ("prometheus.yml", "- a\n", "prometheus.yml: expected a mapping"),
    ],
)
def test_what_cannot_be_read_is_refused(ours, name, text, message):
    with pytest.raises(ValueError, match=message):
        check.Container(ROOT, {**ours, name: text})


def test_variables_are_replaced():
    values = {"A": "1"}
    assert check.expand("$A-${A}-${A:-2}-${B:-2}-${B-3}-${B:?no}-$B.", values) == "1-1-1-2-3--."


def test_durations():
    assert [check.to_seconds(text) for text in ("45s", "1m30s", "500ms", "1h")] == [45, 90, 0.5, 3600]
    for text in ("45", "s", "1d", "1m 3s"):
        with pytest.raises(ValueError, match="no duration"):
            check.to_seconds(text)


def test_ignore_file(ours):
    ours["Containerfile.dockerignore"] = "*\n!a\n!b/*/c?.txt\na/hidden\n**/__pycache__\n"
    container = check.Container(ROOT, ours)
    seen = ["a", "a/b", "a/b/c", "b/x/c1.txt"]
    hidden = [
        "x",
        "ab",
        "a/hidden",
        "a/hidden/b",
        "a/b/__pycache__",
        "a/__pycache__/c",
        "b",
        "b/x",
        "b/x/y/c1.txt",
    ]
    assert [name for name in [*seen, *hidden] if not container.is_ignored(name)] == seen


def test_build_sees_what_it_needs_and_nothing_else():
    seen = set(check.read(check.FOLDER).visible())
    assert {"setup.cfg", "spacy_elq/serve/page/index.html", "configs/elq.cfg"} <= seen
    tops = {name.split("/")[0] for name in seen if not name.startswith("packages/")}
    assert {name for name in tops if (ROOT / name).is_dir()} == {"spacy_elq", "configs"}
    assert not [name for name in seen if "__pycache__" in name]


# ---------------------------------------------------------------------- a build in a stand-in

SMALL = """\
FROM python:3.11-slim AS build
ARG WHO=nobody
ARG NOTHING
ENV PATH="/opt/venv/bin:$PATH" GREETING="hello $WHO"
WORKDIR /src
COPY server.py ./
COPY folder more
RUN --mount=type=bind,source=.,target=/context cp /context/server.py copied.py 2>/dev/null
RUN echo "$GREETING${NOTHING-, nothing}" > greeting && python -c "import sys; print(sys.prefix)" > prefix
RUN ln -s /src/greeting link

FROM python:3.11-slim
COPY --from=build /src/ /image
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=1s --timeout=60s --start-period=90s CMD ["python", "/image/more/healthy.py", "8000"]
ENTRYPOINT ["python", "/image/server.py", "0.0.0.0", "8000"]
CMD ["good"]
"""
SMALL_COMPOSE = 'services: {server: {build: {}, command: ["better"], stop_grace_period: 60s}}\n'
SERVER = '''\
"""A server as ours, but for what it does wrong."""

import json, os, signal, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

host, port, mode = sys.argv[1:]
if mode == "dead":
    sys.exit("no model")
stop = signal.SIG_IGN if mode == "deaf" else lambda *_: sys.exit(5 if mode == "failing" else 0)
signal.signal(signal.SIGTERM, stop)
links = [] if mode == "no-links" else [{"mention": "paris", "title": "Paris"}]
result = {"text": "?", "links": links, "error": "ValueError" if mode == "error" else None}
counted = 'elq_requests_total{path="/link"} ' + ("2.0" if mode == "two" else "1.0")
answers = {
    "/": "" if mode == "no-page" else "<html>",
    "/link": json.dumps({"results": [result]}),
    "/metrics": "# HELP\\n" + counted + "\\n",
    "/ready": "yes",
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        is_missing = (mode, self.path) in {("unready", "/ready"), ("lost", "/link")}
        self.send_response(503 if is_missing else 200)
        self.end_headers()
        self.wfile.write(answers[self.path].encode())

    do_POST = do_GET


print(mode, host, flush=True)
open(os.path.join(os.environ["TMPDIR"], "counts"), "w").close()
HTTPServer((host, int(port)), Handler).serve_forever()
'''
HEALTHY = """\
import sys, urllib.request
urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/ready", timeout=50)
"""


@pytest.fixture(scope="module")
def open_folder():
    """A folder that every user can read; those of pytest are its user's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="module")
def stand_in(open_folder):
    context = open_folder / "checkout"
    (context / "folder").mkdir(parents=True)
    (context / "server.py").write_text(SERVER, encoding="utf8")
    (context / "folder" / "healthy.py").write_text(HEALTHY, encoding="utf8")
    (context / "secret").write_text("x", encoding="utf8")
    texts = {
        "Containerfile": SMALL,
        "Containerfile.dockerignore": "*\n!server.py\n!folder\n",
        "compose.yml": SMALL_COMPOSE,
        "prometheus.yml": "global: {}\n",
    }
    (open_folder / "build").mkdir()
    stand_in = check.StandIn(check.Container(context, texts), open_folder / "build", {"WHO": "you"})
    stand_in.build()
    check._lock(stand_in.root)
    return stand_in


def test_stages_are_built_one_after_the_other(stand_in):
    image, built = stand_in.root / "image", stand_in.folder / "build" / "src"
    assert (image / "greeting").read_text() == "hello you, nothing\n"
    assert Path((image / "prefix").read_text().strip()) == stand_in.root / "usr" / "local"
    assert (image / "more" / "healthy.py").read_text() == HEALTHY
    assert (image / "copied.py").read_text() == SERVER == (built / "server.py").read_text()
    assert os.readlink(image / "link") == str(stand_in.root / "src" / "greeting")
    assert not (stand_in.root / "src").exists()
    assert not (stand_in.root / "context").exists()
    assert sorted(path.name for path in stand_in.context.iterdir()) == ["folder", "server.py"]
    assert "GREETING" not in stand_in.environment


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("exit 3", "RUN: exit code 3"),
        ("echo why >&2; false", "exit code 1\nwhy"),
        ('echo "$PIP_ANY, $SPACY_ELQ_TOKEN."; false', "exit code 1\npassed on, .\n"),
        ("mkdir /somewhere", "may change this machine: /somewhere"),
        ("rm -rf /src /var/lib/apt/lists/*", "may change this machine: /var/lib/apt/lists/"),
        ("useradd elq", "may change this machine: useradd elq"),
    ],
)
def test_failing_and_dangerous_commands_end_the_build(stand_in, tmp_path, monkeypatch, command, message):
    monkeypatch.setenv("PIP_ANY", "passed on")
    monkeypatch.setenv("SPACY_ELQ_TOKEN", "secret")
    other = check.StandIn(stand_in.container, tmp_path, {})
    other.root.mkdir()
    other.environment = {"PATH": os.environ["PATH"]}
    (step,) = check.parse(f"RUN {command}")
    with pytest.raises(check.Failed, match=re.escape(message)):
        other._do_run(step)
    assert not Path("/somewhere").exists()


def start(stand_in, mode, folder, text=None):
    folder = Path(tempfile.mkdtemp(dir=folder))
    _, words = next(stand_in.container.starts({}))
    check.try_server(stand_in, [*words[:-1], mode], folder, text)
    return folder


def test_good_server_passes(stand_in, open_folder, capsys):
    folder = start(stand_in, "good", open_folder, text="is paris nice")
    output = capsys.readouterr().out
    assert "left in /tmp: counts" in output
    assert "paris → Paris" in output
    assert folder.with_suffix(".log").read_text().startswith("good 127.0.0.1\n")
    if os.geteuid() == 0:
        assert (folder / "counts").stat().st_uid == 10001


def test_commands_of_both_files_are_tried(stand_in):
    starts = dict(stand_in.container.starts({}))
    assert [words[-1] for words in starts.values()] == ["good", "better"]
    with_workers = dict(check.read(check.FOLDER).starts(check.WORKERS))["compose.yml"]
    assert with_workers[-3:] == ["/pipeline", "--workers", "2"]


@pytest.mark.parametrize(
    ("mode", "text", "message"),
    [
        ("dead", None, "ended with 1\nno model"),
        ("no-page", None, "/: no page"),
        ("lost", None, "/link: HTTP Error 503"),
        ("error", None, "ValueError"),
        ("no-links", "is paris nice", "'links': \\[\\]"),
        ("two", None, "expected one request to /link"),
        ("failing", None, "exit code 5 after SIGTERM"),
    ],
)
def test_what_a_server_does_wrong_is_found(stand_in, open_folder, mode, text, message):
    with pytest.raises(check.Failed, match=message):
        start(stand_in, mode, open_folder, text)


def change(stand_in, monkeypatch, name, old, new):
    texts = {**stand_in.container.texts}
    assert old in texts[name]
    texts[name] = texts[name].replace(old, new)
    monkeypatch.setattr(stand_in, "container", check.Container(stand_in.container.context, texts))


def test_links_are_only_needed_if_a_text_is_given(stand_in, open_folder):
    start(stand_in, "no-links", open_folder)


def test_server_that_is_never_healthy(stand_in, open_folder, monkeypatch):
    change(stand_in, monkeypatch, "Containerfile", "--start-period=90s", "--start-period=1s")
    with pytest.raises(check.Failed, match="not healthy after 1 s"):
        start(stand_in, "unready", open_folder)


def test_server_that_does_not_stop(stand_in, open_folder, monkeypatch):
    change(stand_in, monkeypatch, "compose.yml", "60s", "1s")
    with pytest.raises(check.Failed, match="still there 1 s after SIGTERM"):
        start(stand_in, "deaf", open_folder)
    assert not [line for line in processes() if str(stand_in.root) in line]


def processes():
    return subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_server_that_can_write_is_found(stand_in, open_folder):
    stand_in.root.chmod(0o755)
    open_ = stand_in.root / "pipeline"
    open_.mkdir()
    open_.chmod(0o777)
    with pytest.raises(check.Failed, match=r"can write to .*/pipeline"):
        start(stand_in, "good", open_folder)
    open_.rmdir()
    stand_in.root.chmod(0o555)


def test_command_that_is_not_there(stand_in, open_folder):
    with pytest.raises(check.Failed, match="nothing is not in"):
        check.try_server(stand_in, ["nothing"], Path(tempfile.mkdtemp(dir=open_folder)), None)


# ---------------------------------------------------------------------- the command


def run_command(*words):
    return CliRunner().invoke(check.app, list(map(str, words)))


def test_command_checks_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "run_hadolint", lambda path: None)
    result = run_command()
    assert (result.exit_code, result.output) == (
        0,
        f"✔ {len(check.RULES)} rules hold, hadolint is not installed\n",
    )
    monkeypatch.setattr(check, "run_hadolint", lambda path: [])
    assert "hadolint agrees" in run_command().output
    monkeypatch.setattr(check, "run_hadolint", lambda path: [check.Problem("hadolint DL1", "bad")])
    result = run_command()
    assert (result.exit_code, result.output) == (1, "✘ hadolint DL1: bad\n")
    shutil.copytree(check.FOLDER, tmp_path / "container")
    monkeypatch.setattr(check, "FOLDER", tmp_path / "container")
    monkeypatch.setattr(check, "run_hadolint", lambda path: None)
    path = tmp_path / "container" / "prometheus.yml"
    path.write_text(path.read_text().replace("global", "globe"), encoding="utf8")
    result = run_command()
    assert (result.exit_code, result.output) == (1, "✘ prometheus-keys: prometheus.yml: unknown globe\n")
    path.write_text("- a\n", encoding="utf8")
    result = run_command()
    assert (result.exit_code, result.output) == (1, "✘ prometheus.yml: expected a mapping\n")


def test_command_lists_the_rules_and_explains_itself():
    lines = run_command("--rules").output.splitlines()
    assert [line.split()[0] for line in lines] == list(check.RULES)
    assert all(len(line.split()) > 3 for line in lines)
    assert "python scripts/check_container.py --run" in run_command("--help").output


def test_command_tries_the_container(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(check, "try_container", lambda *args: tried.append(args[1:]))
    monkeypatch.setattr(check, "run_hadolint", lambda path: None)
    result = run_command("--run", tmp_path, "--text", "is paris nice")
    assert (result.exit_code, tried) == (0, [(tmp_path, "is paris nice")])

    def fail(*args):
        raise check.Failed("no space left")

    monkeypatch.setattr(check, "try_container", fail)
    result = run_command("--run", tmp_path)
    assert (result.exit_code, result.output.splitlines()[-1]) == (1, "✘ no space left")


def test_wheel_that_the_build_cannot_see(ours, tmp_path):
    ours["Containerfile.dockerignore"] = ours["Containerfile.dockerignore"].replace(
        "!packages", "# !packages"
    )
    (tmp_path / "en_elq-1.0.0-py3-none-any.whl").write_text("x")
    with pytest.raises(check.Failed, match="hides packages/"):
        check.try_container(check.Container(ROOT, ours), tmp_path / "en_elq-1.0.0-py3-none-any.whl")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "wheel"])
def test_image_is_built_and_serves_an_int8_pipeline(trained_path, tmp_path, kind):
    def spacy_command(*words):
        result = CliRunner().invoke(spacy_app, list(map(str, words)))
        assert result.exit_code == 0, result.output

    spacy_command("elq", "quantize", trained_path, tmp_path / "int8")
    spacy_command("elq", "bundle", tmp_path / "int8", tmp_path / "bundled")
    pipeline = tmp_path / "bundled"
    if kind == "wheel":
        (tmp_path / "packages").mkdir()
        words = ["--name", "elq_test", "--version", "1.0.0", "--build", "wheel"]
        spacy_command("package", tmp_path / "bundled", tmp_path / "packages", *words)
        (pipeline,) = tmp_path.glob("packages/*/dist/*.whl")
    command = [sys.executable, SCRIPT, "--run", pipeline, "--text", "how big is new york city"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("new york city → New York City") == 2
    assert done.stdout.count("SIGTERM exit code 0") == 2
