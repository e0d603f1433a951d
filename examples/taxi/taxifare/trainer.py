"""fare_amount ~ a + b * distance, fitted epoch by epoch.

An ordinary package: run it by `python -m taxifare.trainer --data rides.csv`, here or as a job. The two lines with `ctx`
are all it knows of stoker, and it works without a server too.
"""

import argparse
import os

import joblib
import numpy as np
import pandas as pd
from sklearn.linear_model import SGDRegressor
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import stoker

MODEL_NAME = "model.joblib"


def get_data(path: str) -> pd.DataFrame:
    return pd.read_csv(path)


def compute_distance(df: pd.DataFrame) -> np.ndarray:
    """The great-circle distance of each ride, in kilometres."""
    places = df[["pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude"]]
    lat_1, lon_1, lat_2, lon_2 = np.radians(places.to_numpy()).T
    a = np.sin((lat_2 - lat_1) / 2) ** 2 + np.cos(lat_1) * np.cos(lat_2) * np.sin((lon_2 - lon_1) / 2) ** 2
    return 6371 * 2 * np.arcsin(np.sqrt(a))


def preprocess(df: pd.DataFrame) -> tuple:
    """Feature and fare, split for training and testing."""
    features = compute_distance(df).reshape(-1, 1)
    return train_test_split(features, df["fare_amount"].to_numpy(), test_size=0.2, random_state=0)


def train_model(data: tuple, *, epochs: int, learning_rate: float):
    """The trained model; every epoch's error is reported."""
    ctx = stoker.init()
    x_train, x_test, y_train, y_test = data
    scale = StandardScaler().fit(x_train)
    fit = SGDRegressor(learning_rate="constant", eta0=learning_rate, random_state=0)
    for epoch in range(1, epochs + 1):
        fit.partial_fit(scale.transform(x_train), y_train)
        rmse = float(np.sqrt(np.mean((fit.predict(scale.transform(x_test)) - y_test) ** 2)))
        print(f"epoch {epoch}: rmse {rmse:.3f}", flush=True)
        ctx.report(epoch, rmse=rmse)
    return make_pipeline(scale, fit)


def save_model(model, job_dir: str) -> str:
    os.makedirs(job_dir, exist_ok=True)
    path = os.path.join(job_dir, MODEL_NAME)
    joblib.dump(model, path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, help="a CSV file of rides")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=0.0002)
    parser.add_argument("--job-dir", default=".", help="where the model goes")
    args = parser.parse_args()

    data = preprocess(get_data(args.data))
    model = train_model(data, epochs=args.epochs, learning_rate=args.learning_rate)
    print("saved", save_model(model, args.job_dir))


if __name__ == "__main__":
    main()
