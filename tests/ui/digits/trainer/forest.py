"""The same digits, read by a forest of scikit-learn's; a model to predict with."""

from sklearn.ensemble import RandomForestClassifier

import stoker
from trainer.data import load

with stoker.init() as ctx:
    (pixels, labels), unseen = load()
    forest = RandomForestClassifier(40, random_state=0).fit(pixels, labels)
    accuracy = forest.score(*unseen)
    ctx.report(1, "validation", accuracy=accuracy)
    ctx.save_model(forest, metrics={"accuracy": accuracy}, example=pixels[:1])
    print(f"INFO accuracy {accuracy:.3f}")
