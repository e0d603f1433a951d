"""Data sets that are made, with a truth that is known: what a model could learn of them at best can be told exactly.

    taxi      rides; the fare is a rate times the distance, a surcharge at night, and noise      (regression)
    census    people; whether they earn much, drawn with a known probability                     (two classes)
    reviews   texts; whether they praise, drawn with a probability known from planted words      (two classes)

The same rows for the same name, number and seed, on every machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stoker.errors import UsageError

Floats = npt.NDArray[np.float64]

EARTH_RADIUS_KM = 6371.0088

# The taxi's truth.
FARE_BASE, FARE_PER_KM, NIGHT_SURCHARGE, FARE_NOISE = 3.0, 1.6, 2.0, 0.75

# The census's truth: what each known value adds to the log-odds. An unknown one adds nothing.
WORKCLASSES = {"private": 0.0, "self_employed": 0.5, "government": 0.3, "volunteer": -2.0}
EDUCATIONS = {"none": -1.2, "school": -0.4, "college": 0.3, "bachelors": 0.9, "masters": 1.3, "doctorate": 1.8}
OCCUPATIONS = {
    "sales": 0.3, "craft": 0.0, "service": -0.9, "clerical": -0.2, "technical": 0.6, "executive": 1.2,
    "transport": -0.3, "farming": -1.0, "teaching": 0.4, "medicine": 1.5,
}  # fmt: skip
REGIONS = tuple(f"region_{number:02d}" for number in range(40))
LABELS = ("<=50K", ">50K")

# The reviews' truth: each such word moves the log-odds by one step.
PRAISE = ("wonderful", "superb", "moving", "brilliant", "delightful", "gripping")
BLAME = ("dull", "dreadful", "clumsy", "boring", "shallow", "tedious")
WORD_STEP = 0.9
_SYLLABLES = ("ka", "lo", "mi", "ren", "tos", "vel", "dra", "sun", "per", "ing", "ola", "bex")


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set: how its rows are made, and the best prediction for each row."""

    make: Callable[[int, np.random.Generator], pa.Table]
    expect: Callable[[pa.Table], Floats]  # the mean of the target, or the probability of the second label
    target: str
    labels: tuple[str, ...] | None = None  # None: a number is to be predicted


def make(name: str, *, rows: int, seed: int = 0) -> pa.Table:
    """So many rows of a data set."""
    if rows < 1:
        raise UsageError(f"--rows {rows}: expected a whole number of at least 1.")
    return data_set(name).make(rows, np.random.default_rng(seed))


def data_set(name: str) -> DataSet:
    if name not in DATA_SETS:
        raise UsageError(f"No data set {name!r}. There are: {', '.join(DATA_SETS)}.")
    return DATA_SETS[name]


def expected(name: str, table: pa.Table) -> Floats:
    """The best prediction for each row: the mean of the target, or the probability of the second label."""
    return data_set(name).expect(table)


def best_score(name: str, table: pa.Table) -> tuple[str, float]:
    """The metric a perfect model has on these very rows: `("auc", 0.9)` or `("rmse", 0.75)`."""
    made = data_set(name)
    best = made.expect(table)
    if made.labels is None:
        error = _column(table, made.target) - best
        return "rmse", float(np.sqrt(np.mean(error * error)))
    positive = np.asarray(pc.equal(table[made.target], made.labels[1]))
    return "auc", area_under_curve(best, positive)


def area_under_curve(score: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """The chance that a positive row has the higher score than a negative one; equal scores count half."""
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return float("nan")
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def haversine_km(latitude_1: Floats, longitude_1: Floats, latitude_2: Floats, longitude_2: Floats) -> Floats:
    """The way along the globe between points given in degrees."""
    lat_1, lon_1, lat_2, lon_2 = map(np.radians, (latitude_1, longitude_1, latitude_2, longitude_2))
    a = np.sin((lat_2 - lat_1) / 2) ** 2 + np.cos(lat_1) * np.cos(lat_2) * np.sin((lon_2 - lon_1) / 2) ** 2
    return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(a)))


def _make_taxi(rows: int, chance: np.random.Generator) -> pa.Table:
    longitudes = chance.normal(-73.98, 0.03, (2, rows)).round(6)
    latitudes = chance.normal(40.75, 0.03, (2, rows)).round(6)
    seconds = chance.integers(0, 3 * 365 * 86400, rows) + int(np.datetime64("2012-01-01", "s").astype(np.int64))
    table = pa.table(
        {
            "fare_amount": np.zeros(rows),
            "pickup_datetime": pc.strftime(pa.array(seconds).cast(pa.timestamp("s")), format="%Y-%m-%d %H:%M:%S"),
            "pickup_longitude": longitudes[0],
            "pickup_latitude": latitudes[0],
            "dropoff_longitude": longitudes[1],
            "dropoff_latitude": latitudes[1],
            "passenger_count": chance.integers(1, 7, rows),
        }
    )
    fare = expected_fare(table) + chance.normal(0, FARE_NOISE, rows)
    return table.set_column(0, "fare_amount", pa.array(fare.round(2)))


def expected_fare(table: pa.Table) -> Floats:
    """What a ride costs but for the noise."""
    corners = [f"{end}_{axis}" for end in ("pickup", "dropoff") for axis in ("latitude", "longitude")]
    distance = haversine_km(*(_column(table, name) for name in corners))
    hour = pc.hour(pc.strptime(table["pickup_datetime"], format="%Y-%m-%d %H:%M:%S", unit="s"))
    by_night = np.asarray(pc.or_(pc.less(hour, 6), pc.greater_equal(hour, 20)))
    return FARE_BASE + FARE_PER_KM * distance + NIGHT_SURCHARGE * by_night


def _make_census(rows: int, chance: np.random.Generator) -> pa.Table:
    columns = {
        "age": pa.array(chance.integers(17, 91, rows)),
        "workclass": _choice(chance, tuple(WORKCLASSES), rows, weights=(0.7, 0.12, 0.15, 0.03), missing=0.05),
        "education": _choice(chance, tuple(EDUCATIONS), rows, weights=(0.1, 0.35, 0.2, 0.2, 0.1, 0.05)),
        "occupation": _choice(chance, tuple(OCCUPATIONS), rows, missing=0.06),
        "region": _choice(chance, REGIONS, rows),
        "capital_gain": _with_gaps(np.where(chance.random(rows) < 0.1, chance.lognormal(8, 1, rows), 0).round(), None),
        "capital_loss": _with_gaps(
            np.where(chance.random(rows) < 0.05, chance.lognormal(7, 0.5, rows), 0).round(), None
        ),
        "hours_per_week": _with_gaps(np.clip(chance.normal(40, 11, rows), 1, 99).round(), chance.random(rows) < 0.04),
        "years_employed": _with_gaps(np.minimum(chance.exponential(9, rows), 50).round(1), None),
        "distance_to_work": _with_gaps(chance.gamma(2, 6, rows).round(2), None),
        "household_size": pa.array(chance.integers(1, 8, rows)),
    }
    table = pa.table(columns)
    earns = chance.random(rows) < expected_income(table)
    return table.append_column("income_bracket", pa.array(np.where(earns, LABELS[1], LABELS[0])))


def expected_income(table: pa.Table) -> Floats:
    """The probability of the upper bracket, from what the row tells."""
    age, hours = _column(table, "age"), np.nan_to_num(_column(table, "hours_per_week"), nan=40.0)
    log_odds = -2.1 - ((age - 50) / 18) ** 2 + 0.05 * (hours - 40)
    log_odds = (
        log_odds + 0.35 * np.log1p(_column(table, "capital_gain")) - 0.15 * np.log1p(_column(table, "capital_loss"))
    )
    log_odds = log_odds + 0.04 * _column(table, "years_employed") - 0.02 * _column(table, "distance_to_work")
    for name, effects in (("workclass", WORKCLASSES), ("education", EDUCATIONS), ("occupation", OCCUPATIONS)):
        log_odds = log_odds + _effects(table, name, effects)
    log_odds = log_odds + _effects(table, "region", {name: 0.6 * np.sin(i) for i, name in enumerate(REGIONS)})
    return np.asarray(1 / (1 + np.exp(-log_odds)))


def _make_reviews(rows: int, chance: np.random.Generator) -> pa.Table:
    lengths = np.clip(chance.lognormal(3.6, 0.5, rows), 8, 400).astype(np.int64)
    fillers = [first + second for first in _SYLLABLES for second in _SYLLABLES]
    words = [*PRAISE, *BLAME, *fillers]
    ends = np.cumsum(lengths)
    tone = np.repeat(chance.normal(0, 0.8, rows), lengths)  # how a text leans
    drawn = chance.random(int(ends[-1]))
    planted, praise = drawn < 0.12, chance.random(len(drawn)) < 1 / (1 + np.exp(-2 * tone))
    which = chance.integers(0, len(PRAISE), len(drawn))
    filler = chance.integers(len(PRAISE) + len(BLAME), len(words), len(drawn))
    codes = np.where(planted, np.where(praise, which, which + len(PRAISE)), filler)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(words).take(pa.array(codes)))
    table = pa.table({"text": pc.binary_join(lists, " ")})
    label = np.where(chance.random(rows) < expected_praise(table), "positive", "negative")
    return table.append_column("label", pa.array(label))


def expected_praise(table: pa.Table) -> Floats:
    """The probability that a text praises, from the planted words in it."""
    balance = np.zeros(table.num_rows)
    for sign, words in ((1, PRAISE), (-1, BLAME)):
        for word in words:
            balance += sign * np.asarray(pc.count_substring(table["text"], word))
    return np.asarray(1 / (1 + np.exp(-WORD_STEP * balance)))


def _choice(
    chance: np.random.Generator,
    values: Sequence[str],
    rows: int,
    *,
    weights: Sequence[float] | None = None,
    missing: float = 0.0,
) -> pa.Array:
    codes = chance.choice(len(values), rows, p=weights)
    gaps = chance.random(rows) < missing if missing else None
    return pa.array(values).take(pa.array(codes, mask=gaps))


def _with_gaps(values: Floats, gaps: npt.NDArray[np.bool_] | None) -> pa.Array:
    return pa.array(values, mask=gaps)


def _effects(table: pa.Table, name: str, effects: dict[str, Any]) -> Floats:
    place = pc.index_in(table[name], pa.array(list(effects)))
    known = np.asarray(pc.fill_null(place, len(effects)))
    return np.asarray(np.array([*effects.values(), 0.0])[known])


def _column(table: pa.Table, name: str) -> Floats:
    """A column's numbers; NaN where there is none."""
    return np.asarray(pc.fill_null(table[name].cast(pa.float64()), float("nan")))


DATA_SETS: dict[str, DataSet] = {
    "taxi": DataSet(_make_taxi, expected_fare, target="fare_amount"),
    "census": DataSet(_make_census, expected_income, target="income_bracket", labels=LABELS),
    "reviews": DataSet(_make_reviews, expected_praise, target="label", labels=("negative", "positive")),
}
