"""Tensors in a file in the safetensors format: a JSON header, then bytes. Nothing in it can run.

Written here rather than with the library of that name so that the bytes can be written by a thread without holding
Python's lock, and read without a copy; the files are the same.
"""

import ctypes
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from stoker.errors import StokerError

_NAMES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_ALIGNMENT = 64  # bytes, as torch's own memory
_LONGEST_HEADER = 100_000_000  # the format's own limit


def can_hold(tensor: torch.Tensor) -> bool:
    """Whether the format knows this kind of tensor (not sparse, quantized or of an exotic type)."""
    return tensor.dtype in _NAMES and tensor.layout is torch.strided and not tensor.is_quantized


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> int:
    """Write CPU tensors, make sure they are on disk, and return the size."""
    # Wide types first: the format's rule, so that every tensor starts at a multiple of its item size.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    with path.open("wb", buffering=0) as file:
        _write_all(file.fileno(), len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            _write_all(file.fileno(), _bytes_of(tensor))
        os.fsync(file.fileno())
    return 8 + len(text) + end


def read_tensors(path: Path, *, mapped: bool = False) -> dict[str, torch.Tensor]:
    """The tensors of a file, on the CPU. Changing one does not change the file.

    `mapped`: its pages are read when they are touched, which is best for what is copied elsewhere soon. For what stays,
    the file would have to stay too.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEADER):
            raise StokerError(f"{path} is not a safetensors file, or was cut short: its header does not fit in it.")
        header = _parse(path, file.read(length))
        if mapped:
            data = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)[8 + length :]
        else:
            data = torch.empty(size - 8 - length, dtype=torch.uint8)
            file.readinto(_bytes_of(data))
    return {name: _view(path, name, entry, data) for name, entry in header.items()}


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
    except (ValueError, AttributeError) as error:
        raise StokerError(f"{path} is not a safetensors file: its header is not JSON.") from error
    return dict(header)


def _view(path: Path, name: str, entry: Any, data: torch.Tensor) -> torch.Tensor:
    try:
        dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if not 0 <= begin <= end <= data.numel():
            raise ValueError("out of the file")
        part = data[begin:end]
        if part.data_ptr() % _ALIGNMENT:
            part = part.clone()  # torch.set_rng_state, for one, crashes on memory that torch did not lay out
        return part.view(dtype).view(shape)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StokerError(f"{path}: the entry of tensor {name!r} is damaged ({entry}).") from error


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """A tensor's bytes, without a copy and without numpy."""
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    buffer = (ctypes.c_char * flat.numel()).from_address(flat.data_ptr())
    vars(buffer)["owner"] = flat  # the memory lives as long as the view
    return memoryview(buffer).cast("B")


def _write_all(descriptor: int, data: "bytes | memoryview") -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[: 2**30]) :]  # one write() takes at most 2 GiB on Linux
