import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from ray_ablation.search import HITS, Best, full_float32, merge, top_k


def rows(hits: pa.Table) -> list[tuple[int, str, float]]:
    return [(row["query"], row["doc_id"], row["score"]) for row in hits.to_pylist()]


def by_hand(scores_QN: np.ndarray, ids: list[str], k: int) -> list[tuple[int, str, float]]:
    """Sort everything in Python by (score, bytes of the id), both descending."""
    found = []
    for query, scores in enumerate(scores_QN):
        pairs = sorted(
            zip(scores.tolist(), ids, strict=True),
            key=lambda p: (p[0], p[1].encode()),
            reverse=True,
        )
        found += [(query, doc_id, score) for score, doc_id in pairs[:k]]
    return found


def coarse(seed: int, queries: int, documents: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Vectors of -1, 0, 1: their products are small integers, exact in float32 and full of ties."""
    rng = np.random.default_rng(seed)
    queries_QD = rng.integers(-1, 2, (queries, 4)).astype(np.float32)
    docs_ND = rng.integers(-1, 2, (documents, 4)).astype(np.float32)
    ids = [str(i) for i in rng.permutation(documents)]
    return queries_QD, docs_ND, ids


@pytest.mark.parametrize("k", [1, 7, 10, 59, 60, 200])
@pytest.mark.parametrize("chunk", [1, 7, 60, None])
def test_ties_are_ordered_by_id_descending_at_any_chunk_size(k: int, chunk: int | None) -> None:
    queries, docs, ids = coarse(0, 9, 60)
    hits = top_k(queries, docs, ids, k, chunk=chunk)
    assert hits.schema == HITS
    assert rows(hits) == by_hand(queries @ docs.T, ids, k)


def test_a_tie_across_the_cut_keeps_the_larger_id() -> None:
    query = np.array([[1.0]], dtype=np.float32)
    docs = np.array([[0.5], [0.9], [0.5], [0.5]], dtype=np.float32)
    hits = top_k(query, docs, ["10", "7", "9", "2"], 2)
    # "9" > "2" > "10" as strings
    assert [row[1] for row in rows(hits)] == ["7", "9"]


@pytest.mark.parametrize("shards", [1, 2, 4, 13])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_merged_shards_equal_the_whole(shards: int, k: int) -> None:
    queries, docs, ids = coarse(1, 6, 50)
    parts = [
        top_k(queries, docs[part], [ids[i] for i in part], k)
        for part in np.array_split(np.arange(50), shards)
    ]
    expected = by_hand(queries @ docs.T, ids, k)
    assert rows(merge(parts, k)) == expected
    assert rows(merge(parts[::-1], k)) == expected
    best = Best(k)
    for part in parts:
        best.add(part)
    assert rows(best.table()) == expected


@pytest.mark.parametrize("seed", range(5))
def test_best_keeps_what_a_merge_of_everything_keeps_and_no_more(seed: int) -> None:
    queries, docs, ids = coarse(seed, 5, 400)
    best, k = Best(8), 8
    parts = [
        top_k(queries, docs[part], [ids[i] for i in part], k)
        for part in np.array_split(np.arange(400), 40)
    ]
    # A shard may know nothing of some queries.
    parts = [part.filter(pc.not_equal(part["query"], i % 5)) for i, part in enumerate(parts)]
    for part in parts:
        best.add(part)
        held = best._held.num_rows + sum(one.num_rows for one in best._waiting)
        assert held <= 2 * k * 5 + part.num_rows
    assert rows(best.table()) == rows(merge(parts, k))
    assert best.table() is best.table()


def test_a_shard_smaller_than_k_pads_nothing_and_the_last_document_is_found() -> None:
    queries = np.eye(3, dtype=np.float32)
    docs = np.eye(3, dtype=np.float32)
    parts = [top_k(queries, docs[i : i + 1], [f"d{i}"], 10) for i in range(3)]
    merged = rows(merge(parts, 10))
    assert len(merged) == 9
    assert [(query, doc) for query, doc, score in merged if score == 1] == [
        (0, "d0"),
        (1, "d1"),
        (2, "d2"),
    ]


def test_ids_compare_by_their_bytes() -> None:
    ids = ["Z", "a", "é", "日本", "😀", "10", "9", ""]
    hits = top_k(np.ones((1, 1), np.float32), np.ones((8, 1), np.float32), ids, 8)
    assert [row[1] for row in rows(hits)] == sorted(ids, key=str.encode, reverse=True)
    assert [row[1] for row in rows(merge([hits], 8))] == sorted(ids, key=str.encode, reverse=True)


def test_scores_of_either_sign_and_both_zeros() -> None:
    docs = np.array([[1e-30], [-0.0], [0.0], [-1e-30], [2.5], [-2.5]], dtype=np.float32)
    hits = top_k(np.ones((1, 1), np.float32), docs, ["a", "b", "c", "d", "e", "f"], 6)
    assert [row[1] for row in rows(hits)] == ["e", "a", "c", "b", "d", "f"]
    np.testing.assert_array_equal(hits["score"], np.float32([2.5, 1e-30, 0, 0, -1e-30, -2.5]))


def test_random_vectors_agree_with_float64_to_rounding() -> None:
    rng = np.random.default_rng(2)
    queries = rng.normal(size=(20, 64)).astype(np.float32)
    docs = rng.normal(size=(3000, 64)).astype(np.float32)
    hits = top_k(queries, docs, [f"{i:05}" for i in range(3000)], 10, chunk=700)
    exact = queries.astype(np.float64) @ docs.astype(np.float64).T
    expected = np.sort(exact, axis=1)[:, ::-1][:, :10]
    np.testing.assert_allclose(hits["score"].to_numpy().reshape(20, 10), expected, atol=1e-5)


def test_no_documents_and_no_queries() -> None:
    one, none = np.ones((1, 2), np.float32), np.ones((0, 2), np.float32)
    assert top_k(one, none, [], 5).num_rows == 0
    assert top_k(none, one, ["a"], 5).num_rows == 0
    assert merge([], 5).schema == HITS


def test_products_are_float32_whatever_was_set_before() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with full_float32("cpu"):
                assert torch.get_float32_matmul_precision() == "highest"
                assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
            vector = np.float32([[1.001, 1.0]])
            score = rows(top_k(vector, vector, ["a"], 1))[0][2]
        assert score == pytest.approx(1.001**2 + 1, abs=1e-6)  # bf16 would say 2.0
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
