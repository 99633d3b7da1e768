"""Check the files in container/, and try what they do on a machine without a container engine."""

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import srsly
import typer
from typer.main import get_command

from spacy_elq.cli import app as elq_app
from spacy_elq.serve.settings import TOKEN

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "container"
FILES = ("Containerfile", "Containerfile.dockerignore", "compose.yml", "prometheus.yml")
SERVE = ["python", "-m", "spacy", "elq", "serve"]
# what `serve` waits, after its --timeout, for what is under way
SERVE_WAITS = 5
INSTRUCTIONS = re.compile(
    "ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|RUN|SHELL|STOPSIGNAL|USER|VOLUME|WORKDIR"
)
SERVICE_KEYS = (
    "build cap_add cap_drop command depends_on environment healthcheck image init mem_limit networks "
    "pids_limit ports privileged read_only restart security_opt stop_grace_period stop_signal tmpfs user "
    "volumes"
)
# keys that may be there, by place; a star stands for any name
COMPOSE_KEYS = {
    "": "name services volumes networks",
    "services.*": SERVICE_KEYS,
    "services.*.build": "context dockerfile args target",
    "services.*.healthcheck": "test interval timeout start_period start_interval retries disable",
    "services.*.volumes": "type source target read_only bind",
    "services.*.volumes.bind": "create_host_path propagation selinux",
}
PROMETHEUS_KEYS = {
    "": "global scrape_configs rule_files alerting",
    "global": "scrape_interval scrape_timeout evaluation_interval external_labels",
    "scrape_configs": "job_name metrics_path scheme scrape_interval scrape_timeout static_configs",
    "scrape_configs.static_configs": "targets labels",
}
# what must be 1 in the environment of the final image
NEEDED = ("PYTHONDONTWRITEBYTECODE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "ORT_DISABLE_TELEMETRY")
SECRET = re.compile(r"(?i)token|passw|secret|credential|api_?key|private_?key")
LOGIN = re.compile(r"://[^/\s:@\"']+:[^/\s@\"']+@")
ADDRESS = re.compile(r"\bhttps?://(?!127\.0\.0\.1\b|localhost\b)[^\s\"'/]+")
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-?]([^}]*))?\})")


class Problem(NamedTuple):
    """What is wrong, and the rule that says so."""

    rule: str
    text: str


# ---------------------------------------------------------------------- reading


class Instruction(NamedTuple):
    """An instruction of a Containerfile: its line, name, flags such as `--from=build`, and the rest."""

    line: int
    name: str
    flags: List[Tuple[str, str]]
    text: str

    def words(self, skip: str = "") -> Optional[List[str]]:
        """RETURNS (Optional[List[str]]): The words of the exec form, None if it is the shell form.

        skip (str): What comes before them.
        """
        try:
            words = json.loads(self.text.removeprefix(skip))
        except ValueError:
            return None
        is_exec = isinstance(words, list) and all(isinstance(word, str) for word in words)
        return words if is_exec and words else None

    def pairs(self) -> List[Tuple[str, str]]:
        """RETURNS (List[Tuple[str, str]]): Names and values of ENV, ARG and LABEL."""
        split = [word.partition("=") for word in shlex.split(self.text)]
        return [(name, value) for name, _, value in split]

    def __str__(self) -> str:
        """RETURNS (str): Where it is."""
        return f"Containerfile:{self.line}: {self.name}"


class Stage(NamedTuple):
    """A stage of a Containerfile: the image it begins with, its name, and its instructions."""

    image: str
    name: str
    steps: List[Instruction]

    def all(self, *names: str) -> List[Instruction]:
        """RETURNS (List[Instruction]): The instructions with one of these names."""
        return [step for step in self.steps if step.name in names]

    def last(self, name: str) -> Optional[Instruction]:
        """RETURNS (Optional[Instruction]): The one that counts of those with this name."""
        return next(iter(reversed(self.all(name))), None)


def parse(text: str) -> List[Instruction]:
    """RETURNS (List[Instruction]): The instructions of a Containerfile. Here-documents are not understood."""
    instructions: List[Instruction] = []
    parts: List[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        start = start if parts else number
        parts.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            instructions.append(_to_instruction(start, " ".join(parts)))
            parts = []
    if parts:
        raise ValueError(f"Containerfile:{start}: the last line ends with a backslash")
    return instructions


def _to_instruction(line: int, text: str) -> Instruction:
    name, _, rest = text.partition(" ")
    flags = []
    while match := re.match(r"--([\w-]+)=(\S+)\s+", rest):
        flags.append((match[1], match[2]))
        rest = rest[match.end() :]
    if name.upper() == "RUN" and "<<" in rest:
        raise ValueError(f"Containerfile:{line}: a here-document; write commands with && instead")
    return Instruction(line, name.upper(), flags, rest.strip())


def to_stages(instructions: Sequence[Instruction]) -> List[Stage]:
    """RETURNS (List[Stage]): The stages of a Containerfile. What comes before the first FROM is left out."""
    stages: List[Stage] = []
    for step in instructions:
        if step.name == "FROM":
            image, _, name = re.sub(r"(?i)\s+as\s+", " ", step.text).partition(" ")
            stages.append(Stage(image, name, []))
        elif stages:
            stages[-1].steps.append(step)
    return stages


def expand(text: str, values: Mapping[str, str]) -> str:
    """RETURNS (str): A text with the values of its variables, or their defaults: `$A`, `${A}`, `${A:-x}`."""
    return VARIABLE.sub(lambda m: values.get(m[1] or m[2]) or ("" if ":?" in m[0] else m[3] or ""), text)


def to_seconds(text: str) -> float:
    """RETURNS (float): A duration such as 45s or 1m30s, in seconds."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    found = re.findall(r"(\d+)(ms|[smh])", str(text))
    if "".join(map("".join, found)) != str(text):
        raise ValueError(f"{text} is no duration such as 45s")
    return sum(int(number) * units[unit] for number, unit in found)


def serve_options(words: Sequence[str]) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What `spacy elq serve` makes of its arguments."""
    command: Any = get_command(elq_app)
    try:
        return command.commands["serve"].make_context("serve", list(words)).params
    except Exception as err:  # click's errors, or those of the copy that typer brings along
        raise ValueError(getattr(err, "message", str(err))) from None


@dataclass
class Container:
    """The files of container/, read.

    context (Path): Where the build copies from.
    texts (Dict[str, str]): The files, by name.
    """

    context: Path
    texts: Dict[str, str]

    def __post_init__(self) -> None:
        """Parse the files."""
        self.instructions = parse(self.texts["Containerfile"])
        self.stages = to_stages(self.instructions)
        if not self.stages:
            raise ValueError("Containerfile: no FROM")
        lines = map(str.strip, self.texts["Containerfile.dockerignore"].splitlines())
        self.ignored = [line for line in lines if line and not line.startswith("#")]
        self.compose = _read_yaml("compose.yml", self.texts["compose.yml"])
        self.prometheus = _read_yaml("prometheus.yml", self.texts["prometheus.yml"])

    @property
    def final(self) -> Stage:
        """RETURNS (Stage): The stage that becomes the image."""
        return self.stages[-1]

    @property
    def services(self) -> Dict[str, Dict[str, Any]]:
        """RETURNS (Dict[str, Dict[str, Any]]): The services of compose.yml."""
        return self.compose.get("services", {})

    @property
    def server(self) -> Tuple[str, Dict[str, Any]]:
        """RETURNS (Tuple[str, Dict[str, Any]]): Name and settings of the service that is built here."""
        return next((item for item in self.services.items() if "build" in item[1]), ("", {}))

    def starts(self, variables: Mapping[str, str]) -> Iterator[Tuple[str, List[str]]]:
        """YIELDS (Tuple[str, List[str]]): A file, and how it starts the server.

        variables (Mapping[str, str]): Those of compose.yml.
        """
        words = {name: step.words() for name in ("ENTRYPOINT", "CMD") if (step := self.final.last(name))}
        entrypoint = words.get("ENTRYPOINT") or []
        yield "Containerfile", [*entrypoint, *(words.get("CMD") or [])]
        if command := self.server[1].get("command"):
            yield "compose.yml", [*entrypoint, *(expand(word, variables) for word in command)]

    def healthcheck(self) -> List[str]:
        """RETURNS (List[str]): The command of HEALTHCHECK, nothing if it is not in exec form."""
        step = self.final.last("HEALTHCHECK")
        return (step.words("CMD ") if step is not None else None) or []

    def is_ignored(self, name: str) -> bool:
        """RETURNS (bool): Whether the build cannot see a file or folder."""
        parts = [name, *(str(parent) for parent in PurePosixPath(name).parents)][:-1]
        ignored = False
        for pattern in self.ignored:
            regex = _to_regex(pattern.removeprefix("!").strip("/"))
            if any(regex.fullmatch(part) for part in parts):
                ignored = not pattern.startswith("!")
        return ignored

    def visible(self) -> Iterator[str]:
        """YIELDS (str): The files that the build can see, if only some are let through."""
        tops = {pattern[1:].strip("/").split("/")[0] for pattern in self.ignored if pattern.startswith("!")}
        for top in sorted(tops):
            for path in [self.context / top, *(self.context / top).rglob("*")]:
                name = path.relative_to(self.context).as_posix()
                if path.is_file() and not self.is_ignored(name):
                    yield name


def _read_yaml(name: str, text: str) -> Dict[str, Any]:
    try:
        content = srsly.yaml_loads(text)
    except ValueError as err:
        raise ValueError(f"{name}: {err}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{name}: expected a mapping")
    return content


def _to_regex(pattern: str) -> "re.Pattern[str]":
    """RETURNS (re.Pattern[str]): A pattern of an ignore file, for paths."""
    parts = re.split(r"(\*\*/|\*|\?)", pattern)
    special = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(special.get(part, re.escape(part)) for part in parts))


def read(folder: Path, context: Path = ROOT) -> Container:
    """RETURNS (Container): The files of a folder.

    context (Path): Where the build copies from.
    """
    return Container(context, {name: (folder / name).read_text(encoding="utf8") for name in FILES})


# ---------------------------------------------------------------------- rules

Rule = Callable[[Container], Iterator[str]]
RULES: Dict[str, Rule] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """RETURNS (Callable[[Rule], Rule]): What adds a rule, which yields what is wrong."""

    def add(function: Rule) -> Rule:
        RULES[name] = function
        return function

    return add


def find_problems(container: Container) -> List[Problem]:
    """RETURNS (List[Problem]): What is wrong with the files."""
    return [Problem(name, text) for name, function in RULES.items() for text in function(container)]


@rule("instructions")
def check_instructions(container: Container) -> Iterator[str]:
    """Only instructions that there are."""
    strange = [step for step in container.instructions if not INSTRUCTIONS.fullmatch(step.name)]
    yield from (f"{step}: unknown" for step in strange)


@rule("base-image")
def check_base_images(container: Container) -> Iterator[str]:
    """Base images have a tag that is not `latest`, or a digest."""
    for stage in container.stages:
        if not _is_pinned(stage.image):
            yield f"FROM {stage.image}: no tag that says which"


def _is_pinned(image: str) -> bool:
    tag = image.rpartition("/")[2].partition(":")[2]
    return "@sha256:" in image or (bool(tag) and tag != "latest" and "$" not in tag)


@rule("stages")
def check_stages(container: Container) -> Iterator[str]:
    """What is built is copied into a final stage, from stages that come before it."""
    known: List[str] = []
    for stage in container.stages:
        sources = [value for step in stage.all("COPY") for flag, value in step.flags if flag == "from"]
        missing = [source for source in sources if source not in known]
        yield from (f"COPY --from={source}: no such stage before it" for source in missing)
        known.append(stage.name)
    if len(container.stages) < 2:
        yield "one stage: what only the build needs stays in the image"


@rule("user")
def check_user(container: Container) -> Iterator[str]:
    """The server's user has a fixed number, and is not root."""
    step = container.final.last("USER")
    if step is None:
        yield "no USER: root"
    elif not re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", step.text):
        yield f"{step} {step.text}: expected a number above 0"


@rule("exec-form")
def check_exec_form(container: Container) -> Iterator[str]:
    """ENTRYPOINT and CMD are lists: no shell stands between a signal and the server."""
    for name in ("ENTRYPOINT", "CMD"):
        step = container.final.last(name)
        if step is None:
            yield f"no {name}"
        elif step.words() is None:
            yield f"{step}: not a list of strings"


@rule("apt-get")
def check_apt_get(container: Container) -> Iterator[str]:
    """`apt-get install` without recommended packages and questions; lists of packages are removed."""
    for step, command in _commands(container):
        if re.match(r"(sudo )?apt\b(?!-)", command):
            yield f"{step}: apt is for people, use apt-get"
        if re.match(r"apt-get\b.* install\b", command):
            for flag in ("--no-install-recommends", "-y"):
                if flag not in command.split():
                    yield f"{step}: apt-get install without {flag}"
            if "rm -rf /var/lib/apt/lists/*" not in step.text:
                yield f"{step}: the lists of packages stay in the layer"


@rule("pip")
def check_pip(container: Container) -> Iterator[str]:
    """`pip install` without a cache."""
    for step, command in _commands(container):
        if re.search(r"\bpip3? install\b", command) and "--no-cache-dir" not in command.split():
            yield f"{step}: pip install without --no-cache-dir"


def _commands(container: Container) -> Iterator[Tuple[Instruction, str]]:
    """YIELDS (Tuple[Instruction, str]): The simple commands of RUN."""
    for step in (step for stage in container.stages for step in stage.all("RUN")):
        for command in re.split(r"&&|\|\|?|;|\b(?:then|else|do)\b", step.text):
            yield step, command.strip()


@rule("no-add")
def check_no_add(container: Container) -> Iterator[str]:
    """COPY instead of ADD, which downloads and unpacks."""
    yield from (f"{step}: use COPY" for step in container.instructions if step.name == "ADD")


@rule("secrets")
def check_secrets(container: Container) -> Iterator[str]:
    """No secrets in ENV, ARG and LABEL, nor in addresses: whoever has the image can read them."""
    for step in container.instructions:
        if step.name in ("ENV", "ARG", "LABEL"):
            yield from (f"{step} {name}: a secret" for name, _ in step.pairs() if SECRET.search(name))
    for name, text in container.texts.items():
        yield from (f"{name}: an address with a password" for _ in LOGIN.findall(text))


@rule("addresses")
def check_addresses(container: Container) -> Iterator[str]:
    """No addresses of other machines: where packages come from is said when building."""
    for name, text in container.texts.items():
        yield from (f"{name}: {address}" for address in ADDRESS.findall(text))


@rule("healthcheck")
def check_healthcheck(container: Container) -> Iterator[str]:
    """HEALTHCHECK asks /ready, without a shell."""
    words = container.healthcheck()
    if not words:
        yield "no HEALTHCHECK whose command is a list of strings"
    elif "/ready" not in " ".join(words):
        yield "HEALTHCHECK does not ask /ready"
    step = container.final.last("HEALTHCHECK")
    for flag in ("interval", "timeout", "start-period"):
        if step is not None and flag not in dict(step.flags):
            yield f"{step} without --{flag}"


@rule("stop-signal")
def check_stop_signal(container: Container) -> Iterator[str]:
    """STOPSIGNAL is what the server understands."""
    step = container.final.last("STOPSIGNAL")
    if step is None or step.text != "SIGTERM":
        yield "expected STOPSIGNAL SIGTERM"


@rule("environment")
def check_environment(container: Container) -> Iterator[str]:
    """No bytecode is written, and nothing is asked or told in the internet."""
    values = {name: value for step in container.final.all("ENV") for name, value in step.pairs()}
    yield from (f"expected ENV {name}=1" for name in NEEDED if values.get(name) != "1")


@rule("labels")
def check_labels(container: Container) -> Iterator[str]:
    """The image says what it is."""
    labels = {name for step in container.final.all("LABEL") for name, _ in step.pairs()}
    for name in ("title", "description", "licenses"):
        if f"org.opencontainers.image.{name}" not in labels:
            yield f"no label org.opencontainers.image.{name}"


@rule("context")
def check_context(container: Container) -> Iterator[str]:
    """The ignore file lets through what is copied, and nothing that it does not name."""
    if container.ignored[:1] != ["*"]:
        yield "Containerfile.dockerignore does not begin with *"
    for step in (step for stage in container.stages for step in stage.all("COPY")):
        if not dict(step.flags).get("from"):
            for source in shlex.split(step.text)[:-1]:
                if container.is_ignored(source) or not (container.context / source).exists():
                    yield f"{step} {source}: not there, or ignored"


@rule("command")
def check_commands(container: Container) -> Iterator[str]:
    """What is started is a command of ours that listens on the port of EXPOSE, and serves /pipeline."""
    exposed = container.final.last("EXPOSE")
    for name, words in container.starts({}):
        if words[: len(SERVE)] != SERVE:
            yield f"{name}: does not start {' '.join(SERVE)}"
            continue
        try:
            options = serve_options(words[len(SERVE) :])
        except ValueError as err:
            yield f"{name}: {err}"
            continue
        if (options["host"], options["pipeline"]) != ("0.0.0.0", "/pipeline"):
            yield f"{name}: expected /pipeline at 0.0.0.0"
        if exposed is None or exposed.text != str(options["port"]):
            yield f"{name}: listens on {options['port']}, which is not what EXPOSE says"


def _unknown_keys(content: Any, known: Mapping[str, str], place: str = "") -> Iterator[str]:
    """YIELDS (str): Keys that may not be where they are. Items of a list are where the list is."""
    if isinstance(content, list):
        for item in content:
            yield from _unknown_keys(item, known, place)
    elif isinstance(content, dict):
        allowed = known.get(place)
        for key, value in content.items():
            inner = f"{place}.{key}".strip(".")
            if f"{place}.*" in known:
                yield from _unknown_keys(value, known, f"{place}.*")
            elif allowed is not None and key not in allowed.split():
                yield inner
            else:
                yield from _unknown_keys(value, known, inner)


@rule("compose-keys")
def check_compose_keys(container: Container) -> Iterator[str]:
    """compose.yml has only keys that we know."""
    yield from (f"compose.yml: unknown {key}" for key in _unknown_keys(container.compose, COMPOSE_KEYS))


@rule("compose-images")
def check_compose_images(container: Container) -> Iterator[str]:
    """Images have a tag that is not `latest`; one is built from our Containerfile."""
    for name, service in container.services.items():
        if not _is_pinned(service.get("image", "")):
            yield f"{name}: no tag that says which image"
    build = container.server[1].get("build", {})
    if not isinstance(build, dict) or build.get("dockerfile") != "container/Containerfile":
        yield "no service is built from container/Containerfile"


@rule("compose-hardening")
def check_compose_hardening(container: Container) -> Iterator[str]:
    """Services have a read-only root, no capabilities, and limits."""
    for name, service in container.services.items():
        wrong = {
            "read_only: true": service.get("read_only") is not True,
            "cap_drop: [ALL]": service.get("cap_drop") != ["ALL"],
            "security_opt: [no-new-privileges:true]": "no-new-privileges:true"
            not in service.get("security_opt", []),
            "mem_limit": not service.get("mem_limit"),
            "pids_limit": not service.get("pids_limit"),
            "a tmpfs at /tmp": not any(str(x).split(":")[0] == "/tmp" for x in service.get("tmpfs", [])),
            "no cap_add": "cap_add" in service,
            "no privileged": "privileged" in service,
        }
        yield from (f"{name}: expected {what}" for what, is_wrong in wrong.items() if is_wrong)


@rule("compose-ports")
def check_compose_ports(container: Container) -> Iterator[str]:
    """Ports are published for this machine only."""
    for name, service in container.services.items():
        for port in service.get("ports", []):
            if not str(port).startswith("127.0.0.1:"):
                yield f"{name}: {port} is open to others"


@rule("compose-volumes")
def check_compose_volumes(container: Container) -> Iterator[str]:
    """Files of this machine are mounted read-only; the pipeline is one of them."""
    for name, service in container.services.items():
        for volume in service.get("volumes", []):
            if isinstance(volume, dict):
                is_open = volume.get("type") == "bind" and volume.get("read_only") is not True
            else:
                is_open = volume[0] in "./~$" and not volume.endswith(":ro")
            if is_open:
                yield f"{name}: {volume} can be written to"
    targets = [v["target"] for v in container.server[1].get("volumes", []) if isinstance(v, dict)]
    if "/pipeline" not in targets:
        yield "nothing is mounted at /pipeline"


@rule("compose-secrets")
def check_compose_secrets(container: Container) -> Iterator[str]:
    """Secrets come from the environment and have no default."""
    for name, service in container.services.items():
        given = _environment(service)
        for variable, value in given.items():
            is_passed_on = value is None or re.fullmatch(r"\$\{?\w+(:?\?[^}]*)?\}?", value)
            if SECRET.search(variable) and not is_passed_on:
                yield f"{name}: {variable} has a value"
        if name == container.server[0] and TOKEN not in given:
            yield f"{name}: {TOKEN} is not passed on"


def _environment(service: Mapping[str, Any]) -> Dict[str, Optional[str]]:
    given = service.get("environment") or []
    if isinstance(given, dict):
        return {name: None if value is None else str(value) for name, value in given.items()}
    split = [entry.partition("=") for entry in given]
    return {name: value if is_given else None for name, is_given, value in split}


@rule("compose-grace")
def check_compose_grace(container: Container) -> Iterator[str]:
    """The server may finish what is under way before it is killed."""
    name, service = container.server
    needed = 0.0
    for _, words in container.starts({}):
        with suppress(ValueError):  # another rule says what is wrong with it
            needed = max(needed, serve_options(words[len(SERVE) :])["timeout"] + SERVE_WAITS)
    try:
        grace = to_seconds(service.get("stop_grace_period", "10s"))
    except ValueError as err:
        yield f"{name}: {err}"
        return
    if grace <= needed:
        yield f"{name}: stop_grace_period is {grace:g} s, the server may need {needed:g}"


@rule("compose-healthcheck")
def check_compose_healthcheck(container: Container) -> Iterator[str]:
    """Every service has a health check; the server's is that of the Containerfile."""
    for name, service in container.services.items():
        test = service.get("healthcheck", {}).get("test", [])
        if test[:1] != ["CMD"]:
            yield f"{name}: no healthcheck whose test is a list that begins with CMD"
        elif name == container.server[0] and test[1:] != container.healthcheck():
            yield f"{name}: another healthcheck than in Containerfile"


@rule("prometheus-keys")
def check_prometheus_keys(container: Container) -> Iterator[str]:
    """prometheus.yml has only keys that we know."""
    unknown = _unknown_keys(container.prometheus, PROMETHEUS_KEYS)
    yield from (f"prometheus.yml: unknown {key}" for key in unknown)


@rule("prometheus-target")
def check_prometheus_target(container: Container) -> Iterator[str]:
    """Prometheus reads /metrics of the server, at its name in compose.yml and the port of EXPOSE."""
    exposed = container.final.last("EXPOSE")
    expected = f"{container.server[0]}:{exposed.text if exposed else ''}"
    for job in container.prometheus.get("scrape_configs", []):
        targets = [target for config in job.get("static_configs", []) for target in config.get("targets", [])]
        if expected in targets and job.get("metrics_path", "/metrics") == "/metrics":
            break
    else:
        yield f"no job reads {expected}/metrics"
    mounted = [v for s in container.services.values() for v in s.get("volumes", []) if isinstance(v, str)]
    if not any(volume.startswith("./prometheus.yml:") for volume in mounted):
        yield "no service mounts prometheus.yml"


def run_hadolint(path: Path) -> Optional[List[Problem]]:
    """RETURNS (Optional[List[Problem]]): What hadolint says, None if it is not installed."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("hadolint", path=places)
    if program is None:
        return None
    command = [program, "--no-fail", "--format", "json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [
        Problem(f"hadolint {found['code']}", f"Containerfile:{found['line']}: {found['message']}")
        for found in json.loads(done.stdout)
    ]


# ---------------------------------------------------------------------- running

# folders that the Containerfile makes
OWN = re.compile(r"(?<![\w.}/*-])/(?:opt/venv|src|context|image|pipeline)\b")
ABSOLUTE = re.compile(r"(?<![\w.}/*-])/[a-z][\w./-]*")
# what would change this machine
SYSTEM = re.compile(r"\b(apt-get|apk|dpkg|useradd|adduser|groupadd|addgroup|chown)\b")
# what the commands of a build may know of this machine: where packages come from
PASSED_ON = re.compile(r"(?i)PIP_\w+|(https?|no|all)_proxy|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|HOME")
TEXT = "who is the president of france"
# the command of compose.yml is tried with several workers, which share their counts in files
WORKERS = {"ELQ_WORKERS": "2"}


class Failed(Exception):
    """The build or the server did not do what it should."""


class StandIn:
    """A folder that stands in for the root of a container. Absolute paths of the Containerfile become paths
    in it, and a copy of the Python that runs this script is in /usr/local, as in the base image.
    """

    def __init__(self, container: Container, folder: Path, arguments: Mapping[str, str]) -> None:
        """Make the stand-in.

        folder (Path): An empty folder that every user can read.
        arguments (Mapping[str, str]): The build's arguments.
        """
        self.container = container
        self.folder = folder
        self.root = folder / "root"
        self.context = folder / "context"
        self.workdir = self.root
        self.environment: Dict[str, str] = {}
        self._arguments = arguments
        self._given: Dict[str, str] = {}

    def build(self) -> None:
        """Do what the instructions say, in a folder for each stage that is kept for COPY --from."""
        for name in self.container.visible():
            (self.context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.container.context / name, self.context / name)
        for stage in self.container.stages:
            self._begin(stage)
            for step in stage.steps:
                work = getattr(self, f"_do_{step.name.lower()}", None)
                if work is not None:
                    started = time.monotonic()
                    work(step)
                    if step.name in ("RUN", "COPY"):
                        _say(step.name, step.text, time.monotonic() - started)
            if stage is not self.container.final:
                self.root.rename(self.folder / stage.name)

    def inside(self, text: str) -> str:
        """RETURNS (str): A text whose absolute paths are those of the stand-in."""
        return OWN.sub(lambda match: f"{self.root}{match[0]}", text)

    def _path(self, name: str) -> Path:
        return self.root / name.lstrip("/") if name.startswith("/") else self.workdir / name

    def _begin(self, stage: Stage) -> None:
        started = time.monotonic()
        self.workdir = self.root
        local = self.root / "usr" / "local"
        # this Python may have a library, which the copy would look for where other users cannot
        self.environment = {"PATH": f"{local}/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": f"{local}/lib"}
        self._given = {}
        _copy_python(local)
        _say("FROM", f"{stage.image}: here Python {sys.version.split()[0]}", time.monotonic() - started)

    def _do_arg(self, step: Instruction) -> None:
        for name, value in step.pairs():
            if name in self._arguments or "=" in step.text:
                self._given[name] = self._arguments.get(name, value)

    def _do_env(self, step: Instruction) -> None:
        for name, value in step.pairs():
            self.environment[name] = self.inside(expand(value, {**self._given, **self.environment}))

    def _do_workdir(self, step: Instruction) -> None:
        self.workdir = self._path(step.text)
        self.workdir.mkdir(parents=True, exist_ok=True)

    def _do_copy(self, step: Instruction) -> None:
        *sources, target = shlex.split(step.text)
        stage = dict(step.flags).get("from")
        base = self.folder / stage if stage else self.context
        for source in sources:
            path, to = base / source.lstrip("/"), self._path(target)
            if path.is_dir():
                shutil.copytree(path, to, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
            else:
                to = to / path.name if target.endswith("/") else to
                to.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, to)

    def _do_run(self, step: Instruction) -> None:
        strange = [m[0] for m in ABSOLUTE.finditer(step.text) if not OWN.match(m[0]) and m[0] != "/dev/null"]
        if strange or SYSTEM.search(step.text):
            raise Failed(f"{step}: not run, it may change this machine: {' '.join(strange) or step.text}")
        mounts = [dict(part.split("=") for part in value.split(",")) for flag, value in step.flags]
        targets = [self._path(mount["target"]) for mount in mounts]
        for target in targets:
            target.symlink_to(self.context)
        known = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        done = subprocess.run(
            ["/bin/sh", "-c", self.inside(step.text)],
            cwd=self.workdir,
            env={**known, **self._given, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for target in targets:
            target.unlink()
        if done.returncode != 0:
            raise Failed(f"{step}: exit code {done.returncode}\n{done.stdout[-3000:]}")


def _say(what: str, text: str, seconds: float) -> None:
    text = text if len(text) <= 80 else text[:79] + "…"
    typer.echo(f"  {seconds:5.1f} s  {what} {text}")


def _copy_python(folder: Path) -> None:
    """Copy the Python that runs this, which other users may not reach, without what was added to it."""
    name, base = f"python{sys.version_info[0]}.{sys.version_info[1]}", Path(sys.base_prefix)
    left_out = shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__")
    shutil.copytree(base / "lib" / name, folder / "lib" / name, ignore=left_out, symlinks=True)
    for library in (base / "lib").glob("libpython*"):
        shutil.copy2(library, folder / "lib" / library.name, follow_symlinks=False)
    (folder / "bin").mkdir()
    shutil.copy2(base / "bin" / name, folder / "bin" / name)
    for link in ("python3", "python"):
        (folder / "bin" / link).symlink_to(name)


def _lock(folder: Path) -> None:
    """Let everyone read a folder, and nobody write to it."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod((mode | (0o555 if path.is_dir() else 0o444)) & ~0o222)


class Server:
    """A server in a stand-in: how to run commands as its user."""

    def __init__(self, stand_in: StandIn, folder: Path) -> None:
        """Prepare to run commands.

        folder (Path): Where the user may write.
        """
        final = stand_in.container.final
        user, exposed, signal_ = (final.last(name) for name in ("USER", "EXPOSE", "STOPSIGNAL"))
        assert user is not None
        assert exposed is not None
        assert signal_ is not None
        self.stand_in = stand_in
        self.folder = folder
        self.log = folder.with_suffix(".log")
        self.port = _free_port()
        self.signal = getattr(signal, signal_.text)
        self._exposed = exposed.text
        numbers = [int(number) for number in user.text.split(":")]
        # who is not root cannot become another
        self._user: Dict[str, Any] = {}
        if os.geteuid() == 0:
            self._user = {"user": numbers[0], "group": numbers[-1], "extra_groups": []}
            os.chown(folder, numbers[0], numbers[-1])
        self.environment = {**stand_in.environment, "HOME": str(stand_in.root), "TMPDIR": str(folder)}

    def words(self, words: Sequence[str]) -> List[str]:
        """RETURNS (List[str]): A command with the stand-in's paths, at a free port of this machine only."""
        port = re.compile(rf"\b{self._exposed}\b")
        moved = [port.sub(str(self.port), word).replace("0.0.0.0", "127.0.0.1") for word in words]
        program = shutil.which(moved[0], path=self.environment["PATH"])
        if program is None:
            raise Failed(f"{moved[0]} is not in {self.environment['PATH']}")
        return [program, *map(self.stand_in.inside, moved[1:])]

    def run(self, words: Sequence[str], timeout: float) -> "subprocess.CompletedProcess[str]":
        """RETURNS (subprocess.CompletedProcess[str]): What became of a command."""
        return subprocess.run(
            self.words(words),
            cwd=self.stand_in.workdir,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            **self._user,
        )

    @contextmanager
    def start(self, words: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a command. At the end nothing is left of it."""
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                self.words(words),
                cwd=self.stand_in.workdir,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._user,
            )
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def ask(self, path: str, body: Any = None) -> str:
        """RETURNS (str): The answer to a request."""
        data = None if body is None else json.dumps(body).encode("utf8")
        request = Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=60) as answer:
                return answer.read().decode("utf8")
        except (URLError, OSError) as err:
            raise Failed(f"{path}: {err}\n{self.tail()}") from None

    def tail(self) -> str:
        """RETURNS (str): The end of the log."""
        return self.log.read_text(encoding="utf8", errors="replace")[-3000:]


def _free_port() -> int:
    with socket.socket() as open_:
        open_.bind(("127.0.0.1", 0))
        return open_.getsockname()[1]


def try_server(stand_in: StandIn, words: Sequence[str], folder: Path, text: Optional[str]) -> None:
    """Start the server, use it, and stop it.

    words (Sequence[str]): How it is started.
    folder (Path): An empty folder, where it may write.
    text (Optional[str]): A text in which something must be linked.
    RAISES (Failed): If something is not as it should be.
    """
    server = Server(stand_in, folder)
    places = [str(path) for path in (stand_in.root, stand_in.root / "opt/venv", stand_in.root / "pipeline")]
    code = "import os, sys; print(*(path for path in sys.argv[1:] if os.access(path, os.W_OK)))"
    done = server.run(["python", "-c", code, *places], 60)
    if done.returncode != 0 or done.stdout.strip():
        raise Failed(f"the server's user can write to {done.stdout}{done.stderr}")
    with server.start(words) as process:
        _wait_until_healthy(server, process)
        _try_requests(server, text)
        _stop(server, process)
    left = sorted(path.name for path in folder.iterdir())
    typer.echo(f"  left in /tmp: {', '.join(left) or 'nothing'}")


def _wait_until_healthy(server: Server, process: "subprocess.Popen[bytes]") -> None:
    container, started = server.stand_in.container, time.monotonic()
    step = container.final.last("HEALTHCHECK")
    assert step is not None
    limits = {name: to_seconds(value) for name, value in step.flags if name != "retries"}
    while True:
        with suppress(subprocess.TimeoutExpired):
            if server.run(container.healthcheck(), limits["timeout"]).returncode == 0:
                break
        if process.poll() is not None:
            raise Failed(f"the server ended with {process.returncode}\n{server.tail()}")
        if time.monotonic() - started > limits["start-period"]:
            raise Failed(f"not healthy after {limits['start-period']:g} s\n{server.tail()}")
        time.sleep(0.5)
    _say("HEALTHCHECK", "succeeds", time.monotonic() - started)


def _stop(server: Server, process: "subprocess.Popen[bytes]") -> None:
    grace = to_seconds(server.stand_in.container.server[1]["stop_grace_period"])
    started = time.monotonic()
    process.send_signal(server.signal)
    try:
        code = process.wait(grace)
    except subprocess.TimeoutExpired:
        raise Failed(f"still there {grace:g} s after {server.signal.name}\n{server.tail()}") from None
    if code != 0:
        raise Failed(f"exit code {code} after {server.signal.name}\n{server.tail()}")
    _say(server.signal.name, "exit code 0", time.monotonic() - started)


def _try_requests(server: Server, text: Optional[str]) -> None:
    started = time.monotonic()
    if "<html" not in server.ask("/"):
        raise Failed("/: no page")
    result = json.loads(server.ask("/link", {"text": text or TEXT}))["results"][0]
    if result["error"] is not None or (text and not result["links"]):
        raise Failed(f"/link: {result}")
    found = ", ".join(f"{link['mention']} → {link['title']}" for link in result["links"])
    _say("POST", f"/link: {result['text']}: {found or 'no links'}", time.monotonic() - started)
    started = time.monotonic()
    counted = re.findall(r"^(elq_requests_total\{.*path=\"/link\".*\}) (.+)$", server.ask("/metrics"), re.M)
    if [float(number) for _, number in counted] != [1.0]:
        raise Failed(f"/metrics: expected one request to /link, got {counted}")
    _say("GET", f"/metrics: {counted[0][0]} {counted[0][1]}", time.monotonic() - started)


def try_container(container: Container, pipeline: Path, text: Optional[str] = None) -> None:
    """Build the image in a stand-in. Start the server as the Containerfile does, then as compose.yml does.

    pipeline (Path): A pipeline with its index inside: a folder to mount at /pipeline, or a wheel to install.
    text (Optional[str]): A text in which something must be linked.
    RAISES (Failed): If something is not as it should be.
    """
    with tempfile.TemporaryDirectory(prefix="spacy-elq-container-") as name:
        folder, arguments = Path(name).resolve(), {}
        folder.chmod(0o755)
        if pipeline.is_file():
            arguments["PIPELINE_WHEEL"] = f"packages/{pipeline.stem}/dist/{pipeline.name}"
            target = folder / "context" / arguments["PIPELINE_WHEEL"]
            if container.is_ignored(arguments["PIPELINE_WHEEL"]):
                raise Failed(f"Containerfile.dockerignore hides {arguments['PIPELINE_WHEEL']}")
            target.parent.mkdir(parents=True)
            shutil.copy2(pipeline, target)
        stand_in = StandIn(container, folder, arguments)
        stand_in.build()
        if pipeline.is_dir():
            shutil.copytree(pipeline, stand_in.root / "pipeline", dirs_exist_ok=True)
            typer.echo(f"  {pipeline} is at /pipeline")
        _lock(stand_in.root)
        for number, (file_, words) in enumerate(container.starts(WORKERS)):
            typer.echo(f"{file_}: {shlex.join(words)}")
            writable = folder / f"tmp-{number}"
            writable.mkdir(mode=0o700)
            try_server(stand_in, words, writable, text)


# ---------------------------------------------------------------------- the command


@app.command()
def main(
    run: Optional[Path] = typer.Option(
        None,
        "--run",
        exists=True,
        help="A pipeline with its index inside, a folder or a wheel: also build the image and try the server",
    ),
    text: Optional[str] = typer.Option(None, "--text", help="With --run: a text that must get a link"),
    rules: bool = typer.Option(False, "--rules", help="List the rules and end"),
) -> None:
    """Check container/Containerfile, compose.yml and prometheus.yml.

    Without options: against rules, and with hadolint if it is installed (the extra `dev` has it).

    With --run also what an engine would do with them. RUN and COPY are carried out in a temporary folder,
    with a copy of this Python for the base image and freshly downloaded packages: 2 GB, where TMPDIR says.
    The server is started by ENTRYPOINT and CMD, then by the command in compose.yml with two workers: as the
    user in USER if you are root, otherwise as you, with one folder that it can write to. It must become
    healthy, link a text, count that, and end with exit code 0 when it is told to stop:

    python scripts/check_container.py --run models/elq_int8_bundled --text "how old is tom hanks"

    What this cannot show: whether the base image lacks something, limits of memory, and the network between
    the services.
    """
    if rules:
        for name, function in RULES.items():
            typer.echo(f"{name:<20} {' '.join((function.__doc__ or '').split())}")
        return
    try:
        container = read(FOLDER)
        problems = find_problems(container)
    except ValueError as err:
        typer.echo(f"✘ {err}")
        raise typer.Exit(1) from None
    linted = run_hadolint(FOLDER / "Containerfile")
    for problem in itertools.chain(problems, linted or []):
        typer.echo(f"✘ {problem.rule}: {problem.text}")
    if problems or linted:
        raise typer.Exit(1)
    said = "hadolint is not installed" if linted is None else "hadolint agrees"
    typer.echo(f"✔ {len(RULES)} rules hold, {said}")
    if run is not None:
        try:
            try_container(container, run, text)
        except Failed as err:
            typer.echo(f"✘ {err}")
            raise typer.Exit(1) from None
        typer.echo("✔ built; twice started, used and stopped")


if __name__ == "__main__":
    app()
