# SPDX-License-Identifier: Apache-2.0
"""Sections in Python on the fake CUDA devices, whose memory is the CPU's: arrays of a device are read after the stream's
work, which the fake does only when it is waited for."""

import contextlib
import ctypes
import threading
import types

import pure_head

CPU, CUDA = 1, 2  # kinds of devices in DLPack
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Place(ctypes.Structure):
    """The beginning of a DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


def place_in(capsule):
    return Place.from_address(_pointer(capsule, b"dltensor"))


def bytes_of(array, size):
    """Returns the memory of an array on a device: `size` bytes."""
    capsule = array.__dlpack__()
    place = place_in(capsule)
    assert array.__dlpack_device__() == (CUDA, place.number)
    return memoryview((ctypes.c_ubyte * size).from_address(place.data)).cast("B")


class PureReplica(pure_head.Replica):
    """The output layer without a framework, for a single length of samples."""

    def place(self, device, stream, wait):
        assert stream != 0
        self.wait = wait

    def bind(self, values, gradients):
        size = 4 * self.width * self.vocabulary
        super().bind(*({name: bytes_of(array, size) for name, array in arrays.items()} for arrays in (values, gradients)))

    def forward(self, number, inputs, batch, keep):
        self.wait()
        self.rows = sum(batch["tokens"])
        widths = {"hidden": self.width, "targets": 1}
        given = {name: bytes_of(array, 4 * self.rows * widths[name]) for name, array in inputs.items()}
        outputs, metrics = super().forward(number, given, batch, keep)
        return outputs, [(name, lambda total=total, weight=weight: (total, weight)) for name, total, weight in metrics]

    def backward(self, number, output_gradients, input_gradients):
        self.wait()
        size = 4 * self.rows * self.width
        super().backward(number, {}, {name: bytes_of(array, size) for name, array in input_gradients.items()})


class PureHead(pure_head.PureHead):
    @staticmethod
    def maestro_open(settings):
        return lambda name, seed, trained: PureReplica(**settings)


class FakeTorch:
    """PyTorch for maestro._torch, with the fake devices as CUDA devices. Its tensors on them are tensors of the CPU in
    the same memory."""

    built_for, devices = "13.0", 4

    def __init__(self, torch):
        self._torch = torch
        self.kinds = set()  # of the arrays that the run has given
        self.waits = {}  # by the stream's number
        self.numbers = {}  # of devices, by their streams
        self.whole = {}  # memory of devices for outputs, by their streams: the values of a module's parameter `scratch`
        self.scratch = {}  # the part that is used next
        self.thread = threading.local()  # its chosen stream
        self.utils = types.SimpleNamespace(dlpack=types.SimpleNamespace(to_dlpack=self.to_dlpack))
        self.cuda = types.SimpleNamespace(
            is_available=lambda: self.devices > 0, device_count=lambda: self.devices, device=lambda _: contextlib.nullcontext(),
            ExternalStream=lambda stream, device: stream, stream=self.stream)

    def __getattr__(self, name):
        return getattr(self._torch, name)

    @property
    def version(self):
        return types.SimpleNamespace(cuda=self.built_for)

    def device(self, kind, number=0):
        return self._torch.device("cpu")

    @contextlib.contextmanager
    def stream(self, stream):
        self.waits[stream]()  # all earlier work of the run, which a GPU's stream orders
        self.thread.stream = stream
        try:
            yield
        finally:
            self.thread.stream = None

    def from_dlpack(self, array):
        kind, number = array.__dlpack_device__()
        self.kinds.add(kind)
        if kind == CPU:
            return self._torch.from_dlpack(array)
        assert self.thread.stream is not None and number == self.numbers[self.thread.stream], "outside the run's stream"
        capsule = array.__dlpack__()
        place_in(capsule).kind = CPU
        return self._torch.from_dlpack(capsule)

    def to_dlpack(self, tensor):
        space = self.scratch[self.thread.stream]
        if len(space) < tensor.numel():
            space = self.whole[self.thread.stream]
        self.scratch[self.thread.stream] = space[tensor.numel():]
        copy = space[:tensor.numel()].copy_(tensor.flatten()).reshape(tensor.shape)
        capsule = self._torch.utils.dlpack.to_dlpack(copy)
        place = place_in(capsule)
        place.kind, place.number = CUDA, self.numbers[self.thread.stream]
        return capsule


def install():
    """Lets maestro's PyTorch sections compute on the fake devices. Returns the FakeTorch."""
    import torch
    from maestro import _torch

    fake = _torch.torch = FakeTorch(torch)

    class Replica(_torch.Replica):
        def place(self, device, stream, wait):
            fake.waits[stream], fake.numbers[stream] = wait, device
            super().place(device, stream, wait)

        def bind(self, values, gradients):
            super().bind(values, gradients)
            if self._stream is not None and "scratch" in self._trained:
                fake.whole[self._stream] = fake.scratch[self._stream] = self._trained["scratch"].detach()

    _torch.Replica = Replica
    return fake
