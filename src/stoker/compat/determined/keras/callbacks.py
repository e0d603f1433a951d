"""`determined.keras.callbacks`: the older dialect's, which are Keras's own here."""

from stoker.compat.determined.keras_callbacks import Callback, EarlyStopping, ReduceLROnPlateau, TensorBoard

__all__ = ["Callback", "EarlyStopping", "ReduceLROnPlateau", "TensorBoard"]
