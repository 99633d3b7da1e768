"""What makes the components of the baselines. As in `spacy_elq.pipeline.factories`, a component is imported
only when one is made.
"""

from typing import TYPE_CHECKING, Callable, List, Optional, Union

from spacy.language import Language
from thinc.api import Config, Model

from ..core.decode import Decoder
from ..core.losses import Loss
from ..core.similarity import Prior
from ..pipeline.annotate import ASSIGNS
from ..pipeline.scorer import SCORE_WEIGHTS

if TYPE_CHECKING:
    from .blink.component import ELQBlink
    from .blink.extractor import ELQSpanExtractor
    from .tagme.component import ELQTagme
    from .vcg.component import ELQVcg

BLINK_CONFIG = Config().from_str(
    """
[elq_blink]
mentions_key = "mentions"
index_path = null
label = "ENTITY"
existing_ents = "overwrite"

[elq_blink.model]
@architectures = "spacy-elq.ContextTower.v1"

[elq_blink.model.context_encoder]
@architectures = "spacy-transformers.TransformerModel.v3"
name = "bert-base-uncased"
tokenizer_config = {"use_fast": true}
transformer_config = {}
mixed_precision = false
grad_scaler_config = {}

[elq_blink.model.context_encoder.get_spans]
@span_getters = "spacy-transformers.doc_spans.v1"

[elq_blink.prior]
@misc = "spacy-elq.Prior.v1"

[elq_blink.decoder]
@misc = "spacy-elq.Decoder.v1"
threshold = 0.05

[elq_blink.loss]
@misc = "spacy-elq.Loss.v1"

[elq_blink.negatives]
@misc = "spacy-elq.HardNegatives.v1"

[elq_blink.scorer]
@scorers = "spacy-elq.linker_scorer.v1"
"""
)["elq_blink"]


@Language.factory(
    "elq_blink",
    assigns=ASSIGNS,
    default_config=BLINK_CONFIG,
    default_score_weights=SCORE_WEIGHTS,
)
def make_elq_blink(
    nlp: Language,
    name: str,
    model: Model,
    prior: Prior,
    decoder: Decoder,
    loss: Loss,
    negatives: Callable,
    scorer: Optional[Callable],
    mentions_key: str,
    index_path: Union[str, List[str], None],
    label: str,
    existing_ents: str,
) -> "ELQBlink":
    """Link mentions suggested by an earlier component such as `elq_span_extractor`, with one encoder pass per
    mention: the two-stage linker that the paper compares with.

    model (Model): The context tower, which encodes a mention with the text around it.
    prior (Prior): What an entity's names and popularity add to its similarity, and the temperature.
    decoder (Decoder): Thresholds and limits. The score of a link is the probability of the suggested mention
        times the probability of the entity among the candidates.
    loss (Loss): What training minimizes.
    negatives (Callable): Chooses the entities that compete with the gold entity in training.
    scorer (Optional[Callable]): The scoring method.
    mentions_key (str): Span group with the suggested mentions, and their probabilities in its
        `attrs["scores"]`. Mentions without probabilities count as certain.
    index_path (Union[str, List[str], None]): Folder of the index, or several, as in `elq_linker`.
    label (str): Label of entities that have none in the catalogue.
    existing_ents (str): What happens to entities set by earlier components, as in `elq_linker`.
    """
    from .blink.component import ELQBlink

    linker = ELQBlink(
        nlp.vocab,
        model,
        name,
        prior=prior,
        decoder=decoder,
        loss=loss,
        negatives=negatives,
        scorer=scorer,
        mentions_key=mentions_key,
        index_path=index_path,
        label=label,
        existing_ents=existing_ents,
    )
    linker.join(nlp)
    return linker


EXTRACTOR_CONFIG = Config().from_str(
    """
[elq_span_extractor]
top_k = 5
threshold = 0.0
max_length = 10
spans_key = "mentions"
label = "MENTION"

[elq_span_extractor.model]
@architectures = "spacy-elq.SpanExtractor.v1"

[elq_span_extractor.model.tok2vec]
@architectures = "spacy.HashEmbedCNN.v2"
pretrained_vectors = null
width = 96
depth = 4
embed_size = 2000
window_size = 1
maxout_pieces = 3
subword_features = true
"""
)["elq_span_extractor"]


@Language.factory(
    "elq_span_extractor",
    default_config=EXTRACTOR_CONFIG,
    default_score_weights={"elq_spans_r": 1.0, "elq_spans_p": 0.0},
)
def make_elq_span_extractor(
    nlp: Language,
    name: str,
    model: Model,
    top_k: int,
    threshold: float,
    max_length: int,
    spans_key: str,
    label: str,
) -> "ELQSpanExtractor":
    """Suggest mentions for a linker that cannot find them itself, such as `elq_blink`: the span extraction
    model of the paper's Appendix B.

    model (Model): The span extraction model.
    top_k (int): Maximum number of suggestions per doc. They may overlap.
    threshold (float): Minimum p_start · p_end of a suggestion. The start probabilities of a text sum to 1,
        and so do the end probabilities: with two mentions, each scores about 0.25 at best.
    max_length (int): Longest mention, in rows (word pieces or tokens).
    spans_key (str): Span group for the suggestions, with their scores in its `attrs["scores"]`.
    label (str): Label of the suggested spans.
    """
    from .blink.extractor import ELQSpanExtractor

    return ELQSpanExtractor(
        nlp.vocab,
        model,
        name,
        top_k=top_k,
        threshold=threshold,
        max_length=max_length,
        spans_key=spans_key,
        label=label,
    )


TAGME_CONFIG = Config().from_str(
    """
[elq_tagme]
dictionary = null
min_link_probability = 0.001
min_commonness = 0.02
vote_margin = 0.3
label = "ENTITY"
existing_ents = "overwrite"

[elq_tagme.decoder]
@misc = "spacy-elq.Decoder.v1"
threshold = 0.2
candidates = 50
max_length = 6

[elq_tagme.scorer]
@scorers = "spacy-elq.linker_scorer.v1"
"""
)["elq_tagme"]


@Language.factory("elq_tagme", assigns=ASSIGNS, default_config=TAGME_CONFIG)
def make_elq_tagme(
    nlp: Language,
    name: str,
    dictionary: Optional[str],
    decoder: Decoder,
    scorer: Optional[Callable],
    min_link_probability: float,
    min_commonness: float,
    vote_margin: float,
    label: str,
    existing_ents: str,
) -> "ELQTagme":
    """Find the names of a dictionary in short text and link them by hyperlink counts (TAGME). Nothing is
    trained.

    dictionary (Optional[str]): Folder of the dictionary, made by `spacy elq dictionary`.
    decoder (Decoder): Thresholds and limits. The score of a link is ρ, the mean of link probability and
        coherence; the authors of TAGME recommend thresholds from 0.1 to 0.3.
    scorer (Optional[Callable]): The scoring method.
    min_link_probability (float): Minimum link probability of a mention: how often its text is a hyperlink.
    min_commonness (float): Minimum commonness of a candidate, τ in TAGME: how often the text links to it. The
        most common candidate is always kept.
    vote_margin (float): ε in TAGME: among the candidates whose votes are within this share of the highest,
        the most common one is taken.
    label (str): Label of entities that have none in the catalogue.
    existing_ents (str): What happens to entities set by earlier components, as in `elq_linker`.
    """
    from .tagme.component import ELQTagme

    return ELQTagme(
        name,
        dictionary=dictionary,
        decoder=decoder,
        scorer=scorer,
        min_link_probability=min_link_probability,
        min_commonness=min_commonness,
        vote_margin=vote_margin,
        label=label,
        existing_ents=existing_ents,
    )


VCG_CONFIG = Config().from_str(
    """
[elq_vcg]
relations = null
negative_weight = 0.43
ramp = 1050
margin = 0.5
label = "ENTITY"
existing_ents = "overwrite"

[elq_vcg.model]
@architectures = "spacy-elq.VectorNet.v1"

[elq_vcg.decoder]
@misc = "spacy-elq.Decoder.v1"
threshold = 0.5
candidates = 50
max_length = 4

[elq_vcg.scorer]
@scorers = "spacy-elq.linker_scorer.v1"
"""
)["elq_vcg"]


@Language.factory("elq_vcg", assigns=ASSIGNS, default_config=VCG_CONFIG, default_score_weights=SCORE_WEIGHTS)
def make_elq_vcg(
    nlp: Language,
    name: str,
    model: Model,
    relations: Optional[str],
    decoder: Decoder,
    scorer: Optional[Callable],
    negative_weight: float,
    ramp: int,
    margin: float,
    label: str,
    existing_ents: str,
) -> "ELQVcg":
    """Find n-grams that are names of entities, or parts of names, and let a small network decide which are
    mentions, and of what: by the question, the names and the relations of the candidates (VCG).

    model (Model): VectorNet.
    relations (Optional[str]): Folder of the relations, made by `spacy elq relations`.
    decoder (Decoder): Thresholds and limits. The score of a link is the probability of the mention; the
        authors use 0.5. `max_length` is at most 4.
    scorer (Optional[Callable]): The scoring method.
    negative_weight (float): How much an n-gram that is no mention counts in training, beside one that is.
    ramp (int): Updates until negatives have that weight. 1050 are the 14 epochs of the published
        configuration, with the training questions of WebQSP_EL in batches of 32.
    margin (float): By how much the right candidate must be ahead of the others.
    label (str): Label of entities that have none in the catalogue.
    existing_ents (str): What happens to entities set by earlier components, as in `elq_linker`.
    """
    from .vcg.component import ELQVcg

    return ELQVcg(
        nlp.vocab,
        model,
        name,
        relations=relations,
        decoder=decoder,
        scorer=scorer,
        negative_weight=negative_weight,
        ramp=ramp,
        margin=margin,
        label=label,
        existing_ents=existing_ents,
    )
