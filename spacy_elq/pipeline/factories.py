"""What makes the components. spaCy imports all factories of all packages with every pipeline, so these import
a component, and torch and FAISS with it, only when one is made.
"""

from typing import TYPE_CHECKING, Callable, List, Optional, Union

from spacy.language import Language
from thinc.api import Config, Model

from ..core.decode import Decoder
from ..core.losses import Loss
from ..core.similarity import Prior
from . import legacy  # noqa: F401  (lets spaCy accept configs of 0.1, before a component is made)
from .annotate import ASSIGNS
from .scorer import SCORE_WEIGHTS

if TYPE_CHECKING:
    from .biencoder import ELQPairs
    from .linker import ELQLinker
    from .remote import ELQRemote

LINKER_CONFIG = Config().from_str(
    """
[elq_linker]
index_path = null
label = "ENTITY"
existing_ents = "overwrite"
spans_key = null

[elq_linker.model]
@architectures = "spacy-elq.QuestionTower.v2"

[elq_linker.model.tok2vec]
@architectures = "spacy.HashEmbedCNN.v2"
pretrained_vectors = null
width = 96
depth = 4
embed_size = 2000
window_size = 1
maxout_pieces = 3
subword_features = true

[elq_linker.prior]
@misc = "spacy-elq.Prior.v1"

[elq_linker.decoder]
@misc = "spacy-elq.Decoder.v1"

[elq_linker.loss]
@misc = "spacy-elq.Loss.v1"

[elq_linker.negatives]
@misc = "spacy-elq.HardNegatives.v1"

[elq_linker.scorer]
@scorers = "spacy-elq.linker_scorer.v1"
"""
)["elq_linker"]


@Language.factory(
    "elq_linker",
    assigns=ASSIGNS,
    default_config=LINKER_CONFIG,
    default_score_weights=SCORE_WEIGHTS,
)
def make_elq_linker(
    nlp: Language,
    name: str,
    model: Model,
    prior: Prior,
    decoder: Decoder,
    loss: Loss,
    negatives: Callable,
    scorer: Optional[Callable],
    index_path: Union[str, List[str], None],
    label: str,
    existing_ents: str,
    spans_key: Optional[str],
) -> "ELQLinker":
    """Find the entity mentions of short, noisy text and link each to an entity of an index, in one encoder
    pass.

    model (Model): The question tower, which encodes the text and scores mentions.
    prior (Prior): What an entity's names and popularity add to its similarity, and the temperature.
    decoder (Decoder): Thresholds and limits.
    loss (Loss): What training minimizes.
    negatives (Callable): Chooses the entities that compete with the gold entity in training.
    scorer (Optional[Callable]): The scoring method.
    index_path (Union[str, List[str], None]): Folder of the index, or several folders: a later one hides
        entities of an earlier one that have the same ids. `initialize` opens it unless it is given an
        `index_loader`. When a pipeline is loaded, a path that differs from the one it was saved with replaces
        its index.
    label (str): Label of entities that have none in the catalogue.
    existing_ents (str): What happens to entities set by earlier components: "overwrite" drops those that
        overlap a link, "keep" drops links that overlap them, "replace" drops all of them.
    spans_key (Optional[str]): Also put every scored mention into `doc.spans[spans_key]`, with the scores in
        its `attrs["scores"]`.
    """
    from .linker import ELQLinker

    linker = ELQLinker(
        nlp.vocab,
        model,
        name,
        prior=prior,
        decoder=decoder,
        loss=loss,
        negatives=negatives,
        scorer=scorer,
        index_path=index_path,
        label=label,
        existing_ents=existing_ents,
        spans_key=spans_key,
    )
    linker.join(nlp)
    return linker


PAIRS_CONFIG = Config().from_str(
    """
[elq_pairs]
same_name = 1
hard = 0
title_only = 0.0

[elq_pairs.model]
@architectures = "spacy-elq.PairTower.v1"

[elq_pairs.model.tok2vec]
@architectures = "spacy-elq.WordPieceListener.v1"
upstream = "*"
"""
)["elq_pairs"]


@Language.factory("elq_pairs", default_config=PAIRS_CONFIG, default_score_weights={"elq_pairs_acc": 1.0})
def make_elq_pairs(
    nlp: Language,
    name: str,
    model: Model,
    same_name: int,
    hard: int,
    title_only: float,
) -> "ELQPairs":
    """Train the question encoder and the entity encoder together, the stage before `elq_linker`. It annotates
    nothing.

    model (Model): The pair tower, with both encoders.
    same_name (int): Wrong entities with the mention text as a name, drawn at random per mention and added to
        its negatives. 0 leaves the gold entities of the batch, which matches the paper.
    hard (int): Wrong entities that are drawn per mention from the nearest in an index, which `initialize`
        takes (`index_loader`). For a second round: the index is made with the encoders of the first. 0 for
        none, which matches the paper.
    title_only (float): Share of the entities in a batch whose description is left out, so that the encoder
        also learns entities with a title only.
    """
    from .biencoder import ELQPairs

    return ELQPairs(nlp.vocab, model, name, same_name=same_name, hard=hard, title_only=title_only)


REMOTE_CONFIG = Config().from_str(
    """
[elq_remote]
url = "http://127.0.0.1:8000"
threshold = null
alternatives = 10
batch_size = 64
timeout = 30.0
retries = 3
existing_ents = "overwrite"
"""
)["elq_remote"]


@Language.factory("elq_remote", assigns=ASSIGNS, default_config=REMOTE_CONFIG)
def make_elq_remote(
    nlp: Language,
    name: str,
    url: str,
    threshold: Optional[float],
    alternatives: int,
    batch_size: int,
    timeout: float,
    retries: int,
    existing_ents: str,
) -> "ELQRemote":
    """Let a server link the texts, started with `spacy elq serve`. The process itself needs spaCy and httpx
    only, no model and no index.

    url (str): Address of the server.
    threshold (Optional[float]): Minimum score of a link, from 0 to 1. null for that of the server's pipeline.
    alternatives (int): Candidates of each link in `ent._.elq_alternatives`, up to 100.
    batch_size (int): Texts per request. The server takes up to 256, unless it is told otherwise.
    timeout (float): Seconds to wait for an answer.
    retries (int): How often a request is sent again if the server cannot be reached or is busy.
    existing_ents (str): What happens to entities set by earlier components, as in `elq_linker`.
    """
    from .remote import ELQRemote

    return ELQRemote(
        name,
        url=url,
        threshold=threshold,
        alternatives=alternatives,
        batch_size=batch_size,
        timeout=timeout,
        retries=retries,
        existing_ents=existing_ents,
    )
