"""Handwritten digits of 8 by 8 pixels, cut into what is learned from and what is only looked at."""

from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "digits.npz"


def load(validation: float = 0.25, seed: int = 0):
    digits = np.load(FILE)
    order = np.random.default_rng(seed).permutation(len(digits["label"]))
    pixels, labels = digits["pixels"][order] / 16.0, digits["label"][order]
    cut = int(len(order) * validation)
    return (pixels[cut:], labels[cut:]), (pixels[:cut], labels[:cut])


def batches(pixels, labels, size, rng):
    order = rng.permutation(len(labels))
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        yield pixels[chosen], labels[chosen]
