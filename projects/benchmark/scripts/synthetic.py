"""Make vectors to measure back ends with: `cut` takes a part of real ones, `synthesize` draws like ones."""

from pathlib import Path
from typing import Dict, List

import faiss
import numpy as np
import srsly
import typer

from spacy_elq.catalogue import entity_to_dict, read_catalogue
from spacy_elq.index import EntityIndex, encode_catalogue
from spacy_elq.types import Array, Entity

app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.command()
def cut(
    vectors: Path = typer.Argument(..., help="Vectors of `spacy elq encode`"),
    catalogue: Path = typer.Argument(..., help="Smaller catalogue, whose ids are taken"),
    output: Path = typer.Argument(..., help="Folder for their vectors"),
    entities: int = typer.Option(0, help="Fill up to this number with others"),
) -> None:
    """Take the entities of a smaller catalogue, with their vectors, from a larger one."""
    source = EntityIndex.open(vectors)
    positions = source.positions([entity.id for entity in read_catalogue(catalogue)])
    chosen = positions[positions >= 0]
    others = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(source)), chosen))
    chosen = np.concatenate([chosen, others[: max(0, entities - len(chosen))]])
    output.mkdir(parents=True, exist_ok=True)
    srsly.write_jsonl(output / "entities.jsonl", (entity_to_dict(source.entity(int(i))) for i in chosen))
    encode_catalogue(output / "entities.jsonl", output, Known(source), reuse=vectors, progress=True)


class Known:
    """An encoder that has nothing to do: every entity has its vector already."""

    def __init__(self, index: EntityIndex) -> None:
        """Pass for what made the vectors of an index."""
        self.width = index.width
        self.fingerprint = index.stamp["encoder"]
        self.settings = {k: v for k, v in index.meta["encoder"].items() if k != "fingerprint"}

    def encode(self, entities: List[Entity], *, batch_size: int) -> Array:
        """RAISES (NotImplementedError): Always."""
        raise NotImplementedError(f"{entities[0].id} has no vector")


@app.command()
def synthesize(
    vectors: Path = typer.Argument(..., help="Real vectors to be like"),
    queries: Path = typer.Argument(..., help="Real queries over them: queries.npz of `scripts/backends.py`"),
    output: Path = typer.Argument(..., help="Folder for vectors and queries; resumes if interrupted"),
    entities: int = typer.Option(5_903_527, help="How many"),
    width: int = typer.Option(1024, help="How wide"),
) -> None:
    """Make vectors and queries of another size that are like real ones.

    The real vectors are clustered, a hundred to a cluster. An entity is the mean of all, plus a cluster's
    centre, plus what tells it from the others there: both are drawn from normal distributions whose variances
    are those of the real centres and of the real differences along their main directions, the two curves
    stretched to the new width. Vectors of one length are given that length. There are as many entities to
    a cluster as in the real ones. A query is the vector of an entity turned away from it by an angle drawn
    from those between real queries and their best entities, into a direction drawn with the variances and
    the mean of the real ones. All of it is turned at random, so that no direction is an axis.
    """
    output.mkdir(parents=True, exist_ok=True)
    catalogue = output / "entities.jsonl"
    if not catalogue.exists():
        lines = ({"id": str(i), "title": f"Entity {i}"} for i in range(entities))
        srsly.write_jsonl(output / "new.jsonl", lines)
        (output / "new.jsonl").rename(catalogue)
    like = _study(EntityIndex.open(vectors), np.load(queries)["vectors"], output / "like.npz")
    encoder = Synthetic(like, entities, width)
    made = encode_catalogue(catalogue, output / "vectors", encoder, shard_size=16384, progress=True)
    asked = encoder.ask(made)
    names = [made.entity(int(i)).title for i in np.arange(len(asked)) % len(made)]
    np.savez(output / "queries.npz", vectors=asked, names=names)


class Synthetic:
    """An encoder that draws vectors at random, the same for the same entities every time."""

    def __init__(self, like: Dict[str, Array], entities: int, width: int) -> None:
        """Prepare the shape of the space.

        like (Dict[str, Array]): What `_study` found.
        """
        self.width = width
        self.settings = {"name": f"synthetic {entities}"}
        self.fingerprint = f"synthetic-{entities}-{width}"
        self._like = like
        rng = np.random.default_rng(0)
        self._turn = np.linalg.qr(rng.normal(size=(width, width)))[0].astype("float32")
        self._within = _stretch(like["within"], width)
        clusters = max(1, int(entities / like["cluster_size"]))
        centres = rng.standard_normal((clusters, width), dtype="float32") * _stretch(like["between"], width)
        self._centres = centres + _stretch(like["mean"], width)

    def encode(self, entities: List[Entity], *, batch_size: int) -> Array:
        """RETURNS (Array): (entities, width) float32."""
        rng = np.random.default_rng([1, int(entities[0].id)])
        own = rng.standard_normal((len(entities), self.width), dtype="float32") * self._within
        drawn = own + self._centres[rng.integers(len(self._centres), size=len(entities))]
        if self._like["length"] > 0:
            drawn *= self._like["length"] / np.linalg.norm(drawn, axis=1, keepdims=True)
        return drawn @ self._turn

    def ask(self, made: EntityIndex) -> Array:
        """RETURNS (Array): (queries, width) float32, as many as the real ones."""
        rng = np.random.default_rng(2)
        cosines = self._like["cosines"][:, None]
        chosen = np.sort(rng.choice(len(made), size=len(cosines), replace=len(made) < len(cosines)))
        towards = _unit(made.vectors[chosen])
        away = rng.standard_normal((len(cosines), self.width), dtype="float32")
        signs = rng.choice([-1, 1], size=self.width).astype("float32")
        away = away * _stretch(self._like["away"], self.width)
        away = (away + signs * _stretch(self._like["away_mean"], self.width)) @ self._turn
        away = _unit(away - (away * towards).sum(axis=1, keepdims=True) * towards)
        asked = cosines * towards + np.sqrt(1 - cosines**2) * away
        return (self._like["query_length"] * asked).astype("float32")


def _study(index: EntityIndex, queries: Array, path: Path) -> Dict[str, Array]:
    """RETURNS (Dict[str, Array]): What `synthesize` takes over from real vectors and queries."""
    if path.exists():
        return dict(np.load(path))
    rng = np.random.default_rng(0)
    sample = np.array(index.vectors[np.sort(rng.permutation(len(index))[:100_000])])
    mean = sample.mean(axis=0)
    size = min(100, len(sample))
    kmeans = faiss.Kmeans(index.width, len(sample) // size, niter=10)
    kmeans.train(sample)
    owners = kmeans.index.search(sample, 1)[1][:, 0]
    directions = np.linalg.eigh(np.cov(sample.T))[1][:, ::-1].astype("float32")
    centres = np.asarray(kmeans.centroids)[owners]
    lengths = np.linalg.norm(sample, axis=1)
    best = _unit(index.vectors[_best_of(index, queries)])
    cosines = (_unit(queries) * best).sum(axis=1)
    away = _unit(_unit(queries) - cosines[:, None] * best) @ directions
    like = {
        "cluster_size": np.float32(len(index) / (len(sample) // size)),
        "between": ((centres - mean) @ directions).std(axis=0),
        "within": ((sample - centres) @ directions).std(axis=0),
        "mean": np.abs(mean @ directions),
        "length": np.float32(lengths.mean() if lengths.std() < 0.01 * lengths.mean() else 0.0),
        "cosines": cosines,
        "away": away.std(axis=0),
        "away_mean": np.abs(away.mean(axis=0)),
        "query_length": np.float32(np.linalg.norm(queries, axis=1).mean()),
    }
    np.savez(path, **like)
    return like


def _best_of(index: EntityIndex, queries: Array) -> Array:
    return faiss.knn(queries, np.array(index.vectors), 1, metric=faiss.METRIC_INNER_PRODUCT)[1][:, 0]


def _stretch(curve: Array, width: int) -> Array:
    """RETURNS (Array): (width,) a curve over directions, at another width, with the same sum of squares."""
    places = np.linspace(0, len(curve) - 1, width)
    stretched = np.interp(places, np.arange(len(curve)), curve)
    return (stretched * np.sqrt(np.square(curve).sum() / np.square(stretched).sum())).astype("float32")


def _unit(vectors: Array) -> Array:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    app()
