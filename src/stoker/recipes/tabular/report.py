"""A report of a training as one HTML page with its plots in it: nothing is fetched, nothing runs."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import torch
from torch import nn

from stoker.recipes.tabular.data import Table
from stoker.recipes.tabular.features import Features
from stoker.recipes.tabular.inference import infer
from stoker.recipes.tabular.scores import reliability, roc_points

_WIDTH, _HEIGHT, _MARGIN = 420, 300, 44
_DOTS = 2000  # of a scatter plot: more only make the page heavy
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}"
    ".plots{display:flex;flex-wrap:wrap;gap:1rem}text{font:11px system-ui,sans-serif;fill:#555}"
)

Points = Sequence[tuple[float, float]]


def write_report(
    path: Path,
    net: nn.Module,
    features: Features,
    table: Table,
    *,
    metrics: dict[str, float],
    history: list[dict[str, float]],
) -> None:
    """Metrics, the course of training, and how predictions compare with the truth on a table."""
    predicted = infer(net, features, table.numbers, table.codes)
    plots = [_course(history)] if history else []
    tables = [_table(["metric", "value"], [[name, f"{value:.4f}"] for name, value in metrics.items()])]
    if features.metadata.task == "regression":
        plots.append(_scatter(predicted, table.target))
    else:
        weight = torch.ones(len(table), dtype=torch.float64) if table.weight is None else table.weight.double()
        bins = reliability(features.metadata.task, predicted.double(), table.target.long(), weight)
        points = [(each.confidence, each.accuracy) for each in bins]
        plots.append(_plot("Calibration", points, axes=("probability said", "share that came true"), diagonal=True))
        if features.metadata.task == "binary":
            curve = roc_points(predicted[:, 1], table.target == 1)
            axes = ("false positive rate", "true positive rate")
            plots.append(_plot("ROC", curve, axes=axes, diagonal=True, dots=False))
        rows = [[f"{b.confidence:.3f}", f"{b.accuracy:.3f}", f"{b.weight:.0f}"] for b in bins]
        tables.append("<h2>Calibration</h2>" + _table(["said", "came true", "rows"], rows))
    about = f"Target <b>{escape(features.metadata.target)}</b>, {features.metadata.task}; {len(table):,} rows held out."
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Training report</title><style>{_STYLE}</style>'
        f'<h1>Training report</h1><p>{about}</p>{tables[0]}<div class="plots">{"".join(plots)}</div>'
        f"{''.join(tables[1:])}</html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _course(history: list[dict[str, float]]) -> str:
    points = [(float(number), row["loss"]) for number, row in enumerate(history, start=1)]
    return _plot("Validation loss", points, axes=("epoch", "loss"))


def _scatter(predicted: torch.Tensor, target: torch.Tensor) -> str:
    step = max(1, len(target) // _DOTS)
    points = list(zip(target[::step].tolist(), predicted[::step].tolist(), strict=True))
    return _plot("Predictions", points, axes=("truth", "predicted"), diagonal=True, line=False)


def _plot(
    title: str,
    points: Points,
    *,
    axes: tuple[str, str],
    diagonal: bool = False,
    line: bool = True,
    dots: bool = True,
) -> str:
    """An SVG of a line, of dots, or both; `diagonal` draws where the two axes are equal."""
    both = [value for point in points for value in point]
    low_x, high_x = _span(both if diagonal else [x for x, _ in points])
    low_y, high_y = _span(both if diagonal else [y for _, y in points])

    def at(x: float, y: float) -> tuple[float, float]:
        right = _MARGIN + (x - low_x) / (high_x - low_x) * (_WIDTH - 1.5 * _MARGIN)
        down = _HEIGHT - _MARGIN - (y - low_y) / (high_y - low_y) * (_HEIGHT - 2 * _MARGIN)
        return round(right, 1), round(down, 1)

    placed = [at(x, y) for x, y in points]
    parts = [_frame(title, axes, (low_x, high_x), (low_y, high_y))]
    if diagonal:
        parts.append(_line([at(low_x, low_y), at(high_x, high_y)], colour="#bbb", dashed=True))
    if line:
        parts.append(_line(placed, colour="#0b62c4"))
    if dots:
        radius = 3 if line else 1.5
        parts += [f'<circle cx="{x}" cy="{y}" r="{radius}" fill="#0b62c4" fill-opacity=".6"/>' for x, y in placed]
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">{"".join(parts)}</svg>'


def _frame(title: str, axes: tuple[str, str], xs: tuple[float, float], ys: tuple[float, float]) -> str:
    left, right, top, bottom = _MARGIN, _WIDTH - _MARGIN / 2, _MARGIN, _HEIGHT - _MARGIN
    texts = [
        (_WIDTH / 2, 20, "middle", title),
        (_WIDTH / 2, _HEIGHT - 10, "middle", axes[0]),
        (left, bottom + 16, "start", f"{xs[0]:.3g}"),
        (right, bottom + 16, "end", f"{xs[1]:.3g}"),
        (left - 4, bottom, "end", f"{ys[0]:.3g}"),
        (left - 4, top + 8, "end", f"{ys[1]:.3g}"),
        (left, top - 8, "start", axes[1]),
    ]
    lines = f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#888"/>'
    return lines + "".join(f'<text x="{x}" y="{y}" text-anchor="{a}">{escape(text)}</text>' for x, y, a, text in texts)


def _line(points: Points, *, colour: str, dashed: bool = False) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    dashes = ' stroke-dasharray="4 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>'


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"
