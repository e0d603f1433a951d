"""Hugging Face's Trainer, tied to a run.

callback = StokerCallback()
trainer = Trainer(model, args, train_dataset=…, callbacks=[callback])
trainer.train(resume_from_checkpoint=callback.latest_checkpoint)
"""

import os
from typing import Any

from stoker.context import Context
from stoker.integrations.link import RunLink

try:
    import transformers
except ImportError as error:
    raise ImportError(
        "stoker.integrations.transformers needs Hugging Face's library: `pip install transformers accelerate`."
    ) from error


class StokerCallback(transformers.TrainerCallback):  # type: ignore[misc]
    """Reports what the Trainer logs, keeps what it saves, and saves and ends when the run is told to stop.

    How often it logs and saves is the Trainer's own affair (`logging_steps`, `save_steps`, …). The newest `keep`
    checkpoints stay with the run. After a stop the process ends when training has; with `exit_on_stop=False`,
    `train()` returns instead, and `callback.stopped` says why.
    """

    def __init__(self, context: Context | None = None, *, keep: int = 2, exit_on_stop: bool = True) -> None:
        self._link = RunLink(context, keep=keep)
        self._exit_on_stop = exit_on_stop

    @property
    def latest_checkpoint(self) -> str | None:
        """Pass it to `train(resume_from_checkpoint=…)`: None at the first start, a folder at a restart."""
        return self._link.context.latest_checkpoint

    @property
    def stopped(self) -> bool:
        return self._link.stopped

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._link.begin()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self._link.report(state.global_step, logs or {})
        if state.max_steps > 0:
            self._link.progress(state.global_step / state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self._link.should_stop(state.global_step):
            control.should_save = True
            control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        _wait_for_all(args)  # each rank adds its own random state to the folder
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        self._link.keep(folder, state.global_step, framework="transformers")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._link.stopped and self._exit_on_stop:
            self._link.leave()


def _wait_for_all(args: Any) -> None:
    if args.world_size > 1:
        args.distributed_state.wait_for_everyone()
