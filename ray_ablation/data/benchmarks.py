"""Which evaluation sets there are, and how each is scored."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ray_ablation.trial import Strict

# They become file names.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Benchmark(Strict):
    """An evaluation set: which files, which split, and the rule for ids that collide."""

    name: Name
    """As in `BENCHMARKS`, or any name whose place the grid gives under `paths`."""
    split: Name = "test"
    """Which qrels are scored: qrels/<split>.tsv."""
    self_ids: Literal["keep", "drop"] = "keep"
    """drop leaves out of each ranking the document whose id is the query's own."""
    group: Name | None = None
    """Benchmarks of one group are also reported as their mean, which counts once in the mean over
    benchmarks."""
    of: Name | None = None
    """The benchmark that this one is a sample of: its judged documents, and some of the others."""
    others: Annotated[int, Field(ge=0)] | None = None
    """How many documents that nobody judged are in the sample."""

    @model_validator(mode="after")
    def _sampled(self) -> Self:
        if (self.of is None) != (self.others is None):
            raise ValueError(
                "of and others go together: of: msmarco, others: 100000 are the judged documents "
                "of msmarco and 100,000 more"
            )
        return self

    @property
    def note(self) -> str:
        """What readers of its numbers must know; empty for a whole set."""
        if self.others is None:
            return ""
        return (
            f"{self.name} is a sample of {self.of} (judged documents and {self.others:,} others); "
            "not comparable with the full collection"
        )


# BEIR scores the split called test, and dev for MS MARCO, whose test judgements are not public
# (Thakur et al. 2021, table 1). Queries of ArguAna and Quora are documents themselves and would
# find themselves first: BEIR's own search drops a document whose id is the query's. In the other
# sets equal ids are coincidence, and the document stays.
# CQADupStack is twelve folders, each scored on its own; its value is their mean.
_FORUMS = (
    "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress"
)
BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        # Made here from installed libraries (data/docstrings.py).
        Benchmark(name="docstrings-stdlib"),
        Benchmark(name="docstrings-numpy"),
        Benchmark(name="docstrings-pandas"),
        # BEIR.
        Benchmark(name="msmarco", split="dev"),
        Benchmark(name="trec-covid"),
        Benchmark(name="nfcorpus"),
        Benchmark(name="bioasq"),
        Benchmark(name="nq"),
        Benchmark(name="hotpotqa"),
        Benchmark(name="fiqa"),
        Benchmark(name="signal1m"),
        Benchmark(name="trec-news"),
        Benchmark(name="robust04"),
        Benchmark(name="arguana", self_ids="drop"),
        Benchmark(name="webis-touche2020"),
        Benchmark(name="quora", self_ids="drop"),
        Benchmark(name="dbpedia-entity"),
        Benchmark(name="scidocs"),
        Benchmark(name="fever"),
        Benchmark(name="climate-fever"),
        Benchmark(name="scifact"),
        *(Benchmark(name=f"cqadupstack-{forum}", group="cqadupstack") for forum in _FORUMS.split()),
    )
}
GROUPS: dict[str, list[Benchmark]] = {
    "cqadupstack": [b for b in BENCHMARKS.values() if b.group == "cqadupstack"]
}
