"""Make a small set of taxi rides: `python rides.py rides.csv [ROWS]`."""

import csv
import math
import random
import sys


def write_rides(path: str, *, rows: int = 5000) -> None:
    chance = random.Random(0)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude", "fare_amount"])
        for _ in range(rows):
            lon_1, lat_1 = chance.gauss(-73.98, 0.03), chance.gauss(40.75, 0.03)
            lon_2, lat_2 = chance.gauss(-73.98, 0.03), chance.gauss(40.75, 0.03)
            km = math.hypot((lat_2 - lat_1) * 111.2, (lon_2 - lon_1) * 84.2)
            fare = max(2.5, 2.5 + 2.1 * km + chance.gauss(0, 0.8))
            writer.writerow([f"{value:.5f}" for value in (lon_1, lat_1, lon_2, lat_2)] + [f"{fare:.2f}"])


if __name__ == "__main__":
    write_rides(sys.argv[1], rows=int(sys.argv[2]) if len(sys.argv) > 2 else 5000)
