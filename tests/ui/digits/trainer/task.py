"""Learn to read digits; say after each epoch how it goes."""

import argparse
import os
import time

import numpy as np

import stoker
from trainer.data import batches, load
from trainer.network import Network, Optimizer


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--lr", type=float, default=0.01)
    flags.add_argument("--hidden", type=int, default=32)
    flags.add_argument("--dropout", type=float, default=0.1)
    flags.add_argument("--batch_size", type=int, default=32)
    flags.add_argument("--optimizer", default="adam", choices=["sgd", "momentum", "adam"])
    flags.add_argument("--epochs", type=int, default=27)
    flags.add_argument("--pause-s", type=float, default=0.0, help="rest after each epoch")
    flags.add_argument("--warm-start", help="begin with these weights")
    given = flags.parse_args()
    with stoker.init() as ctx:
        train(ctx, given)


def train(ctx, given):
    rng = np.random.default_rng(7)
    learned, unseen = load()
    print(f"INFO {len(learned[1])} digits to learn from, {len(unseen[1])} to look at")
    network = Network(given.hidden, given.dropout, rng)
    if given.warm_start:
        network.weights = list(np.load(given.warm_start).values())
    optimizer = Optimizer(given.optimizer, given.lr, network.weights)
    for epoch in range(1, given.epochs + 1):
        for pixels, labels in batches(*learned, given.batch_size, rng):
            optimizer.improve(network.weights, network.gradients(pixels, labels))
        loss, accuracy = network.loss(*learned)
        val_loss, val_accuracy = network.loss(*unseen)
        ctx.report(epoch, loss=loss, accuracy=accuracy)
        ctx.report(epoch, "validation", loss=val_loss, accuracy=val_accuracy)
        ctx.progress(epoch / given.epochs)
        print(
            f"INFO epoch {epoch}: loss {loss:.4f}, validation loss {val_loss:.4f}, accuracy {val_accuracy:.3f}",
            flush=True,
        )
        if val_loss > 1.4 * loss + 0.05 and epoch % 5 == 0:
            print(f"WARNING validation loss is {val_loss / loss:.1f} times the training loss", flush=True)
        if epoch % 9 == 0 or epoch == given.epochs or ctx.should_stop():
            save(ctx, network, epoch, val_loss)
        if ctx.should_stop():
            return
        time.sleep(given.pause_s)


def save(ctx, network, epoch, val_loss):
    folder = os.path.join(ctx.checkpoint_dir, f"epoch-{epoch}")
    os.makedirs(folder, exist_ok=True)
    np.savez(os.path.join(folder, "weights.npz"), *network.weights)
    ctx.save_checkpoint(folder, epoch, loss=val_loss)


if __name__ == "__main__":
    main()
