"""Every file name under a storage root; nothing else in the project spells one.

trials/<id>/trial.json            the done mark, written last
            train.parquet         one row a logged step
            model/                the encoder as sentence-transformers saves it
            checkpoints/          only while training
            scores/<benchmark>.parquet, runs/<benchmark>.trec.gz
references/<id>/                  scores/ and runs/ of BM25, as of a trial
latency/<profile id>/             one profile: plan, samples, blocks, environment, latency.json
studies/<name>/                   grid.yaml, claims.json, tune/<n>/, and the report
cache/                            prepared data, rebuilt when missing
"""

from dataclasses import dataclass
from pathlib import Path

CHECKPOINTS = "checkpoints"

MARKS = ("state.json", "result.json", "latency.json", "trial.json")
"""Files that vouch for those beside them, so they are handed on after them."""


@dataclass(frozen=True)
class Layout:
    """All file names under `root`."""

    root: Path

    def trial_dir(self, trial_id: str) -> Path:
        return self.root / "trials" / trial_id

    def trial_json(self, trial_id: str) -> Path:
        return self.trial_dir(trial_id) / "trial.json"

    def train_parquet(self, trial_id: str) -> Path:
        return self.trial_dir(trial_id) / "train.parquet"

    def model_dir(self, trial_id: str) -> Path:
        return self.trial_dir(trial_id) / "model"

    def checkpoints_dir(self, trial_id: str) -> Path:
        return self.trial_dir(trial_id) / CHECKPOINTS

    def failure_json(self, trial_id: str) -> Path:
        return self.trial_dir(trial_id) / "failure.json"

    def scores_parquet(self, trial_id: str, benchmark: str) -> Path:
        return self.trial_dir(trial_id) / "scores" / f"{benchmark}.parquet"

    def run_trec(self, trial_id: str, benchmark: str) -> Path:
        return self.trial_dir(trial_id) / "runs" / f"{benchmark}.trec.gz"

    def reference_scores_parquet(self, reference_id: str, benchmark: str) -> Path:
        return self.root / "references" / reference_id / "scores" / f"{benchmark}.parquet"

    def reference_run_trec(self, reference_id: str, benchmark: str) -> Path:
        return self.root / "references" / reference_id / "runs" / f"{benchmark}.trec.gz"

    def latency_dir(self, profile_id: str) -> Path:
        return self.root / "latency" / profile_id

    def latency_json(self, profile_id: str) -> Path:
        return self.latency_dir(profile_id) / "latency.json"

    def study_dir(self, name: str) -> Path:
        return self.root / "studies" / name

    def study_grid(self, name: str) -> Path:
        return self.study_dir(name) / "grid.yaml"

    def profile_json(self, name: str) -> Path:
        return self.study_dir(name) / "profile.json"

    def claims_json(self, name: str) -> Path:
        return self.study_dir(name) / "claims.json"

    def benchmarks_json(self, name: str) -> Path:
        return self.study_dir(name) / "benchmarks.json"

    def study_files(self, name: str) -> list[Path]:
        """What a study is, apart from its trials and its report."""
        folder = self.study_dir(name)
        files = [self.study_grid(name), folder / "trials.json", self.claims_json(name)]
        return [*files, self.benchmarks_json(name), self.profile_json(name)]

    def new_tune_dir(self, name: str) -> Path:
        """An unused studies/<name>/tune/<n>, n counting Tune's sessions from 1."""
        parent = self.study_dir(name) / "tune"
        used = (
            [int(p.name) for p in parent.glob("*") if p.name.isdigit()] if parent.exists() else []
        )
        return parent / str(max(used, default=0) + 1)

    def cache_dir(self, cache: str | None = None) -> Path:
        return Path(cache).expanduser() if cache else self.root / "cache"
