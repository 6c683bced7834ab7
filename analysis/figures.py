"""The figures of a study, drawn from its data alone; captions too, so they cannot contradict it.

Each is a function that takes a `Study` and gives a `Drawing`. Where the data cannot support it, the
drawing has no figure and its caption says why. All are generic over axes: what a study of depth
draws along depth, a study of batch sizes draws along batch.
"""

from collections.abc import Callable

from analysis.plots.budget import depth_by_budget
from analysis.plots.change import change_by_benchmark
from analysis.plots.drawing import Drawing
from analysis.plots.latency import accuracy_by_latency
from analysis.plots.latency_detail import (
    latency_by_depth,
    latency_distribution,
    latency_stages,
)
from analysis.plots.seeds import seeds_by_depth
from analysis.plots.training import training_curves
from analysis.study import Study


def draw(study: Study) -> dict[str, Drawing]:
    """Every figure by name, in the order of a report."""
    return {name: function(study) for name, function in FIGURES.items()}


FIGURES: dict[str, Callable[[Study], Drawing]] = {
    "depth_by_budget": depth_by_budget,
    "change_by_benchmark": change_by_benchmark,
    "seeds_by_depth": seeds_by_depth,
    "accuracy_by_latency": accuracy_by_latency,
    "latency_by_depth": latency_by_depth,
    "latency_distribution": latency_distribution,
    "latency_stages": latency_stages,
    "training_curves": training_curves,
}
