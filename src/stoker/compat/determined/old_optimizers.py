"""`RMSprop(lr=1e-4, decay=1e-6)`: Keras 2.11 and later refuse the one and leave the other aside; here both count."""

from typing import Any

from stoker.compat.determined.keras_callbacks import IS_KERAS_2

_OLD = ("lr", "decay")


def take_old_arguments() -> None:
    """Where an optimizer is given one of them, it is the one of before, which Keras 2 still has beside the new."""
    if not IS_KERAS_2:
        return
    from tensorflow.keras import optimizers  # noqa: PLC0415 - loaded by Keras 2, and not there with Keras 3

    before = getattr(optimizers, "legacy", None)
    for name in ("Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD"):
        own, old = getattr(optimizers, name, None), getattr(before, name, None)
        if own is not None and old is not None and "__new__" not in vars(own) and own is not old:
            own.__new__ = _choosing(own, old)


def _choosing(own: type[Any], old: type[Any]) -> Any:
    def new(cls: type[Any], *args: Any, **settings: Any) -> Any:
        if cls is own and any(name in settings for name in _OLD):
            return old(*args, **settings)
        return object.__new__(cls)

    return new
