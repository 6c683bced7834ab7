"""One figure a module; `analysis.figures.FIGURES` names them."""
