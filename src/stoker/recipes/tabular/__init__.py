"""Train on tables: say what the columns are, and features, model, evaluation and a bundle that predicts are made."""

from stoker.recipes.tabular.data import Table, load
from stoker.recipes.tabular.features import FeatureLayer, Features, Inputs, fit
from stoker.recipes.tabular.ftrl import FTRL
from stoker.recipes.tabular.metadata import Categorical, Date, GeoPoint, Metadata, Numeric
from stoker.recipes.tabular.models import (
    MODELS,
    DNNLinearCombinedClassifier,
    DNNLinearCombinedRegressor,
    Embeddings,
    Wide,
    mlp,
    own_model,
)
from stoker.recipes.tabular.settings import Settings
from stoker.recipes.tabular.training import Result, train

__all__ = [
    "FTRL",
    "MODELS",
    "Categorical",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedRegressor",
    "Date",
    "Embeddings",
    "FeatureLayer",
    "Features",
    "GeoPoint",
    "Inputs",
    "Metadata",
    "Numeric",
    "Result",
    "Settings",
    "Table",
    "Wide",
    "fit",
    "load",
    "mlp",
    "own_model",
    "train",
]
