"""What is read of a corpus for one piece of it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ray_ablation.retrieve import read_rows


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (3, 7), (4, 8), (0, 23), (9, 21), (22, 23)])
def test_only_the_row_groups_that_are_needed_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, stop: int
) -> None:
    rows = pa.table({"row": range(23), "text": [f"t{i}" for i in range(23)]})
    files = []
    for first in range(0, 23, 8):
        files.append(tmp_path / f"{first:02d}.parquet")
        pq.write_table(rows.slice(first, 8), files[-1], row_group_size=4)
    read: list[int] = []
    original = pq.ParquetFile.read_row_group

    def counted(file: pq.ParquetFile, group: int) -> pa.Table:
        found = original(file, group)
        read.append(found.num_rows)
        return found

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    assert read_rows(files, start, stop).equals(rows.slice(start, stop - start))
    assert sum(read) <= stop - start + 2 * 3  # three rows too many at either end
    with pytest.raises(ValueError, match=r"lacks some of the rows 20\.\.29"):
        read_rows(files, 20, 30)
