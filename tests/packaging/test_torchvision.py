"""What torchvision lacks beside a torch for CPUs; it is a small one of our own, with torchvision's ways."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stoker.packaging import job_modules

FILES = {
    "torchvision/__init__.py": "from torchvision import extension, _meta_registrations, ops\n",
    "torchvision/extension.py": """
        def _has_ops():
            return False
        def _assert_has_ops():
            raise RuntimeError("no custom ops")
    """,
    "torchvision/_meta_registrations.py": """
        import torch
        torch.library.register_fake("torchvision::nms", lambda dets, scores, iou_threshold: None)
    """,
    "torchvision/ops.py": """
        import torch
        from torchvision.extension import _assert_has_ops
        def nms(boxes, scores, iou_threshold):
            _assert_has_ops()
            return torch.ops.torchvision.nms(boxes, scores, iou_threshold)
        def deform_conv2d():
            _assert_has_ops()
    """,
}
SCRIPT = """
    import stoker_torchvision, torch, torchvision
    boxes = torch.tensor([[0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30], [5, 5, 5, 5], [0, 0, 10, 4.0]])
    print(torchvision.ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1, 0.3, 0.2]), 0.5).tolist())
    print(torchvision.ops.nms(boxes[:0], torch.zeros(0), 0.5).tolist())
    torchvision.ops.deform_conv2d()
"""


@pytest.mark.slow
def test_nms_is_done_without_the_compiled_part_and_the_rest_says_what_it_lacks(tmp_path: Path) -> None:
    for name, text in {**FILES, "run.py": SCRIPT}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    path = {"PYTHONPATH": f"{tmp_path}:{next(iter(job_modules.__path__))}"}

    ran = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, env=path, capture_output=True, text=True)

    assert ran.stdout.splitlines() == ["[1, 3, 4, 2]", "[]"], ran.stderr
    assert "no custom ops" in ran.stderr
