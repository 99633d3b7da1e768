"""The question tower: rows, the mention scorer and, where widths differ, a projection."""

from functools import partial
from typing import Any, Callable, List, Optional, Tuple

from spacy.tokens import Doc
from thinc.api import Linear, Model, to_numpy
from thinc.layers.linear import forward as linear_forward
from thinc.types import Floats2d

from ..types import Array, Entity, Rows
from .case import WIDTH, row_case
from .rows import with_rows

TowerOutput = Tuple[Rows, Array]
PairInput = Tuple[List[Doc], List[Entity]]


# the score of "none of these" is compared with similarities, which are large numbers: it must learn fast
_NONE_SCALE = 10.0
# the attribute that says whether the last score of a row is for names
LEARNS_NAMES = "learns_names"
_LEARNS_CASE = "learns_case"


def build_question_tower(
    tok2vec: Model, learn_names: bool = False, learn_case: bool = False
) -> Model[List[Doc], TowerOutput]:
    """The question tower of the paper: encodes a text once and scores its rows as starts, ends and insides of
    mentions. Published models have it.

    tok2vec (Model): `spacy-elq.WordPieceListener.v1` for the word pieces of a `transformer`
        component, or any spaCy tok2vec architecture for tokens.
    learn_names (bool): Whether it also learns, from the words and their context, how much a mention's being a
        name counts: from nothing to twice `mention_name_weight`. In a large catalogue, many common words are
        names by chance. The paper has no such score.
    learn_case (bool): Whether the mention scores also see which words have a capital, in texts where that
        says something. Most encoders see lower case only, and so does the paper.
    RETURNS (Model[List[Doc], TowerOutput]): Gives the rows, their vectors as wide as the entity vectors
        (`nO`), and (rows, 3) start, end and inside scores, in host memory; with `learn_names`, one more
        column, the last. Its `backprop` takes the gradients of both.
    """
    return _make_tower(tok2vec, columns=3, learn_names=learn_names, learn_case=learn_case)


def build_question_tower_v2(
    tok2vec: Model, learn_names: bool = False, learn_case: bool = False
) -> Model[List[Doc], TowerOutput]:
    """The question tower, the model of `elq_linker`: as `spacy-elq.QuestionTower.v1`, and it scores "none of
    these", which competes with the candidates of a mention. What the catalogue lacks gets no link.

    tok2vec (Model): `spacy-elq.WordPieceListener.v1` for the word pieces of a `transformer`
        component, or any spaCy tok2vec architecture for tokens.
    learn_names, learn_case (bool): As for `spacy-elq.QuestionTower.v1`.
    RETURNS (Model[List[Doc], TowerOutput]): Gives the same, with a fourth score of each row. The mean of the
        rows of a mention is its score of "none of these".
    """
    return _make_tower(tok2vec, columns=4, learn_names=learn_names, learn_case=learn_case)


def _make_tower(
    tok2vec: Model, *, columns: int, learn_names: bool, learn_case: bool
) -> Model[List[Doc], TowerOutput]:
    scales = [1.0, 1.0, 1.0, _NONE_SCALE][:columns] + [1.0] * learn_names
    return Model(
        "elq_question_tower",
        _forward,
        init=_init,
        layers=[with_rows(tok2vec), projection(), Linear(nO=len(scales))],
        dims={"nO": None},
        attrs={"scales": scales, LEARNS_NAMES: learn_names, _LEARNS_CASE: learn_case},
    )


def _init(model: Model, X: Optional[List[Doc]] = None, Y: Any = None) -> None:
    rows, project, mention_scorer = model.layers
    rows.initialize(X=X)
    width = rows.get_dim("nO")
    project.set_dim("nI", width)
    project.set_dim("nO", model.get_dim("nO"))
    mention_scorer.set_dim("nI", width + WIDTH * model.attrs[_LEARNS_CASE])
    project.initialize()
    mention_scorer.initialize()
    # start from the prior that about one span in fifty is a mention, not every second one
    bias = [-2.0, -2.0, 0.0, 0.0, 0.0][: mention_scorer.get_dim("nO")]
    mention_scorer.set_param("b", model.ops.asarray1f(bias))
    # at first, names count as they would without it, and capitals do not
    weights = to_numpy(mention_scorer.get_param("W")).copy()
    weights[:, width:] = 0.0
    if model.attrs[LEARNS_NAMES]:
        weights[-1] = 0.0
    mention_scorer.set_param("W", model.ops.asarray2f(weights))


def _forward(
    model: Model[List[Doc], TowerOutput], docs: List[Doc], is_train: bool
) -> Tuple[TowerOutput, Callable]:
    with_rows_, project, mention_scorer = model.layers
    rows, bp_rows = with_rows_(docs, is_train)
    vectors, bp_vectors = project(rows.vectors, is_train)
    seen, width = rows.vectors, rows.vectors.shape[1]
    if model.attrs.get(_LEARNS_CASE):
        case: Any = row_case(docs, rows)
        seen = model.ops.xp.concatenate([seen, model.ops.asarray(case)], axis=1)
    logits, bp_logits = mention_scorer(seen, is_train)
    scale = model.ops.asarray1f(model.attrs["scales"])

    def backprop(gradients: Tuple[Any, Any]) -> Any:
        d_vectors, d_logits = (model.ops.asarray(d, dtype="f") for d in gradients)
        return bp_rows(bp_vectors(d_vectors) + bp_logits(d_logits * scale)[:, :width])

    return (rows.with_vectors(to_numpy(vectors)), to_numpy(logits * scale)), backprop


def projection() -> Model[Floats2d, Floats2d]:
    """RETURNS (Model[Floats2d, Floats2d]): A linear layer that has no parameters, and does nothing, where
    both widths are the same.
    """
    return Model(
        "elq_projection",
        _project_forward,
        init=partial(_project_init, Linear().init),
        dims={"nO": None, "nI": None},
        params={"W": None, "b": None},
    )


def _project_init(init_linear: Callable, model: Model, X: Any = None, Y: Any = None) -> None:
    if model.get_dim("nO") != model.get_dim("nI"):
        init_linear(model)


def _project_forward(
    model: Model[Floats2d, Floats2d], X: Floats2d, is_train: bool
) -> Tuple[Floats2d, Callable[[Floats2d], Floats2d]]:
    return linear_forward(model, X, is_train) if model.has_param("W") else (X, lambda dY: dY)


def build_pair_tower(
    tok2vec: Model, entity_encoder: Model[List[Entity], Floats2d]
) -> Model[PairInput, TowerOutput]:
    """The pair tower, the model of `elq_pairs`: the question encoder and the entity encoder, trained
    together.

    tok2vec (Model): `spacy-elq.WordPieceListener.v1` for the word pieces of a `transformer` component, or any
        spaCy tok2vec architecture for tokens.
    entity_encoder (Model): The entity encoder, `spacy-elq.EntityTower.v1`.
    RETURNS (Model[PairInput, TowerOutput]): From docs and entities to the rows of the docs and
        (entities, width), in host memory. Its `backprop` takes the gradients of both.
    """
    return Model(
        "elq_pair_tower",
        _pair_forward,
        init=_pair_init,
        layers=[with_rows(tok2vec), projection(), entity_encoder],
    )


def _pair_init(model: Model, X: Optional[List[Doc]] = None, Y: Any = None) -> None:
    rows, project, entity_encoder = model.layers
    rows.initialize(X=X)
    project.set_dim("nI", rows.get_dim("nO"))
    project.set_dim("nO", entity_encoder.get_dim("nO"))
    project.initialize()


def _pair_forward(
    model: Model[PairInput, TowerOutput], inputs: PairInput, is_train: bool
) -> Tuple[TowerOutput, Callable]:
    with_rows_, project, entity_encoder = model.layers
    rows, bp_rows = with_rows_(inputs[0], is_train)
    vectors, bp_vectors = project(rows.vectors, is_train)
    entities, bp_entities = entity_encoder(inputs[1], is_train)

    def backprop(gradients: Tuple[Any, Any]) -> Any:
        d_vectors, d_entities = (model.ops.asarray(d, dtype="f") for d in gradients)
        bp_entities(d_entities)
        return bp_rows(bp_vectors(d_vectors))

    return (rows.with_vectors(to_numpy(vectors)), to_numpy(entities)), backprop
