"""A real but tiny world: a BERT with random weights, ten entities, twenty questions, a FAISS index."""

import json
import math
import os
import pwd
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import format_exception
from typing import Callable, ContextManager, Dict, Iterator, List

import faiss
import pytest
import spacy
import torch
from filelock import FileLock
from hypothesis import settings
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from tagme_world import build, write_world
from thinc.api import fix_random_seed
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, BertTokenizerFast
from typer.testing import CliRunner
from vcg_world import WIDTH, build_world, write_relations

from spacy_elq.baselines.spacy_kb import build_kb_loader
from spacy_elq.baselines.tagme.dictionary import AnchorDictionary, build_dictionary
from spacy_elq.baselines.vcg.relations import Relations
from spacy_elq.cli import spacy_app
from spacy_elq.corpora import Report, questions_to_docs, read_questions
from spacy_elq.index import EntityIndex, build_index, encode_catalogue
from spacy_elq.model.entity_encoder import EntityEncoder
from spacy_elq.pipeline.legacy import move_settings

torch.set_num_threads(1)
# machines are shared: how long an example takes says nothing
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

ENTITIES = [
    {
        "id": "E1",
        "title": "Paris",
        "description": "Capital of France.",
        "label": "GPE",
        "aliases": ["City of Light"],
    },
    {"id": "E2", "title": "Paris, Texas", "description": "Small city in Texas.", "label": "GPE"},
    {"id": "E3", "title": "Mercury (planet)", "description": "The planet nearest to the sun."},
    {"id": "E4", "title": "Mercury (element)", "description": "A liquid metal.", "ids": {"symbol": "Hg"}},
    {"id": "E5", "title": "New York City", "description": "Largest city of the United States."},
    {"id": "E6", "title": "Georgia (country)", "description": "Country on the Black Sea."},
    {"id": "E7", "title": "Georgia (U.S. state)", "description": "State with the capital Atlanta."},
    {"id": "E8", "title": "Shaquille O'Neal", "description": "Basketball player.", "aliases": ["Shaq"]},
    {"id": "E9", "title": "Jaguar", "description": "A big cat."},
    {"id": "E10", "title": "Jaguar Cars", "description": "Maker of cars."},
]
QUESTIONS = """\
# plain
what is the capital of france near [paris](E1)
how big is [new york city](E5)
when was [shaquille o'neal](E8) born
where do [jaguar](E9) cats sleep
how do i get to [paris, texas](E2)
is [mercury](E3) a hot planet
who mines [mercury](E4) the metal
what sea is [georgia](E6) on
is atlanta in [georgia](E7)
who builds the [jaguar](E10) car
# nickname
did [shaq](E8) play in the nba
hotels in the [city of light](E1)
trains to [nyc](E5)
# typo
weather in [pariss](E1)
[gorgia](E7) peach farms
# several
is [paris](E1) older than [new york city](E5)
[jaguar](E9) or [jaguar](E10) which is faster
from [georgia](E6) to [paris](E1) and [new york city](E5)
# none
how do i boil an egg
what time is it
"""
ANCHORS = "Mercury\tE3\t3\nMercury\tE4\t1\nJaguar\tE9\t1\nJaguar\tE10\t1\nNYC\tE5\t4\n"
TRANSFORMER = {
    "factory": "transformer",
    "config": {
        "model": {
            "@architectures": "spacy-transformers.TransformerModel.v3",
            "get_spans": {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 24, "stride": 16},
            "tokenizer_config": {"use_fast": True},
        }
    },
}

PUBLISHED_PARAMS = {
    "bert_model": "bert",
    "max_context_length": 64,
    "max_cand_length": 48,
    "max_mention_length": 3,
    "mention_aggregation_type": "all_avg",
    "mention_scoring_method": "qa_linear",
    "no_mention_bounds": True,
    "add_linear": False,
    "pull_from_layer": -1,
    "lowercase": True,
}
PUBLISHED_TITLES = [
    "Paris",
    "Mercury",
    "New York City",
    "Georgia",
    "Jaguar Cars",
    "Shaq",
    "Texas",
    "Light",
    "Metal",
    "Atlanta",
]
PUBLISHED_QUESTIONS = [
    "what is the capital near paris",
    "is mercury a metal",
    "shaq's jaguar in new-york city",
    "georgia",
    "from texas to atlanta and paris and georgia and mercury and the city of light",
]
PUBLISHED_FILES = {
    "checkpoint": "elq_webqsp_large.bin",
    "params": "elq_large_params.txt",
    "entities": "entity.jsonl",
    "vectors": "all_entities_large.t7",
    "index": "faiss_hnsw_index.pkl",
}


MakeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> MakeOnce:
    """Makes a folder that all processes of a parallel run share: the first that needs it fills it."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # each worker has a folder of its own in it

    def make(name: str, write: Callable[[Path], object]) -> Path:
        folder = root / "shared" / name
        folder.parent.mkdir(exist_ok=True)
        with FileLock(root / "shared" / f"{name}.lock"):
            if not folder.with_suffix(".done").exists():
                folder.mkdir()
                write(folder)
                folder.with_suffix(".done").touch()
        return folder

    return make


@pytest.fixture(scope="session")
def encoder_path(make_once: MakeOnce) -> Path:
    """A folder with a BERT of random weights whose word pieces are characters and a few words."""
    return make_once("encoder", write_encoder)


def write_encoder(folder: Path) -> None:
    words = "what is the capital of france near paris new york city texas mercury planet metal georgia"
    words += " jaguar light shaquille neal shaq atlanta"
    characters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    vocab = ["[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab += characters + [f"##{c}" for c in characters] + words.split()
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf8")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=64,
        # no dropout: overfitting to exact links must not depend on luck
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer = BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="session")
def entity_encoder(encoder_path: Path) -> EntityEncoder:
    return EntityEncoder(str(encoder_path), max_length=48)


@pytest.fixture(scope="session")
def catalogue_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("catalogue") / "entities.jsonl"
    path.write_text("".join(json.dumps(entity) + "\n" for entity in ENTITIES), encoding="utf8")
    return path


@pytest.fixture(scope="session")
def vectors_path(make_once: MakeOnce, catalogue_path: Path, entity_encoder: EntityEncoder) -> Path:
    return make_once("vectors", lambda folder: encode_catalogue(catalogue_path, folder, entity_encoder))


@pytest.fixture(scope="session")
def index(make_once: MakeOnce, vectors_path: Path) -> EntityIndex:
    return EntityIndex.open(make_once("index", lambda folder: build_index(vectors_path, folder)))


@pytest.fixture(scope="session")
def questions_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("questions") / "questions.txt"
    path.write_text(QUESTIONS, encoding="utf8")
    return path


@pytest.fixture(scope="session")
def gold_docs(questions_path: Path) -> List[Doc]:
    questions = read_questions(questions_path, format="marked")
    return list(questions_to_docs(questions, spacy.blank("en"), Report()))


MakePipeline = Callable[..., Language]


@pytest.fixture(scope="session")
def make_pipeline(encoder_path: Path, index: EntityIndex) -> MakePipeline:
    """Makes a pipeline, "transformer" or "tok2vec", with the index attached, not trained yet."""

    def make(kind: str, gold: List[Doc] = (), **settings: object) -> Language:
        fix_random_seed(0)
        nlp = spacy.blank("en")
        config: Dict[str, object] = move_settings("elq_linker", settings)
        if kind == "transformer":
            transformer = json.loads(json.dumps(TRANSFORMER["config"]))
            transformer["model"]["name"] = str(encoder_path)
            nlp.add_pipe("transformer", config=transformer)
            tok2vec = {"@architectures": "spacy-elq.WordPieceListener.v1"}
            config["model"] = {"@architectures": "spacy-elq.QuestionTower.v1", "tok2vec": tok2vec}
        linker = nlp.add_pipe("elq_linker", config=config)
        linker.set_index(index)
        docs = gold or [nlp.make_doc("hello world")]
        nlp.initialize(lambda: [Example(nlp.make_doc(doc.text), doc) for doc in docs])
        return nlp

    return make


def train(nlp: Language, docs: List[Doc], *, steps: int, learn_rate: float) -> List[float]:
    """Update on all docs at once; gives the losses of the linker, and of what finds its mentions."""
    optimizer = nlp.create_optimizer()
    optimizer.learn_rate = learn_rate
    history = []
    for _ in range(steps):
        losses: Dict[str, float] = {}
        nlp.update([Example(nlp.make_doc(doc.text), doc) for doc in docs], sgd=optimizer, losses=losses)
        history.append(sum(loss for name, loss in losses.items() if name != "transformer"))
    return history


def change(component: object, **settings: object) -> None:
    """Set settings of a component by hand."""
    for name, value in settings.items():
        setattr(component, name, value)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Be a user without privileges for a while: permissions do not apply to root."""
    before = os.geteuid()
    user = pwd.getpwnam("nobody").pw_uid if before == 0 else before
    os.setresuid(user, user, before)
    try:
        yield
    finally:
        os.setresuid(before, before, before)


@pytest.fixture
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], ContextManager[None]]:
    """Makes a context without privileges, in which all that was made so far can be read."""
    base = tmp_path_factory.getbasetemp()
    for root, _, files in os.walk(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base):
        for path in (Path(root), *(Path(root, name) for name in files)):
            if path.exists() and not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    for folder in base.parents:
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(folder.stat().st_mode | 0o055)
    return as_nobody


@dataclass
class Done:
    """What a command left behind, as `subprocess.run` tells it."""

    returncode: int
    stdout: str
    stderr: str


def run_spacy(*words: object, stdin: str = "") -> Done:
    """Run `python -m spacy …` in this process, which saves seconds of imports."""
    result = CliRunner().invoke(spacy_app, [str(word) for word in words], input=stdin)
    error = (
        ""
        if isinstance(result.exception, (SystemExit, type(None)))
        else "".join(format_exception(result.exception))
    )
    return Done(result.exit_code, result.stdout, result.stderr + error)


def links_of(doc: Doc) -> List[tuple]:
    return [(ent.start_char, ent.end_char, ent.kb_id_) for ent in doc.ents]


LoadTrained = Callable[[str], Path]


@pytest.fixture(scope="session")
def train_once(make_once: MakeOnce, make_pipeline: MakePipeline, gold_docs: List[Doc]) -> LoadTrained:
    """Gives the folder of a pipeline, "transformer" or "tok2vec", that knows the questions by heart."""

    def write(kind: str, folder: Path) -> None:
        nlp = make_pipeline(kind, gold_docs)
        steps, rate = (150, 0.002) if kind == "transformer" else (200, 0.005)
        train(nlp, gold_docs, steps=steps, learn_rate=rate)
        nlp.to_disk(folder / "elq")

    return lambda kind: make_once(kind, partial(write, kind)) / "elq"


@pytest.fixture(scope="session", params=["transformer", "tok2vec"])
def trained(request: pytest.FixtureRequest, train_once: LoadTrained) -> Language:
    """A pipeline that knows the twenty questions by heart. Do not change it: load a copy."""
    return spacy.load(train_once(request.param))


@pytest.fixture(scope="session")
def trained_path(train_once: LoadTrained) -> Path:
    """The transformer pipeline that knows the twenty questions, on disk."""
    return train_once("transformer")


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory, encoder_path: Path) -> Path:
    """A folder with every file of a published model, of random weights, under its published name."""
    folder = tmp_path_factory.mktemp("published")
    torch.manual_seed(3)
    state = {}
    for prefix in ("context_encoder", "cand_encoder"):
        for key, value in AutoModel.from_pretrained(encoder_path).state_dict().items():
            noise = 0.05 * torch.randn_like(value) if value.is_floating_point() else 0
            state[f"{prefix}.bert_model.{key}"] = value + noise
    state["classification_heads.mention_scores.bound_classifier.weight"] = 0.3 * torch.randn(3, 48)
    state["classification_heads.mention_scores.bound_classifier.bias"] = torch.tensor([-0.5, 0.2, -0.3])
    torch.save(state, folder / PUBLISHED_FILES["checkpoint"])
    (folder / PUBLISHED_FILES["params"]).write_text(repr(PUBLISHED_PARAMS), encoding="utf8")
    (folder / "bert").symlink_to(encoder_path)
    lines = [
        {"text": f" {title} is a thing." if i else "", "idx": f"https://x.org/wiki?curid={100 + i}"}
        | {"title": title, "entity": title}
        | ({"kb_idx": f"Q{i}"} if i not in (3, 4) else {})
        for i, title in enumerate(PUBLISHED_TITLES)
    ]
    lines[5]["kb_idx"] = "Q1"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / PUBLISHED_FILES["entities"]).write_text(text, encoding="utf8")
    vectors = _published_vectors(folder, state, lines)
    torch.save(vectors, folder / PUBLISHED_FILES["vectors"])
    index = faiss.IndexHNSWFlat(48, 128, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors.numpy())
    faiss.write_index(index, str(folder / PUBLISHED_FILES["index"]))
    return folder


def load_published_bert(folder: Path, state: Dict[str, torch.Tensor], prefix: str) -> torch.nn.Module:
    bert = AutoModel.from_pretrained(folder / "bert")
    bert.load_state_dict({k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)})
    return bert.eval()


@torch.inference_mode()
def _published_vectors(folder: Path, state: Dict[str, torch.Tensor], lines: List[dict]) -> torch.Tensor:
    tokenizer = AutoTokenizer.from_pretrained(folder / "bert")
    bert = load_published_bert(folder, state, "cand_encoder.bert_model.")
    rows = []
    for line in lines:
        pieces = [*tokenizer.tokenize(line["title"]), "[unused2]", *tokenizer.tokenize(line["text"])][:46]
        ids = tokenizer.convert_tokens_to_ids(["[CLS]", *pieces, "[SEP]"])
        rows.append(bert(torch.tensor([ids])).last_hidden_state[0, 0])
    return torch.stack(rows)


@torch.inference_mode()
def published_links(folder: Path, text: str, gamma: float, *, limit: int = 50) -> Dict[tuple, float]:
    """The formulas of the paper, written out once more: spans of whole words, the best `limit` of them, joint
    scores, greedy. From characters and row of each link to its score.
    """
    state = torch.load(folder / PUBLISHED_FILES["checkpoint"], weights_only=True)
    vectors = torch.load(folder / PUBLISHED_FILES["vectors"], weights_only=True)
    encoded = AutoTokenizer.from_pretrained(folder / "bert")(text, return_offsets_mapping=True)
    words, offsets = encoded.word_ids()[1:-1], encoded["offset_mapping"][1:-1]
    bert = load_published_bert(folder, state, "context_encoder.bert_model.")
    states = bert(torch.tensor([encoded["input_ids"]])).last_hidden_state[0, 1:-1]
    head = "classification_heads.mention_scores.bound_classifier."
    start, end, inside = (states @ state[head + "weight"].T + state[head + "bias"]).T
    spans = []
    for i in range(len(words)):
        for j in range(i, min(i + PUBLISHED_PARAMS["max_mention_length"] + 1, len(words))):
            starts = i == 0 or words[i - 1] != words[i]
            ends = j == len(words) - 1 or words[j + 1] != words[j]
            if starts and ends:
                spans.append((float(start[i] + end[j] + inside[i : j + 1].sum()), i, j))
    links = []
    for logit, i, j in sorted(spans, reverse=True)[:limit]:
        similarities = states[i : j + 1].mean(0) @ vectors.T
        best = similarities.topk(10)
        score = float(torch.log_softmax(best.values, 0)[0]) - math.log1p(math.exp(-logit))
        if score >= gamma:
            links.append((score, i, j, int(best.indices[0])))
    chosen: List[tuple] = []
    for score, i, j, row in sorted(links, reverse=True):
        if all(j < a or b < i for _, a, b, _ in chosen):
            chosen.append((score, i, j, row))
    return {(offsets[i][0], offsets[j][1], row): score for score, i, j, row in chosen}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with anchors.tsv, entities.jsonl and sentences.jsonl; see `tagme_world`."""
    return write_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def dictionary(world: Path, tmp_path_factory: pytest.TempPathFactory) -> AnchorDictionary:
    return build(world, tmp_path_factory.mktemp("anchors") / "dictionary")


@pytest.fixture
def make_tagme(dictionary: AnchorDictionary) -> MakePipeline:
    """Makes a pipeline with `elq_tagme` and the dictionary."""

    def make(**settings: object) -> Language:
        nlp = spacy.blank("en")
        nlp.add_pipe(
            "elq_tagme", config={"dictionary": str(dictionary.path), **move_settings("elq_tagme", settings)}
        )
        return nlp

    return make


@pytest.fixture(scope="session")
def make_blink(encoder_path: Path, index: EntityIndex) -> MakePipeline:
    """Makes a pipeline with `elq_span_extractor` and `elq_blink`, the index attached, not trained yet."""

    def make(gold: List[Doc] = (), **settings: object) -> Language:
        fix_random_seed(0)
        nlp = spacy.blank("en")
        transformer = json.loads(json.dumps(TRANSFORMER["config"]))
        transformer["model"]["name"] = str(encoder_path)
        nlp.add_pipe("transformer", config=transformer)
        tok2vec = {"@architectures": "spacy-elq.WordPieceListener.v1"}
        model = {"@architectures": "spacy-elq.SpanExtractor.v1", "tok2vec": tok2vec}
        nlp.add_pipe("elq_span_extractor", config={"model": model})
        context = {"context_encoder": {"name": str(encoder_path)}, "pooling": "mean"}
        linker = nlp.add_pipe("elq_blink", config={"model": context, **move_settings("elq_blink", settings)})
        linker.set_index(index)
        docs = gold or [nlp.make_doc("hello world")]
        nlp.initialize(lambda: [Example(nlp.make_doc(doc.text), doc) for doc in docs])
        return nlp

    return make


@pytest.fixture(scope="session")
def single_docs(gold_docs: List[Doc]) -> List[Doc]:
    """The questions with one mention: a softmax over starts and one over ends cannot tell pairs apart."""
    return [doc for doc in gold_docs if len(doc.ents) == 1]


@pytest.fixture(scope="session")
def blink_path(make_once: MakeOnce, make_blink: MakePipeline, single_docs: List[Doc]) -> Path:
    """The two-stage pipeline that knows the questions with one mention, on disk."""

    def write(folder: Path) -> None:
        nlp = make_blink(single_docs)
        train(nlp, single_docs, steps=60, learn_rate=0.002)
        nlp.to_disk(folder / "blink")

    return make_once("two-stage", write) / "blink"


@pytest.fixture(scope="session")
def relations(index: EntityIndex, tmp_path_factory: pytest.TempPathFactory) -> Relations:
    """The relations of the ten entities; see `vcg_world`."""
    folder = write_relations(tmp_path_factory.mktemp("relations"))
    return build_world(folder, index.path, folder / "relations")[0]


@pytest.fixture(scope="session")
def make_vcg(relations: Relations) -> MakePipeline:
    """Makes a pipeline with `elq_vcg` and the relations, not trained yet."""

    def make(gold: List[Doc] = (), **settings: object) -> Language:
        fix_random_seed(0)
        nlp = spacy.blank("en")
        config = {"relations": str(relations.path), "model": {"width": WIDTH}, "ramp": 20}
        nlp.add_pipe("elq_vcg", config={**config, **move_settings("elq_vcg", settings)})
        docs = gold or [nlp.make_doc("hello world")]
        nlp.initialize(lambda: [Example(nlp.make_doc(doc.text), doc) for doc in docs])
        return nlp

    return make


@pytest.fixture(scope="session")
def vcg_path(make_once: MakeOnce, make_vcg: MakePipeline, gold_docs: List[Doc]) -> Path:
    """A pipeline with `elq_vcg` that knows the questions, on disk."""

    def write(folder: Path) -> None:
        nlp = make_vcg(gold_docs)
        train(nlp, gold_docs, steps=100, learn_rate=0.003)
        nlp.to_disk(folder / "vcg")

    return make_once("vcg", write) / "vcg"


@pytest.fixture(scope="session")
def anchors(catalogue_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AnchorDictionary:
    """A dictionary of the ten entities."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "anchors.tsv").write_text(ANCHORS, encoding="utf8")
    return build_dictionary(folder / "anchors.tsv", catalogue_path, folder / "dictionary")[0]


@pytest.fixture(scope="session")
def own_path(
    anchors: AnchorDictionary,
    index: EntityIndex,
    single_docs: List[Doc],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A pipeline of spaCy's own components that found the mentions of the questions in training, on disk."""
    fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.add_pipe("ner")
    nlp.add_pipe("sentencizer")
    config = {"get_candidates": {"@misc": "spacy-elq.NameCandidates.v1"}}
    linker = nlp.add_pipe("entity_linker", config=config)
    linker.set_kb(build_kb_loader(anchors.path, index.path))
    nlp.initialize(lambda: [Example(nlp.make_doc(doc.text), doc) for doc in single_docs])
    train(nlp, single_docs, steps=25, learn_rate=0.01)
    path = tmp_path_factory.mktemp("own") / "pipeline"
    nlp.to_disk(path)
    return path


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A folder in memory where the system has one: nothing waits for a disk. Everybody may look into it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
