"""The public BEIR sets: where they are fetched, their hashes, and how large they are.

The zips and their md5 are those of BEIR's README. For fever and webis-touche2020 its earlier README
gives another md5, since both were packed again; either is accepted, the present one stands first.
Counts are those of the split that is scored, as ir_datasets' metadata.json gives them. What is
fetched and has other counts is not the set, however well its hash fits.

BEIR_MIRROR, an environment variable, names another place that the zips lie under.
"""

import os
from dataclasses import dataclass

HOST = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets"
HOW_TO = "https://github.com/beir-cellar/beir/tree/main/examples/dataset"


@dataclass(frozen=True)
class Public:
    """A set that BEIR gives away.

    Attributes:
        archive: Name of its zip.
        md5: Hashes of the zip; any one will do.
        documents: In its corpus.
        queries: Judged in its split.
        folder: Of the zip, where it holds several sets.
    """

    archive: str
    md5: tuple[str, ...]
    documents: int
    queries: int
    folder: str = ""

    @property
    def url(self) -> str:
        """Where the zip is fetched."""
        return f"{os.environ.get('BEIR_MIRROR', HOST).rstrip('/')}/{self.archive}.zip"


_CQADUPSTACK = {
    "android": (22_998, 699),
    "english": (40_221, 1_570),
    "gaming": (45_301, 1_595),
    "gis": (37_637, 885),
    "mathematica": (16_705, 804),
    "physics": (38_316, 1_039),
    "programmers": (32_176, 876),
    "stats": (42_269, 652),
    "tex": (68_184, 2_906),
    "unix": (47_382, 1_072),
    "webmasters": (17_405, 506),
    "wordpress": (48_605, 541),
}

# Their owners do not let BEIR pass them on.
NOT_GIVEN_AWAY = ("bioasq", "signal1m", "trec-news", "robust04")

PUBLIC: dict[str, Public] = {
    set_.archive: set_
    for set_ in (
        Public("msmarco", ("444067daf65d982533ea17ebd59501e4",), 8_841_823, 6_980),
        Public("trec-covid", ("ce62140cb23feb9becf6270d0d1fe6d1",), 171_332, 50),
        Public("nfcorpus", ("a89dba18a62ef92f7d323ec890a0d38d",), 3_633, 323),
        Public("nq", ("d4d3d2e48787a744b6f6e691ff534307",), 2_681_468, 3_452),
        Public("hotpotqa", ("f412724f78b0d91183a0e86805e16114",), 5_233_329, 7_405),
        Public("fiqa", ("17918ed23cd04fb15047f73e6c3bd9d9",), 57_638, 648),
        Public("arguana", ("8ad3e3c2a5867cdced806d6503f29b99",), 8_674, 1_406),
        Public(
            "webis-touche2020",
            ("46f650ba5a527fc69e0a6521c5a23563", "6e29ac6c57e2d227fb57501872cac45f"),
            382_545,
            49,
        ),
        Public("quora", ("18fb154900ba42a600f84b839c173167",), 522_931, 10_000),
        Public("dbpedia-entity", ("c2a39eb420a3164af735795df012ac2c",), 4_635_922, 400),
        Public("scidocs", ("38121350fc3a4d2f48850f6aff52e4a9",), 25_657, 1_000),
        Public(
            "fever",
            ("5a818580227bfb4b35bb6fa46d9b6c03", "88591ef8eb2913126d0c93ecbde6285f"),
            5_416_568,
            6_666,
        ),
        Public("climate-fever", ("8b66f0a9126c521bae2bde127b4dc99d",), 5_416_593, 1_535),
        Public("scifact", ("5f7d1de60b170fc8027bb7898e2efca1",), 5_183, 300),
    )
} | {
    f"cqadupstack-{forum}": Public(
        "cqadupstack", ("4e41456d7df8ee7760a7f866133bda78",), documents, queries, forum
    )
    for forum, (documents, queries) in _CQADUPSTACK.items()
}
