"""`spacy elq explain`."""

import typer
from wasabi import msg

from ._util import command


@command("explain")
def explain_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    text: str = typer.Argument(..., help="A text"),
    candidates: int = typer.Option(
        3, "--candidates", "-n", min=1, help="Candidates to show for each mention"
    ),
) -> None:
    """Explain the links of a text: for each likely mention, the parts of its score and its best candidates.

    The mention score is what the model says plus what is added if the text is a name in the catalogue. The
    similarity of a candidate is the inner product of the vectors plus what its name and popularity add. The
    score of a link is the joint probability of both, calibrated; it must reach the threshold.
    """
    from ..errors import ELQError, Errors
    from ..evaluation.pipelines import load_pipeline

    nlp, linker = load_pipeline(pipeline)
    if not hasattr(linker, "explain"):
        raise ELQError(Errors.E190.format(name=linker.name))
    explained = linker.explain(nlp(text))
    if not explained:
        msg.info("There is nothing in this text that could be a mention.")
    for mention in explained:
        sign = ">=" if mention.score >= mention.threshold else "<"
        msg.divider(mention.text)
        msg.text(
            f"{'Linked' if mention.is_link else 'Not linked'}: score {mention.score:.4f} {sign} threshold "
            f"{mention.threshold:.4f}; joint probability {mention.joint:.4f}"
        )
        none = "" if mention.none is None else f'; probability of "none of these" {mention.none:.4f}'
        msg.text(
            f"Mention: {mention.mention:+.2f} by the model, {mention.name:+.2f} as a name: probability "
            f"{mention.mention_probability:.4f}{none}"
        )
        rows = [
            (
                c.id,
                c.title,
                *(f"{x:.2f}" for x in (c.vector, c.name, c.popularity, c.similarity)),
                f"{c.probability:.4f}",
            )
            for c in mention.candidates[:candidates]
        ]
        header = ("id", "title", "vector", "name", "popularity", "similarity", "probability")
        msg.table(rows, header=header, divider=True, aligns=("l", "l", "r", "r", "r", "r", "r"))
