"""Let torchvision be imported where its compiled part cannot be: built for GPUs, beside a torch for CPUs.

It declares the meaning of two operators that only the compiled part defines, and fails there. Once they are defined,
all the rest works: `nms` is done here, for detectors need it, `roi_align` by torchvision's own Python, and of the
others `torchvision.ops` says for itself what it lacks. Runs on any Python from 3.7 on.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401 - in comments, for Python 3.7

_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class Finder:
    """Finds no module, but is asked before torchvision's declarations are loaded, and not before."""

    def find_spec(self, name, path=None, target=None):
        # type: (str, object, object) -> None
        if name == "torchvision._meta_registrations":
            _define()


def _define():
    # type: () -> None
    torch, extension = sys.modules.get("torch"), sys.modules.get("torchvision.extension")
    if torch is None or extension is None or extension._has_ops() or not hasattr(torch.library, "define"):
        return
    for name in _OPERATORS:
        torch.library.define("torchvision::" + name, _SCHEMA)
    torch.library.impl("torchvision::nms", "CPU")(_nms)
    complain = getattr(extension, "_assert_has_ops", None)  # which its earliest releases have not

    def complain_unless_done_here():
        # type: () -> None
        if complain is not None and sys._getframe(1).f_code.co_name != "nms":
            complain()

    vars(extension)["_assert_has_ops"] = complain_unless_done_here


def _nms(boxes, scores, iou_threshold):
    # type: (Any, Any, float) -> Any
    """The boxes that overlap none of a higher score by more than that, the highest score first."""
    torch = sys.modules["torch"]
    left, top, right, bottom = boxes.float().unbind(1)
    areas = (right - left) * (bottom - top)
    order = scores.argsort(descending=True, stable=True)
    kept = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        width = (torch.minimum(right[best], right[order]) - torch.maximum(left[best], left[order])).clamp(min=0)
        height = (torch.minimum(bottom[best], bottom[order]) - torch.maximum(top[best], top[order])).clamp(min=0)
        common = width * height
        # Not `<=`: boxes without any area have no overlap, which is NaN, and stay.
        order = order[~(common / (areas[best] + areas[order] - common) > iou_threshold)]
    return torch.stack(kept) if kept else order


sys.meta_path.insert(0, Finder())
