"""Autocast, loss scaling, compilation, fused optimizers."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from stoker import pytorch
from stoker.errors import UsageError
from stoker.pytorch import Batch
from tests.pytorch.trials import OneVar


class Seen(nn.Module):
    """A layer that remembers what type it computed in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = self.layer(x)
        self.computed_in = output.dtype
        return output


class Typed(OneVar):
    def __init__(self, context: Any, **wrap: Any) -> None:
        self.context = context
        self.callbacks = {}
        self.weights = []
        self.model = context.wrap_model(Seen(), **wrap)
        self.opt = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        if context.scaler is not None:
            context.scaler.load_state_dict({**context.scaler.state_dict(), "scale": 8.0})  # 65536 would overflow first

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        data, labels = batch
        output = self.model(data)
        self.given_back = output.dtype
        loss = nn.functional.mse_loss(output, labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.opt, clip_grads=lambda params: nn.utils.clip_grad_norm_(params, 100.0))
        self.weights.append(self.model.layer.weight.item())
        return {"loss": loss}


EXPECTED = [1 - 0.8**n for n in range(1, 6)]


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_models_compute_in_the_precision_and_give_float32_back(precision: str, dtype: torch.dtype) -> None:
    context = pytorch.init(precision=precision)
    trial = context.build_trial(Typed)

    context.fit(trial, max_length=Batch(5))

    assert trial.model.computed_in is dtype
    assert trial.given_back is torch.float32
    assert trial.model.layer.weight.dtype is torch.float32
    assert trial.weights == pytest.approx(EXPECTED, rel=0.02)


def test_fp16_scales_losses_and_unscales_gradients_before_clipping() -> None:
    context = pytorch.init(precision="fp16")
    norms = []

    class Clipped(Typed):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.context.backward(loss)
            self.context.step_optimizer(
                self.opt, clip_grads=lambda params: norms.append(nn.utils.clip_grad_norm_(params, 100.0).item())
            )
            return loss

    context.fit(context.build_trial(Clipped), max_length=Batch(2))

    assert norms == pytest.approx([2.0, 1.6], rel=0.01)


def test_fp16_backs_off_when_gradients_overflow_and_skips_the_step() -> None:
    class Overflowing(Typed):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.context.backward(loss * (float("inf") if batch_idx == 1 else 1.0))
            self.context.step_optimizer(self.opt)
            self.weights.append(self.model.layer.weight.item())
            self.scales = [*getattr(self, "scales", []), self.context.scaler.get_scale()]
            return loss.detach()

    context = pytorch.init(precision="fp16")
    trial = context.build_trial(Overflowing)

    context.fit(trial, max_length=Batch(3))

    assert trial.weights == pytest.approx([EXPECTED[0], EXPECTED[0], EXPECTED[1]], rel=0.01)
    assert trial.scales == [8.0, 8.0, 4.0]


def test_use_amp_is_the_old_name_of_fp16_and_comes_first() -> None:
    class Old(Typed):
        def __init__(self, context: Any) -> None:
            context.experimental.use_amp()
            super().__init__(context)

    context = pytorch.init()
    trial = context.build_trial(Old)

    context.fit(trial, max_length=Batch(1))

    assert trial.model.computed_in is torch.float16
    with pytest.raises(UsageError, match="use_amp comes before wrap_model"):
        trial.context.experimental.use_amp()


def test_a_scaler_of_the_users_own_is_theirs_to_use_and_is_kept(run_dir: Any) -> None:
    class Own(Typed):
        def __init__(self, context: Any) -> None:
            self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1))
            super().__init__(context)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.context.backward(self.scaler.scale(loss))
            self.scaler.unscale_(self.opt)
            self.context.step_optimizer(self.opt, scaler=self.scaler)
            self.scaler.update()
            self.weights.append(self.model.layer.weight.item())
            return loss

    run_dir()
    context = pytorch.init()
    context.fit(context.build_trial(Own), max_length=Batch(3))
    context_after = pytorch.init()
    trial = context_after.build_trial(Own)
    context_after.fit(trial, max_length=Batch(5), latest_checkpoint=context.run.latest_checkpoint)

    assert trial.scaler.get_scale() == 8.0 * 2**5
    assert trial.weights == pytest.approx(EXPECTED[3:], rel=1e-4)
    with pytest.raises(UsageError, match="scales losses by itself"):
        pytorch.init(precision="fp16").wrap_scaler(trial.scaler)


def test_a_copy_of_a_wrapped_model_runs_its_own_weights() -> None:
    model = pytorch.init(precision="bf16").wrap_model(Seen())

    other = copy.deepcopy(model)
    nn.init.ones_(other.layer.weight)

    assert model(torch.ones(1, 1)).item() == 0.0
    assert other(torch.ones(1, 1)).item() == 1.0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_compiled_models_learn_the_same_and_are_kept_under_the_same_names(precision: str) -> None:
    context = pytorch.init(precision=precision, compile={"backend": "eager"})
    trial = context.build_trial(Typed)

    context.fit(trial, max_length=Batch(5))

    assert trial.weights == pytest.approx(EXPECTED, rel=0.02)
    assert list(trial.model.state_dict()) == ["layer.weight"]
    assert trial.model._compiled_call_impl is not None


def optimizer_of(make: Any, wrap: dict[str, Any] | None = None, model: nn.Module | None = None) -> Any:
    context = pytorch.init()
    model = context.wrap_model(model or nn.Linear(2, 2))
    return context.wrap_optimizer(make(model.parameters()), **(wrap or {})).param_groups[0].get("fused")


def test_optimizers_are_fused_unless_the_user_chose() -> None:
    assert optimizer_of(torch.optim.Adam) is True
    assert optimizer_of(torch.optim.AdamW) is True
    assert optimizer_of(lambda params: torch.optim.SGD(params, lr=1, momentum=0.9)) is True
    assert optimizer_of(lambda params: torch.optim.Adam(params, fused=False)) is False
    assert optimizer_of(lambda params: torch.optim.Adam(params, foreach=True)) is None
    assert optimizer_of(lambda params: torch.optim.Adam(params, lr=torch.tensor(1.0))) is None
    assert optimizer_of(torch.optim.RMSprop) is None
    assert optimizer_of(torch.optim.Adam, {"fused": False}) is None


def test_models_with_sparse_gradients_are_not_fused() -> None:
    sparse = nn.Sequential(nn.Embedding(3, 2, sparse=True))

    assert optimizer_of(lambda params: torch.optim.SGD(params, lr=1), model=sparse) is None
