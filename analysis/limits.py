"""What a report does not claim: sentences made from what its data lack."""

from collections.abc import Iterator

from analysis import confounds
from analysis.record import listed, shortened
from analysis.study import Study
from analysis.tested import Tested
from ray_ablation.frames import MEAN


def limits(study: Study, found: Tested) -> list[str]:
    """What a reader must not take from it."""
    return [
        *_scope(study),
        *_tests(study, found),
        *_seeds(study),
        *confounds.sentences(study.trials, study.axes),
        *_latency(study),
        *_data(study),
        *_machines(study),
    ]


def _scope(study: Study) -> Iterator[str]:
    """What was the same for all, and so is all that is spoken of."""
    told = ("backbone", "keep", "pooling", "train_set", "precision", "max_length")
    same = [
        f"{name.replace('_', ' ')} {study.common[name]}" for name in told if name in study.common
    ]
    where = f" with {', '.join(same)}" if same else ""
    yield f"It speaks of {', '.join(study.benchmarks)} only{where}; nothing is claimed of others."


def _tests(study: Study, found: Tested) -> Iterator[str]:
    if found.pairs["p"].notna().any():
        yield (
            "Not separated does not mean equal: with so few seeds a test misses all but large "
            "differences. Equality takes a claim with a margin."
        )
    else:
        yield (
            "No difference over seeds is tested: no two values that are compared share two seeds."
        )
    if found.queries.reason:
        yield f"There is no test over queries: {found.queries.reason}."
    if study.imported:
        yield "Its values are taken as published or imported; none was computed here."


def _seeds(study: Study) -> Iterator[str]:
    trained = study.means[study.means["trained"]]
    single = trained[trained["n"] == 1]
    if len(single):
        yield (
            f"{len(single)} of {len(trained)} trained configurations have a single seed, so their "
            "spread is not known."
        )
    if trained["n"].max() in (2, 3):
        yield "Two or three seeds give a rough spread: a standard deviation of so few is uncertain."


def _latency(study: Study) -> Iterator[str]:
    found = study.latency[study.latency["verdict"].notna()]
    if found.empty:
        yield "No latency was measured."
        return
    unsteady = found.drop_duplicates(["variant", "length", "arm"])
    unsteady = unsteady[unsteady["verdict"] != "stable"]
    if len(unsteady):
        reasons = listed(code for codes in unsteady["reasons"] for code in codes.split(", "))
        yield (
            f"Latency is indicative for {listed(unsteady['variant'])}: "
            f"{listed(unsteady['verdict'])} ({reasons})."
        )


def unsplit(study: Study) -> str:
    """Trials whose mean is known and whose parts are not, in a sentence; "" without any."""
    rows = study.results[study.results["measure"] == study.headline]
    known = rows[rows["value"].notna()].groupby("trial")["benchmark"].agg(set)
    bare = [trial for trial, names in known.items() if names == {MEAN}]
    if not bare:
        return ""
    names = study.trials.loc[study.trials["trial"].isin(bare), "experiment"]
    which = f"experiments {listed(names)}" if names.notna().all() else f"{len(bare)} trials"
    return f"Of {which} only the mean over benchmarks is known, not its parts."


def _data(study: Study) -> Iterator[str]:
    yield from study.notes
    if text := unsplit(study):
        yield text
    unfinished = len(study.trials) - len(study.finished)
    if unfinished:
        yield f"{unfinished} of {len(study.trials)} trials are not done; they are listed."
    for note in study.audit["note"].dropna().unique():
        yield f"{note}."
    for name, part in study.audit.groupby("benchmark", sort=False):
        if part["benchmark_sha256"].nunique() > 1:
            yield f"Trials were scored on different contents of {name}; they do not compare."
        documents = part["documents"].max()
        for measure in study.measures:
            if measure.startswith("R@") and int(measure[2:]) >= documents:
                yield f"{measure} takes in all {documents} documents of {name}: it cannot but be 1."
        if (share := part["truncated_documents"].max()) > 0:
            length = listed(part["max_length"])
            yield f"{share:.1%} of the documents of {name} are cut at {length} tokens."


def _machines(study: Study) -> Iterator[str]:
    done = study.state("done")
    for column, what in (("device_name", "devices"), ("code_sha256", "versions of the code")):
        if done[column].nunique() > 1:
            yield f"Trials were trained on different {what}: {listed(shortened(done[column]))}."
    if len({str(sorted(versions.items())) for versions in study.versions.values()}) > 1:
        yield "Trials were trained with different versions of the libraries."
