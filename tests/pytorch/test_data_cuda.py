"""Batches on a GPU: the same ones as on the CPU, whichever way they get there."""

import pytest
import torch
from torch.utils import data as torch_data

from stoker.pytorch.data import feed as data_feed
from stoker.pytorch.data.loader import DataLoader, open_training, open_validation

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

TENSORS = torch_data.TensorDataset(torch.randn(5000, 16), torch.arange(5000))


class Rows(torch_data.Dataset):
    """The same, one by one."""

    def __len__(self) -> int:
        return len(TENSORS)

    def __getitem__(self, index: int):
        row, number = TENSORS[index]
        return {"row": row, "both": (number, [number])}


def flat(batch) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        return [batch]
    values = batch.values() if isinstance(batch, dict) else batch
    return [tensor for value in values for tensor in flat(value)]


WAYS = {
    "tensors on the GPU": (TENSORS, {}, 0.25),
    "tensors too large for the GPU": (TENSORS, {}, 0.0),
    "inline": (Rows(), {}, 0.25),
    "inline, pinned": (Rows(), {"pin_memory": True}, 0.25),
    "workers": (Rows(), {"num_workers": 2}, 0.25),
    "workers, pinned": (Rows(), {"num_workers": 2, "pin_memory": True}, 0.25),
    "iterable": (None, {}, 0.25),
}


def loader_for(dataset, options, shuffle=True):
    if dataset is None:
        return [torch.full((64, 16), float(i)) for i in range(90)]
    return DataLoader(dataset, batch_size=64, shuffle=shuffle, **options)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 3])
def test_a_gpu_gets_the_batches_that_a_cpu_gets_and_goes_on_in_the_same_place(way, size, monkeypatch):
    dataset, options, share = WAYS[way]
    monkeypatch.setattr(data_feed, "_DEVICE_SHARE", share)
    where = {"seed": 1, "rank": size - 1, "size": size}
    there = open_training(loader_for(dataset, options), device="cuda", **where)
    here = open_training(loader_for(dataset, {}), device="cpu", **where)

    work = torch.randn(2048, 2048, device="cuda")
    for step in range(100):
        batch, expected = flat(next(there)), flat(next(here))
        for _ in range(3):
            work = (work @ work).clamp(-1, 1)  # keep the GPU behind, so that a copy that is not waited for shows
        assert all(tensor.device == torch.device("cuda", 0) for tensor in batch)
        assert all(torch.equal(a.cpu(), b) for a, b in zip(batch, expected, strict=True)), step
        if step == 40:
            assert there.state_dict() == here.state_dict()
            there.close()
            there = open_training(loader_for(dataset, options), device="cuda", state=here.state_dict(), **where)
    there.close()


@pytest.mark.parametrize("way", ["tensors on the GPU", "tensors too large for the GPU", "inline"])
def test_memory_is_not_reused_while_the_gpu_still_reads_it(way, monkeypatch):
    """Many batches are summed late, on a GPU kept busy; had a copy overwritten one of them, its sum would be off."""
    dataset, options, share = WAYS[way]
    monkeypatch.setattr(data_feed, "_DEVICE_SHARE", share)
    stream = open_training(loader_for(dataset, options), seed=1, rank=0, size=1, device="cuda")
    plain = open_training(loader_for(dataset, {}), seed=1, rank=0, size=1, device="cpu")
    work = torch.randn(4096, 4096, device="cuda")

    sums = []
    for _ in range(150):
        batch = flat(next(stream))
        work = (work @ work).clamp(-1, 1)
        sums.append(batch[0].double().sum() + work[0, 0] * 0)
        del batch

    expected = [float(flat(next(plain))[0].double().sum()) for _ in range(150)]
    assert torch.stack(sums).tolist() == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_tensors_on_the_gpu_are_given_without_waiting_for_it():
    stream = open_training(loader_for(TENSORS, {}), seed=1, rank=0, size=1, device="cuda")
    next(stream)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(200):  # over epochs
            next(stream)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_validation_on_a_gpu_sees_every_sample_once():
    loader = loader_for(TENSORS, {}, shuffle=False)
    seen = [
        batch[1].cpu() for rank in range(3) for batch, _ in open_validation(loader, rank=rank, size=3, device="cuda")
    ]

    assert sorted(torch.cat(seen).tolist()) == list(range(5000))
