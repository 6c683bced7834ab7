import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import pytrec_eval
import torch

from ray_ablation import cells, cluster, metrics
from ray_ablation import encoder as encoders
from ray_ablation import grid as grids
from ray_ablation.atomic import write_frame
from ray_ablation.evaluate import EvaluateError, LostError, Place, _on_ray, evaluate
from ray_ablation.grid import Grid
from ray_ablation.ledger import Ledger
from ray_ablation.problems import Failure
from ray_ablation.settings import Execution
from ray_ablation.trial import Trial
from tiny_encoder import tiny_encoder

# Document ids are integers and collide with query ids. Query n asks for document n + 30.
RNG = np.random.default_rng(0)
WORDS = ["".join(RNG.choice(list("abcdefgh"), 4)) for _ in range(60)]
DOCUMENTS = {str(i): " ".join(RNG.choice(WORDS, RNG.integers(1, 9))) for i in range(40)}
DOCUMENTS["7"] = ""
QUERIES = {str(i): DOCUMENTS[str(i + 30)][::-1] for i in range(6)}
QRELS = {str(i): {str(i + 30): 2, str(i): 1, "39": 1} for i in range(6)}


def write_benchmark(
    folder: Path,
    documents: dict[str, str] = DOCUMENTS,
    queries: dict[str, str] = QUERIES,
    qrels: dict[str, dict[str, int]] = QRELS,
) -> None:
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps({"_id": i, "title": "", "text": text}) for i, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    rows = [f"{q}\t{d}\t{grade}" for q, found in qrels.items() for d, grade in found.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))


def write_grid(
    folder: Path,
    *,
    execution: str = "local",
    evaluation: str = "",
    measures: str = "nDCG@10, RR@10",
    k: int = 10,
) -> Grid:
    file = folder / "grid.yaml"
    file.write_text(
        f"""name: tiny
axes: {{depth: [1, 2]}}
fixed: {{steps: 0, max_length: 20, backbone: tiny}}
benchmarks: [mine]
measures: [{measures}]
evaluation: {{k: {k}, batch: 8{evaluation}}}
execution: {{device: cpu, evaluate: {execution}}}
paths: {{mine: {folder / "mine"}, tiny: {folder / "backbone"}}}
"""
    )
    return grids.load(file)


def finish(ledger: Ledger, trial: Trial, encoder: Any) -> None:
    """Put an encoder into the ledger as training would."""
    encoders.save(encoder, ledger.model_dir(trial.id))
    write_frame(ledger.train_parquet(trial.id), pd.DataFrame({"step": [0]}), {})
    result = {
        "encoder_sha256": encoders.weights_sha256(encoder),
        "parameters": encoders.parameter_count(encoder),
    }
    ledger.finish_trial(trial, {"result": result})


@pytest.fixture
def study(tmp_path: Path) -> tuple[Path, Grid, Ledger]:
    """Two trained trials, depth 1 and 2, and one benchmark."""
    tiny_encoder(tmp_path / "backbone")
    write_benchmark(tmp_path / "mine")
    grid, ledger = write_grid(tmp_path), Ledger(tmp_path / "results")
    for trial in grid.trials:
        finish(ledger, trial, encoders.build(trial, tmp_path / "backbone"))
    return tmp_path, grid, ledger


def score(grid: Grid, ledger: Ledger, **others: Any) -> tuple[list[Failure], list[str]]:
    lines: list[str] = []
    failures = evaluate(
        grid, grid.trials, ledger, benchmarks=grid.benchmarks, say=lines.append, **others
    )
    return failures, lines


def run_of(ledger: Ledger, trial: Trial) -> dict[str, dict[str, float]]:
    return metrics.from_trec(ledger.run_trec(trial.id, "mine").read_bytes())


def snapshot(ledger: Ledger) -> dict[str, tuple[bytes, int]]:
    """Bytes and inode of every score and run; a rewritten file has another inode."""
    trials = ledger.root / "trials"
    files = [*trials.glob("*/scores/*.parquet"), *trials.glob("*/runs/*.gz")]
    return {str(f.relative_to(trials)): (f.read_bytes(), f.stat().st_ino) for f in sorted(files)}


def assert_same_runs(one: Any, other: Any) -> None:
    """Scores within 1e-5, and the same order outside groups closer than that."""
    assert one.keys() == other.keys()
    for query_id, scores in one.items():
        assert len(scores) == len(other[query_id])
        theirs = np.array(list(other[query_id].values()))
        np.testing.assert_allclose(list(scores.values()), theirs, atol=1e-5)
        for i, (a, b) in enumerate(zip(scores, other[query_id], strict=True)):
            assert a == b or np.abs(np.delete(theirs, i) - theirs[i]).min() < 1e-5


def test_scores_equal_the_librarys_embeddings_and_trec_eval(study: Any) -> None:
    _, grid, ledger = study
    failures, lines = score(grid, ledger)
    assert failures == []
    assert lines[0] == (
        "scoring 2 trial-benchmark pairs in 2 shards on this process, cpu (evaluate: local)"
    )
    for trial, line in zip(grid.trials, lines[1:], strict=True):
        encoder = encoders.load(ledger.model_dir(trial.id), "cpu")
        queries = encoder.encode(list(QUERIES.values()), normalize_embeddings=True)
        documents = encoder.encode(list(DOCUMENTS.values()), normalize_embeddings=True)
        found = {
            query_id: dict(
                sorted(zip(DOCUMENTS, row.tolist(), strict=True), key=lambda p: -p[1])[:10]
            )
            for query_id, row in zip(QUERIES, queries @ documents.T, strict=True)
        }
        assert_same_runs(run_of(ledger, trial), found)
        oracle = pytrec_eval.RelevanceEvaluator(QRELS, {"ndcg_cut.10"}).evaluate(found)
        frame, about = ledger.read_scores(trial.id, "mine")
        expected = [oracle[query_id]["ndcg_cut_10"] for query_id in QUERIES]
        np.testing.assert_allclose(frame["nDCG@10"], expected, atol=1e-6)
        assert frame["query_id"].tolist() == list(QUERIES)
        assert frame.columns.tolist() == ["query_id", *grid.measures]
        mean = np.mean(expected)
        assert f"scored {trial.id} on mine: nDCG@10 {mean:.4f} (40 documents, " in line
        assert (about["documents"], about["queries"], about["shards"]) == (40, 6, 1)
        assert about["pids"] == [os.getpid()]
        cut, cut_queries = (
            np.mean([len(encoder.tokenizer(text)["input_ids"]) > 20 for text in texts.values()])
            for texts in (DOCUMENTS, QUERIES)
        )
        assert about["truncated_documents"] == cut > 0
        assert about["truncated_queries"] == cut_queries > 0
        shares = f"{100 * cut:.1f} % of documents and {100 * cut_queries:.1f} % of queries"
        assert line.endswith(f" s), {shares} cut at 20 tokens")


def test_the_run_file_is_trecs_and_always_the_same_bytes(study: Any) -> None:
    _, grid, ledger = study
    trial = grid.trials[0]
    score(grid, ledger)
    path = ledger.run_trec(trial.id, "mine")
    first = path.read_bytes()
    lines = [line.split(" ") for line in gzip.decompress(first).decode().splitlines()]
    assert len(lines) == 60
    assert {len(line) for line in lines} == {6}
    assert [line[3] for line in lines[:10]] == [str(rank) for rank in range(1, 11)]
    assert {(line[1], line[5]) for line in lines} == {("Q0", trial.id)}
    path.unlink()
    score(grid, ledger)
    assert path.read_bytes() == first


@pytest.mark.parametrize("rule", ["keep", "drop"])
def test_colliding_ids_follow_the_rule_and_shards_change_nothing(study: Any, rule: str) -> None:
    _, grid, ledger = study
    grid = replace(grid, benchmarks=(grid.benchmarks[0].model_copy(update={"self_ids": rule}),))
    trial = grid.trials[1]
    runs, dropped = [], []
    for shards in (1, 4, 40):
        execution = grid.execution.model_copy(update={"shards": shards})
        own = Ledger(ledger.root.parent / f"{shards}")
        finish(own, trial, encoders.load(ledger.model_dir(trial.id), "cpu"))
        evaluate(
            replace(grid, execution=execution), [trial], own, benchmarks=grid.benchmarks, say=str
        )
        about = own.read_scores(trial.id, "mine")[1]
        assert about["shards"] == shards
        runs.append(run_of(own, trial))
        dropped.append(about["self_ids_dropped"])
    assert all(len(scores) == 10 for scores in runs[0].values())
    assert_same_runs(runs[0], runs[1])
    assert_same_runs(runs[0], runs[2])
    assert dropped[0] == dropped[1] == dropped[2]
    found = sum(query_id in scores for query_id, scores in runs[0].items())
    if rule == "drop":
        assert found == 0 < dropped[0]
    else:
        assert found > 0 == dropped[0]


def test_integer_ids_collide_by_chance_in_fiqa_and_by_nature_in_arguana(study: Any) -> None:
    """Queries are documents under their own ids; the registry's rules decide."""
    folder, grid, ledger = study
    trial = grid.trials[1]
    queries = {str(i): DOCUMENTS[str(i)] for i in range(6)}
    write_benchmark(folder / "collide", DOCUMENTS, queries, QRELS)
    names = ("fiqa", "arguana")
    text = grid.text.replace("[mine]", str([*names]).replace("'", ""))
    text = text.replace(
        "mine: ", ", ".join(f"{n}: {folder / 'collide'}" for n in names) + ", mine: "
    )
    found: dict[str, list[Any]] = {name: [] for name in names}
    for shards in (1, 4):
        (folder / "two.yaml").write_text(text.replace("device:", f"shards: {shards}, device:"))
        own = Ledger(folder / f"{shards}")
        finish(own, trial, encoders.load(ledger.model_dir(trial.id), "cpu"))
        two = grids.load(folder / "two.yaml")
        assert evaluate(two, [trial], own, benchmarks=two.benchmarks, say=str) == []
        for name in names:
            about = own.read_scores(trial.id, name)[1]
            run = metrics.from_trec(own.run_trec(trial.id, name).read_bytes())
            assert about["shards"] == shards
            firsts = [next(iter(run[query_id])) == query_id for query_id in queries]
            own_ids = sum(query_id in run[query_id] for query_id in queries)
            lengths = {len(ranking) for ranking in run.values()}
            found[name].append((about["self_ids_dropped"], own_ids, sum(firsts), lengths))
    assert found["fiqa"] == [(0, 6, 6, {10})] * 2
    assert found["arguana"] == [(6, 0, 0, {10})] * 2


def test_recall_at_a_thousand_beside_ranks_at_ten(tmp_path: Path) -> None:
    tiny_encoder(tmp_path / "backbone")
    rng = np.random.default_rng(1)
    documents = {str(i): " ".join(rng.choice(WORDS, 3)) for i in range(1100)}
    relevant = {f"q{i}": {str(d): 1 for d in rng.choice(1100, 40, replace=False)} for i in range(3)}
    queries = {query_id: " ".join(rng.choice(WORDS, 3)) for query_id in relevant}
    write_benchmark(tmp_path / "mine", documents, queries, relevant)
    grid = write_grid(tmp_path, measures="RR@10, nDCG@10, R@1000", k=1000)
    ledger = Ledger(tmp_path / "results")
    trial = grid.trials[0]
    finish(ledger, trial, encoders.build(trial, tmp_path / "backbone"))
    assert evaluate(grid, [trial], ledger, benchmarks=grid.benchmarks, say=str) == []
    run = run_of(ledger, trial)
    frame, _ = ledger.read_scores(trial.id, "mine")
    for _, row in frame.iterrows():
        ranking, wanted = list(run[row["query_id"]]), relevant[row["query_id"]]
        assert len(ranking) == 1000
        assert row["R@1000"] == len(wanted.keys() & set(ranking)) / 40
        firsts = [rank for rank, doc in enumerate(ranking[:10], start=1) if doc in wanted]
        assert row["RR@10"] == pytest.approx(1 / firsts[0] if firsts else 0)
        gain = sum(1 / np.log2(rank + 1) for rank in firsts)
        ideal = sum(1 / np.log2(rank + 1) for rank in range(1, 11))
        assert row["nDCG@10"] == pytest.approx(gain / ideal)
    assert 0 < frame["R@1000"].mean() < 1


def test_no_piece_of_a_corpus_is_larger_than_memory_allows(
    study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, ledger = study
    monkeypatch.setattr(cells, "SHARD_DOCUMENTS", 15)
    grid = write_grid(folder, execution="local, shards: 1")
    assert score(grid, ledger)[0] == []
    assert {ledger.read_scores(t.id, "mine")[1]["shards"] for t in grid.trials} == {3}


def test_batch_changes_scores_by_rounding_only(study: Any) -> None:
    _, grid, ledger = study
    score(grid, ledger)
    before = run_of(ledger, grid.trials[1])
    ledger.scores_parquet(grid.trials[1].id, "mine").unlink()
    failures, _ = score(
        replace(grid, evaluation=grid.evaluation.model_copy(update={"batch": 1})), ledger
    )
    assert failures == []
    assert_same_runs(before, run_of(ledger, grid.trials[1]))


def test_fewer_documents_than_shards_times_k_and_one_query(tmp_path: Path) -> None:
    tiny_encoder(tmp_path / "backbone")
    documents = {"a": "", "b": "bb cc", "last": "dad egg"}
    write_benchmark(tmp_path / "mine", documents, {"only": "dad egg"}, {"only": {"last": 1}})
    grid, ledger = (
        write_grid(tmp_path, execution="local, shards: 9"),
        Ledger(tmp_path / "r"),
    )
    for trial in grid.trials:
        finish(ledger, trial, encoders.build(trial, tmp_path / "backbone"))
    failures, _ = score(grid, ledger)
    assert failures == []
    for trial in grid.trials:
        run = run_of(ledger, trial)
        assert sorted(run["only"]) == ["a", "b", "last"]
        assert run["only"]["last"] == pytest.approx(1, abs=1e-6)
        frame, about = ledger.read_scores(trial.id, "mine")
        assert frame["nDCG@10"].tolist() == [1.0]
        assert about["shards"] == 3


def test_nan_weights_fail_by_name_and_the_other_trial_scores(study: Any) -> None:
    _, grid, ledger = study
    bad, good = grid.trials
    encoder = encoders.load(ledger.model_dir(bad.id), "cpu")
    with torch.no_grad():
        encoder[0].auto_model.encoder.layer[0].output.dense.bias[0] = float("nan")
    encoder.save(str(ledger.model_dir(bad.id)), create_model_card=False)
    ledger.finish_trial(bad, {"result": {"encoder_sha256": "nan", "parameters": 1}})
    failures, lines = score(grid, ledger)
    assert [failure.what for failure in failures] == [f"{bad.id} / mine"]
    assert failures[0].reason.startswith("EmbedError: 6 of 6 embeddings are not finite")
    assert ledger.read_scores(good.id, "mine") is not None
    assert ledger.read_scores(bad.id, "mine") is None
    assert lines[-1].startswith(f"scored {good.id} on mine")


def test_untrained_and_damaged_encoders_are_named(study: Any) -> None:
    _, grid, ledger = study
    missing, damaged = grid.trials
    ledger.trial_json(missing.id).unlink()
    weights = ledger.model_dir(damaged.id) / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    failures, lines = score(grid, ledger)
    assert lines == [f"not trained, so not scored: {missing.id}"]
    assert failures == [
        Failure(
            f"{damaged.id} / mine",
            "its encoder is missing or damaged; --phase train makes it again",
        )
    ]


def test_nothing_is_done_twice_and_damage_is_redone_alone(study: Any) -> None:
    _, grid, ledger = study
    score(grid, ledger)
    before = snapshot(ledger)
    assert score(grid, ledger) == ([], [])
    assert snapshot(ledger) == before

    first, second = (trial.id for trial in grid.trials)
    path = ledger.scores_parquet(first, "mine")
    path.write_bytes(path.read_bytes()[:-20])
    _, lines = score(grid, ledger)
    assert [line.split()[1] for line in lines[1:]] == [first]

    run = ledger.run_trec(second, "mine")
    run.write_bytes(run.read_bytes()[:-20])
    _, lines = score(grid, ledger)
    assert [line.split()[1] for line in lines[1:]] == [second]

    after = snapshot(ledger)
    runs = [name for name in before if name.endswith(".gz")]
    assert [after[name][0] for name in runs] == [before[name][0] for name in runs]
    assert after[f"{first}/scores/mine.parquet"][1] != before[f"{first}/scores/mine.parquet"][1]


def test_a_kill_loses_only_the_cell_under_way(study: Any) -> None:
    _, grid, ledger = study

    def killed(line: str) -> None:
        if line.startswith("scored"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(grid, grid.trials, ledger, benchmarks=grid.benchmarks, say=killed)
    before = snapshot(ledger)
    assert len(before) == 2  # the first cell's run and scores
    _, lines = score(grid, ledger)
    assert [line.split()[1] for line in lines[1:]] == [grid.trials[1].id]
    assert before.items() <= snapshot(ledger).items()


def test_what_was_scored_decides_whether_it_is_done(study: Any) -> None:
    folder, grid, ledger = study
    score(grid, ledger)
    assert len(score(write_grid(folder, evaluation=", max_length: 12"), ledger)[1]) == 3
    assert (
        len(score(write_grid(folder, evaluation=", max_length: 12, dtype: bf16"), ledger)[1]) == 3
    )
    assert len(score(grid, ledger)[1]) == 3  # back again
    other = grid.benchmarks[0].model_copy(update={"self_ids": "drop"})
    assert len(score(replace(grid, benchmarks=(other,)), ledger)[1]) == 3


def test_a_measure_added_later_comes_from_the_run_without_an_encoder(study: Any) -> None:
    folder, grid, ledger = study
    score(grid, ledger)
    for trial in grid.trials:  # nothing could be embedded any more
        (ledger.model_dir(trial.id) / "model.safetensors").unlink()
    more = write_grid(folder, measures="RR@5, P@1")
    assert score(more, ledger) == ([], [])
    for trial in grid.trials:
        frame, _ = ledger.read_scores(trial.id, "mine")
        assert frame.columns.tolist() == ["query_id", "RR@5", "P@1", *grid.measures]
        expected = metrics.score(run_of(ledger, trial), QRELS, frame.columns[1:])
        pd.testing.assert_frame_equal(frame, expected)
    assert score(grid, ledger) == ([], [])  # and the first grid's are still there


def test_no_trials_is_no_work(study: Any) -> None:
    _, grid, ledger = study
    assert evaluate(grid, [], ledger, benchmarks=grid.benchmarks, say=pytest.fail) == []


def test_ray_must_be_connected_when_it_is_asked_for(study: Any) -> None:
    folder, _, ledger = study
    with pytest.raises(EvaluateError, match=r"execution\.evaluate is ray, but this process"):
        score(write_grid(folder, execution="ray"), ledger)


def test_a_gpu_must_be_there_when_it_is_asked_for(study: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is there")
    _, grid, ledger = study
    asked = grid.execution.model_copy(update={"device": "cuda"})
    with pytest.raises(EvaluateError, match="device is cuda, but torch finds no GPU here"):
        score(replace(grid, execution=asked), ledger)


@pytest.fixture(scope="module")
def two_cpus() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")  # each pool of actors warns of itself
        patch.setattr(cluster, "usable_cpus", lambda: 2)
        with cluster.start_ray(Execution(cpus_per_trial=1), address="local"):
            yield


@pytest.mark.usefixtures("two_cpus")
def test_ray_data_equals_this_process_and_outlives_a_bad_encoder(
    study: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    import ray.data

    folder, grid, ledger = study
    bad, good = grid.trials
    score(grid, ledger)
    expected = run_of(ledger, good)
    context = ray.data.DataContext.get_current()
    before = (context.enable_progress_bars, context.print_on_execution_start)

    for trial in grid.trials:
        ledger.scores_parquet(trial.id, "mine").unlink()
    (ledger.model_dir(bad.id) / "config.json").write_text("{}")
    ledger.finish_trial(bad, {"result": {"encoder_sha256": "none", "parameters": 1}})
    capfd.readouterr()
    failures, lines = score(write_grid(folder, execution="ray, shards: 4"), ledger)
    assert "in 8 shards on 2 Ray Data actors, cpu (evaluate: ray)" in lines[0]
    assert capfd.readouterr().err == ""

    assert [failure.what for failure in failures] == [f"{bad.id} / mine"]
    assert "cannot be loaded" in failures[0].reason
    assert ledger.read_scores(bad.id, "mine") is None
    assert_same_runs(run_of(ledger, good), expected)
    about = ledger.read_scores(good.id, "mine")[1]
    assert (about["shards"], about["documents"], about["threads"]) == (4, 40, 1)
    assert os.getpid() not in about["pids"]
    assert (context.enable_progress_bars, context.print_on_execution_start) == before


@pytest.mark.usefixtures("two_cpus")
def test_auto_stays_here_for_little_work_and_says_so(study: Any) -> None:
    folder, _, ledger = study
    failures, lines = score(write_grid(folder, execution="auto"), ledger)
    assert failures == []
    assert "on this process, cpu (evaluate: auto: about 0 s of work, less than" in lines[0]


@pytest.mark.usefixtures("two_cpus")
def test_more_evaluators_than_the_cluster_holds_are_refused(study: Any) -> None:
    folder, _, ledger = study
    with pytest.raises(EvaluateError, match="evaluators is 3, but the cluster holds 2 of them"):
        score(write_grid(folder, execution="ray, evaluators: 3"), ledger)


@pytest.mark.usefixtures("two_cpus")
def test_an_execution_that_dies_is_told_apart_from_a_bad_shard() -> None:
    class Broken:
        def __init__(self) -> None:
            raise MemoryError("no room")

        def __call__(self, shards: Any) -> Any:
            return shards

    execution = Execution(device="cpu")
    answers = _on_ray(Broken, {}, [{"shard": 0}], execution, Place(1, "cpu", "ray"))
    with pytest.raises(LostError, match="no room"):
        list(answers)
