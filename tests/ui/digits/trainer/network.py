"""A network of one hidden layer, and the three ways to improve it."""

import numpy as np


class Network:
    """Pixels in, a probability for each of ten digits out."""

    def __init__(self, hidden, dropout, rng):
        self.dropout, self.rng = dropout, rng
        self.weights = [
            rng.normal(0, 0.2, (64, hidden)),
            np.zeros(hidden),
            rng.normal(0, 0.2, (hidden, 10)),
            np.zeros(10),
        ]

    def probabilities(self, pixels, keep=None):
        w1, b1, w2, b2 = self.weights
        hidden = np.maximum(pixels @ w1 + b1, 0)
        if keep is not None:
            hidden = hidden * keep
        scores = hidden @ w2 + b2
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, scores / scores.sum(axis=1, keepdims=True)

    def loss(self, pixels, labels):
        _, guess = self.probabilities(pixels)
        right = guess[np.arange(len(labels)), labels]
        return float(-np.log(right + 1e-9).mean()), float((guess.argmax(axis=1) == labels).mean())

    def gradients(self, pixels, labels):
        keep = (self.rng.random((len(labels), len(self.weights[1]))) >= self.dropout) / (1 - self.dropout)
        hidden, guess = self.probabilities(pixels, keep)
        guess[np.arange(len(labels)), labels] -= 1
        guess /= len(labels)
        back = (guess @ self.weights[2].T) * (hidden > 0) * keep
        return [pixels.T @ back, back.sum(axis=0), hidden.T @ guess, guess.sum(axis=0)]


class Optimizer:
    """`sgd`, `momentum` or `adam`."""

    def __init__(self, name, lr, weights):
        self.name, self.lr, self.step = name, lr, 0
        self.first = [np.zeros_like(one) for one in weights]
        self.second = [np.zeros_like(one) for one in weights]

    def improve(self, weights, gradients):
        self.step += 1
        for weight, gradient, first, second in zip(weights, gradients, self.first, self.second, strict=True):
            if self.name == "sgd":
                weight -= self.lr * gradient
                continue
            first *= 0.9
            first += (0.1 if self.name == "adam" else 1.0) * gradient
            if self.name == "momentum":
                weight -= self.lr * first
                continue
            second *= 0.999
            second += 0.001 * gradient**2
            weight -= self.lr * (first / (1 - 0.9**self.step)) / (np.sqrt(second / (1 - 0.999**self.step)) + 1e-8)
