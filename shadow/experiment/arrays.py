"""Tensors and arrays of torch and numpy, by duck typing: neither is imported here."""

from __future__ import annotations

import os
import sys
from typing import Any


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(type(value), torch.Tensor)


def is_ndarray(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), numpy.ndarray)


def memory_of(value: Any) -> tuple[str, int] | None:
    """The same for all views of one memory; None of a tensor that has none."""
    if is_tensor(value):
        torch = sys.modules["torch"]
        if value.layout is not torch.strided or not value.numel():
            return None
        return str(value.device), value.untyped_storage().data_ptr()
    while is_ndarray(value.base):
        value = value.base
    return "numpy", id(value)


def is_scalar(value: Any) -> bool:
    """A numpy scalar or a tensor without dimensions: a number in an array's clothes."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(type(value), numpy.generic):
        return True
    return is_tensor(value) and value.dim() == 0


def is_floating(value: Any) -> bool:
    if is_tensor(value):
        return bool(value.is_floating_point() or value.is_complex())
    return is_ndarray(value) and value.dtype.kind in "fc"


def size_in_bytes(value: Any) -> int:
    return int(value.numel() * value.element_size()) if is_tensor(value) else int(value.nbytes)


def cloned(value: Any) -> Any:
    """A copy that shares nothing with `value`, in memory or in autograd."""
    if is_tensor(value):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return value.copy()


def overwrite(target: Any, source: Any) -> bool:
    """Gives `target` the content of `source`; False where shapes or types do not allow it."""
    if type(target) is not type(source) or target.shape != source.shape or target.dtype != source.dtype:
        return False
    if is_tensor(target):
        target.detach().copy_(source)
    else:
        target[...] = source
    return True


def array_text(value: Any) -> str:
    """`Tensor(int64[2, 3])`, the numbers too of short vectors on the CPU; "" of anything else."""
    if not (is_tensor(value) or is_ndarray(value)):
        return ""
    numbers = ""
    if len(value.shape) <= 1 and value.size < 9 if is_ndarray(value) else _shown(value):
        numbers = f" {value.tolist()}"
    name = type(value).__name__
    return f"{name}({str(value.dtype).removeprefix('torch.')}{list(value.shape)}{numbers})"


def _shown(tensor: Any) -> bool:
    return bool(tensor.dim() <= 1 and tensor.numel() < 9 and tensor.device.type == "cpu")


def header(value: Any) -> str:
    """What must agree before contents can be compared: kind, dtype, shape, device type."""
    device = f" on {value.device.type}" if is_tensor(value) else ""
    kind = "tensor" if is_tensor(value) else "array"
    return f"{kind} {str(value.dtype).removeprefix('torch.')}{list(value.shape)}{device}"


def same(one: Any, other: Any) -> bool:
    """Headers and bits."""
    return header(one) == header(other) and first_unequal(one, other) is None


def first_unequal(control: Any, candidate: Any) -> tuple[int, ...] | None:
    """Index of the first element whose bits differ, None when all agree; the headers must agree.

    Bits, not numbers: equal NaNs are equal, 0.0 and -0.0 are not.
    """
    if is_tensor(control):
        return _first_unequal_tensor(control, candidate)
    numpy = sys.modules["numpy"]
    if control.dtype == object:
        equal = numpy.array([a is b or a == b for a, b in zip(control.flat, candidate.flat, strict=True)])
        flat = ~equal.astype(bool)
    else:
        ours = numpy.frombuffer(control.tobytes(), dtype=numpy.uint8)
        theirs = numpy.frombuffer(candidate.tobytes(), dtype=numpy.uint8)
        if numpy.array_equal(ours, theirs):
            return None
        flat = (ours != theirs).reshape(-1, control.dtype.itemsize).any(axis=1)
    if not flat.any():
        return None
    return tuple(int(i) for i in numpy.unravel_index(int(flat.argmax()), control.shape))


def _first_unequal_tensor(control: Any, candidate: Any) -> tuple[int, ...] | None:
    flat = _first_on_device(control, candidate)
    if flat is None:
        flat = _first_by_torch(control, candidate)
    if flat < 0:
        return None
    index = []
    for size in reversed(control.shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))


def _first_on_device(control: Any, candidate: Any) -> int | None:
    """-1 where no bit differs; None: it is for torch to tell. The kernel, too, is loaded when first needed."""
    if control.device != candidate.device or (
        control.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1"
    ):
        return None
    from shadow.device import first_flat

    return first_flat(control, candidate)


def _first_by_torch(control: Any, candidate: Any) -> int:
    torch = sys.modules["torch"]
    ours, theirs = _words(control), _words(candidate)
    if torch.equal(ours, theirs):
        return -1
    unequal = (ours != theirs).reshape(control.numel(), -1).any(dim=1)
    return int(unequal.to(torch.uint8).argmax())


def _words(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    dense = tensor.detach()
    if dense.layout is not torch.strided:
        dense = dense.to_dense()
    if dense.is_complex():
        dense = torch.view_as_real(dense.resolve_conj())
    flat = dense.contiguous().reshape(-1)
    if flat.is_floating_point():
        return flat.view(
            {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
        )
    return flat
