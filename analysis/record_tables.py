"""Tables of what the ledger recorded on the way to a result: training, latency, texts, gaps."""

import pandas as pd

from analysis.study import Study
from analysis.table import DASH, Column, Table, digits, missing, whole
from ray_ablation.frames import MEAN


def training_table(study: Study) -> Table:
    """Loss and speed of trained trials."""
    frame = study.state("done")
    frame = frame[frame["steps"] > 0]
    return Table(
        name="training",
        title="Training",
        caption="Loss is the last one logged, eval loss is that of held-out rows. "
        "MFU counts the floating-point operations the model needs over the device's bf16 peak; it "
        "is a dash where that peak is not known.",
        frame=frame,
        columns=(
            *trial_columns(frame),
            Column("loss", ("loss",), digits(4)),
            Column("eval loss", ("eval_loss",), digits(4)),
            Column("lowest eval loss", ("min_eval_loss",), digits(4)),
            Column("seconds", ("seconds",), digits(1)),
            Column("examples/s", ("examples_per_s",), digits(1)),
            Column("tokens/s", ("tokens_per_s",), digits(0)),
            Column("MFU", ("mfu",), "{:.1%}".format),
            Column("peak MiB", ("peak_bytes",), lambda value: f"{value / 2**20:,.0f}"),
            Column("node", ("node",), number=False),
            Column("device", ("device_name",), number=False),
        ),
    )


def latency_table(study: Study) -> Table:
    """What each architecture takes, and what may be said of it."""
    frame = study.latency[study.latency["variant"].notna()]
    frame = frame.drop_duplicates(["variant", "length", "arm"]).copy()
    frame["said"] = [indicative(verdict) for verdict in frame["verdict"]]
    reference = frame["reference"].dropna().unique()
    ratio = f"ratio to {reference[0]}" if len(reference) else "ratio"
    return Table(
        name="latency",
        title="Latency",
        caption=_latency_caption(frame),
        frame=frame,
        columns=(
            Column("architecture", ("variant",), number=False),
            Column("tokens", ("length",), whole),
            Column("p50 ms", ("p50_ms",), digits(2)),
            Column("95 % interval", ("p50_lo_ms", "p50_hi_ms"), "{:.2f} to {:.2f}".format),
            Column("p95 ms", ("p95_ms",), digits(2)),
            Column("mean ms", ("mean_ms",), digits(2)),
            Column(ratio, ("ratio",), digits(3)),
            Column("its interval", ("ratio_lo", "ratio_hi"), "{:.3f} to {:.3f}".format),
            Column("host / device", ("host_bound_ratio",), digits(1)),
            Column("stalls", ("stall_share", "stall_cause"), _stalls, optional=1),
            Column("processes", ("n_processes",), whole),
            Column("calls", ("n_calls",), whole),
            Column("verdict", ("said",), number=False),
            Column("because", ("reasons",), lambda text: text or DASH, number=False),
        ),
    )


def _latency_caption(frame: pd.DataFrame) -> str:
    if frame.empty:
        return ""
    first = frame.iloc[0]
    if missing(first["profile"]):
        return "Milliseconds per call as imported; there are no raw samples to judge them by."
    alone = " of encoders alone in their process" if first["measured"] == "solo" else ""
    return (
        f"Milliseconds per call, end to end{alone}, batch {first['batch']}, {first['inputs']} "
        f"length, {first['dtype']} on {first['processor']}; profile {first['profile']}. "
        f"Ratios are over {first['reference']}, taken inside interleaved cycles, and hold "
        "better than the absolute figures. An interval (95 %) needs five processes; p95 needs 500 "
        "calls in each. A stall is a call of more than five medians, with what it follows."
    )


def _stalls(share: float, cause: str | None) -> str:
    """How many calls stall, and what they follow: 12.0% (first_shape)."""
    return f"{share:.1%} ({cause})" if share and cause else f"{share:.1%}"


def indicative(verdict: str) -> str:
    """A verdict as a reader should take it."""
    if verdict == "imported":
        return "indicative (imported)"
    return "indicative (insufficient)" if verdict == "insufficient" else verdict


def benchmarks_table(study: Study) -> Table:
    """What the benchmarks are, and what was done to their texts."""
    rows = []
    for name in study.benchmarks:
        found = study.audit[study.audit["benchmark"] == name]
        if len(found):
            first = found.iloc[0].to_dict()
            ends = {
                f"{column} {end}": getattr(found[column], end)()
                for column in ("truncated_documents", "truncated_queries", "ties_at_cutoff")
                for end in ("min", "max")
            }
            rows.append(first | ends | {"trials": len(found)})
    return Table(
        name="benchmarks",
        title="Benchmarks",
        caption="Every judged query counts; one without a ranking counts as 0. Truncated are texts "
        "longer than max length; ties are queries whose ranking ends between equal scores. A range "
        f"is over trials. {' '.join(study.notes)}".strip(),
        frame=pd.DataFrame(rows) if rows else study.audit,
        columns=(
            Column("benchmark", ("benchmark",), number=False),
            Column("split", ("split",), number=False),
            Column("documents", ("documents",), whole),
            Column("queries", ("queries",), whole),
            Column("max length", ("max_length",), whole),
            _range_column("truncated documents", "truncated_documents", "{:.1%}"),
            _range_column("truncated queries", "truncated_queries", "{:.1%}"),
            _range_column("ties at the cut-off", "ties_at_cutoff", "{:.0f}"),
            Column("self ids", ("self_ids",), number=False),
            Column("trials", ("trials",), whole),
            Column("content", ("benchmark_sha256",), lambda text: text[:12], number=False),
        ),
    )


def _range_column(title: str, field: str, form: str) -> Column:
    def say(low: float, high: float) -> str:
        ends = list(dict.fromkeys(form.format(value) for value in (low, high)))
        return " to ".join(ends)

    return Column(title, (f"{field} min", f"{field} max"), say)


def unfinished_table(study: Study) -> Table:
    """Trials and cells without a result, with the reason."""
    trials = study.trials[~study.trials["state"].isin(study.finished["state"])]
    rows = [
        {"what": row["trial"], "state": row["state"], "reason": row["reason"]}
        for row in trials.to_dict("records")
    ]
    done = set(study.state("done")["trial"])
    cells = study.results[study.results["benchmark"] != MEAN].drop_duplicates(
        ["trial", "benchmark"]
    )
    for row in cells.to_dict("records"):
        if row["trial"] in done and missing(row["n_queries"]):
            what = f"{row['trial']} / {row['benchmark']}"
            rows.append({"what": what, "state": "missing", "reason": "not scored yet"})
    return Table(
        name="unfinished",
        title="Missing and failed",
        caption="Run the same command again: what is done is kept, the rest is tried again.",
        frame=pd.DataFrame(rows, columns=["what", "state", "reason"]),
        columns=tuple(Column(name, (name,), number=False) for name in ("what", "state", "reason")),
    )


def provenance_table(study: Study) -> Table:
    """What each finished trial is made of, by digest."""
    frame = study.state("done")

    def short(text: str) -> str:
        return text[:12]

    return Table(
        name="provenance",
        title="Provenance",
        caption="Twelve digits of the sha256 of the encoder, the backbone's weights, the train "
        "sample and the training code; a commit with a + had local changes.",
        frame=frame,
        columns=(
            *trial_columns(frame),
            Column("encoder", ("encoder_sha256",), short, number=False),
            Column("weights", ("weights_sha256",), short, number=False),
            Column("sample", ("sample_sha256",), short, number=False),
            Column("code", ("code_sha256",), short, number=False),
            Column("commit", ("git_commit",), lambda text: text[:12] + text[40:], number=False),
            Column("finished", ("finished_at",), number=False),
        ),
    )


def trial_columns(frame: pd.DataFrame) -> tuple[Column, ...]:
    """The trial, and its experiment where the grid names them."""
    experiment = (Column("experiment", ("experiment",), number=False),)
    named = experiment if frame["experiment"].notna().any() else ()
    return (Column("trial", ("trial",), number=False), *named)
