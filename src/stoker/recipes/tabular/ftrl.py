"""FTRL-Proximal: the optimizer of wide, sparse linear models.

The per-coordinate update of McMahan et al., "Ad Click Prediction: a View from the Trenches" (KDD 2013), algorithm 1:

    s = (sqrt(n + g²) - sqrt(n)) / a;   z += g - s w;   n += g²
    w = 0 if |z| <= l1, else -(z - sign(z) l1) / ((b + sqrt(n)) / a + l2)

A weight whose gradient is 0 stays as it is, so rows of a sparse gradient are all that need be touched.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from stoker.errors import UsageError


class FTRL(Optimizer):
    """`lr` is the paper's alpha. Weights should begin at 0: the rule makes them of `z` alone."""

    def __init__(self, params: Any, lr: float = 0.1, *, beta: float = 1.0, l1: float = 0.0, l2: float = 0.0) -> None:
        if not lr > 0 or min(beta, l1, l2) < 0:
            raise UsageError(f"FTRL(lr={lr}, beta={beta}, l1={l1}, l2={l2}): lr must be above 0, the others not below.")
        super().__init__(params, {"lr": lr, "beta": beta, "l1": l1, "l2": l2})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    state = self.state[param]
                    if not state:
                        state["z"], state["n"] = torch.zeros_like(param), torch.zeros_like(param)
                    _update(param, state["z"], state["n"], group)
        return loss


def _update(param: torch.Tensor, z: torch.Tensor, n: torch.Tensor, group: dict[str, Any]) -> None:
    gradient = param.grad
    assert gradient is not None  # the caller looked
    if not gradient.is_sparse:
        _follow(param, z, n, gradient, group)
        return
    gradient = gradient.coalesce()
    rows = gradient.indices()[0]
    parts = param[rows], z[rows], n[rows]
    _follow(*parts, gradient.values(), group)
    for whole, part in zip((param, z, n), parts, strict=True):
        whole[rows] = part


def _follow(w: torch.Tensor, z: torch.Tensor, n: torch.Tensor, g: torch.Tensor, group: dict[str, Any]) -> None:
    root = n.sqrt()
    n.addcmul_(g, g)
    new_root = n.sqrt()
    z.add_(g).addcmul_(new_root - root, w, value=-1 / group["lr"])
    shrunk = z.sign().mul_(group["l1"]).sub_(z) if group["l1"] else -z
    found = shrunk / ((group["beta"] + new_root) / group["lr"] + group["l2"])
    # Where nothing was ever learnt the rule has nothing to say: the weight stays what it is.
    w.copy_(torch.where(n > 0, torch.where(z.abs() <= group["l1"], 0.0, found), w))
