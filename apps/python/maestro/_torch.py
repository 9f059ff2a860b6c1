# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules as sections that the run's process computes. Imported when an app has one, since it needs `torch`."""

import contextlib
import hashlib
import inspect
import itertools
import json
import threading

import torch  # type: ignore[import]

from maestro._sections import Batch, Input, Output

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "i32": torch.int32}
_threads = threading.local()


def _number(value):
    return value.detach().item() if isinstance(value, torch.Tensor) else float(value)


class Replica:
    """A replica's module (apps/python/python_section.hpp has the protocol). Each replica makes a module."""

    def __init__(self, make, settings, name, seed, trained):
        with torch.random.fork_rng(devices=[]):
            digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
            self._module = make(**settings)
        if not isinstance(self._module, torch.nn.Module):
            raise TypeError(f"{make!r} makes a {type(self._module).__name__}; a section is a torch.nn.Module")
        self._read_ports()
        self._trained = {}
        if trained:
            self._trained = {name: each for name, each in self._module.named_parameters() if each.requires_grad}
            if not self._trained:
                raise ValueError("the module has no parameter with requires_grad to train; call forward_only()")
        else:
            self._module.requires_grad_(False)
        for name, each in self._trained.items():
            if each.dtype != torch.float32 or each.device.type != "cpu":
                raise TypeError(f"the constructor makes parameter {name!r} as {each.dtype} on {each.device}; a run trains "
                                "float32 that is made on the CPU, and moves it to the section's device: convert the module, "
                                "or freeze the parameter with requires_grad_(False)")
        self._initial = {name: each.data for name, each in self._trained.items()}
        self.parameters = [(name, tuple(each.shape) or (1,), each.ndim > 1) for name, each in self._trained.items()]
        count = sum(each.numel() for each in self._module.parameters())
        self.flops_per_row = 2.0 * count
        self.description = f"{type(self._module).__qualname__} of {count} parameters, in Python"
        self.config = json.dumps({"model_type": "python", "class": type(self._module).__qualname__, "settings": settings},
                                 indent=2)
        self.fingerprint = "" if trained else self._hashed()
        buffers = sorted(set(self._module.state_dict()) - {name for name, _ in self._module.named_parameters()})
        self.notes = [f"checkpoints do not have buffer {buffers[0]!r} of the module"] if trained and buffers else []
        self._kept = {}
        self._device, self._stream = torch.device("cpu"), None  # None: on the CPU

    def _read_ports(self):
        ports = self._module.ports() if hasattr(self._module, "ports") else None
        if not isinstance(ports, dict):
            raise TypeError(f"{type(self._module).__name__}.ports() must return a dictionary, "
                            '{"hidden": maestro.Input(64), "logits": maestro.Output(10)}')
        self.inputs, self.outputs = [], []
        for name, port in ports.items():
            if not isinstance(port, (Input, Output)):
                raise TypeError(f"port {name!r} is {port!r}; expected a maestro.Input or maestro.Output")
            differentiable = port.dtype != "i32" if port.differentiable is None else port.differentiable
            (self.inputs if isinstance(port, Input) else self.outputs).append(
                (name, port.dtype, port.columns, differentiable, port.axis))
        self.host_inputs = [name for name, port in ports.items() if isinstance(port, Input) and port.host]
        self._output_names = {name for name, *_ in self.outputs}
        self._differentiable = {name for name, _, _, differentiable, _ in self.inputs if differentiable}
        arguments = inspect.signature(self._module.forward).parameters
        self._takes_batch = "batch" in arguments
        takes_any = any(each.kind is each.VAR_KEYWORD for each in arguments.values())
        for name, *_ in self.inputs:
            if name not in arguments and not takes_any:
                raise TypeError(f"{type(self._module).__name__}.forward() has no parameter for the input {name!r}")

    def _hashed(self):
        digest = hashlib.sha256()
        for name, value in self._module.state_dict().items():
            if isinstance(value, torch.Tensor):
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().data if value.ndim else
                              repr(value.item()).encode())
        return digest.hexdigest()

    def initial(self, name, values):
        into = torch.from_dlpack(values)
        into.copy_(self._initial[name].reshape(into.shape))

    def place(self, device, stream, wait):
        if torch.version.cuda is None:
            raise RuntimeError(f"PyTorch {torch.__version__} is built without CUDA")
        if not torch.cuda.is_available():
            raise RuntimeError(f"PyTorch {torch.__version__} for CUDA {torch.version.cuda} can use no CUDA device here")
        if device >= torch.cuda.device_count():
            raise RuntimeError(f"PyTorch sees {torch.cuda.device_count()} CUDA devices, not cuda:{device}")
        self._device = torch.device("cuda", device)
        self._stream = torch.cuda.ExternalStream(stream, device=self._device)

    @contextlib.contextmanager
    def _working(self):
        """Chooses the run's stream for PyTorch's work on a CUDA device (YS-4)."""
        if self._stream is None:
            yield
            return
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            yield

    def bind(self, values, gradients):
        with self._working():
            for name, each in self._trained.items():
                each.data = torch.from_dlpack(values[name]).reshape(each.shape)
                each.grad = torch.from_dlpack(gradients[name]).reshape(each.shape)
            if self._stream is not None:
                self._move()

    def _move(self):
        """Moves what is not trained; the trained parameters are on the device."""
        self._module.to(self._device)
        parameters = dict(self._module.named_parameters())
        for name, each in self._trained.items():
            if parameters.get(name) is not each:
                raise TypeError(f"{type(self._module).__name__}.to({str(self._device)!r}) replaces the parameter {name!r}, "
                                "which the run trains")
        for name, each in itertools.chain(parameters.items(), self._module.named_buffers()):
            if each.device != self._device:
                raise TypeError(f"{name!r} is on {each.device} after {type(self._module).__name__}.to({str(self._device)!r})")

    def forward(self, number, inputs, batch, keep):
        if self._stream is None and not hasattr(_threads, "limited"):
            torch.set_num_threads(1)  # a CPU device of a run is a core
            _threads.limited = True
        self._initial = {}
        with self._working():
            return self._forward(number, inputs, batch, keep)

    def _input(self, name, value):
        value = torch.from_dlpack(value)
        return value.cpu() if name in self.host_inputs else value  # a copy, after a wait, only of what is on a device

    def _output(self, value):
        value = value.detach().contiguous()
        # A capsule, because a tensor's __dlpack__() may order the default stream after this one.
        return torch.utils.dlpack.to_dlpack(value) if self._stream is not None and value.device == self._device else value

    def _metrics(self, figures):
        """Returns (name, sum, weight); on a CUDA device (name, function), which reads a copy that the stream makes."""
        if self._stream is None:
            return [(name, _number(total), _number(weight)) for name, total, weight in figures]
        def is_here(each):
            return isinstance(each, torch.Tensor) and each.device == self._device

        tensors = [each.detach().reshape(()).to(torch.float64) for _, *pair in figures for each in pair if is_here(each)]
        copies = iter(torch.stack(tensors).to("cpu", non_blocking=True) if tensors else ())
        later = [(name, [next(copies) if is_here(each) else _number(each) for each in pair]) for name, *pair in figures]
        return [(name, lambda pair=pair: tuple(float(each) for each in pair)) for name, pair in later]

    def _forward(self, number, inputs, batch, keep):
        training = batch["training"] and bool(self._trained)
        if self._module.training != training:
            self._module.train(training)
        given = {name: self._input(name, value) for name, value in inputs.items()}
        if keep:
            for name in self._differentiable & given.keys():
                given[name].requires_grad_(True)
        arguments = dict(given)
        if self._takes_batch:
            arguments["batch"] = Batch(**batch)
        with torch.set_grad_enabled(keep):
            made = self._module(**arguments)
        if isinstance(made, torch.Tensor) and len(self.outputs) == 1:
            made = {self.outputs[0][0]: made}
        if not isinstance(made, dict):
            raise TypeError(f"forward() returns a {type(made).__name__}; expected a dictionary of outputs, and of figures as "
                            "(sum, weight)")
        outputs, figures, loss = {}, [], None
        for name, value in made.items():
            if name in self._output_names:
                outputs[name] = value
            elif isinstance(value, tuple) and len(value) == 2:
                if name == "loss":
                    loss = value[0]
                figures.append((name, *value))
            else:
                raise TypeError(f"forward() returns {name!r}, which is not an output of ports(); a figure is a tuple (sum, weight)")
        if keep and self._trained and loss is not None and not getattr(loss, "requires_grad", False):
            raise TypeError("the figure 'loss' has no gradient: return a tensor that is computed from the module's parameters "
                            "and is not detached, in the tuple (sum, weight)")
        if keep:
            self._kept[number] = given, outputs, loss, batch["loss_scale"]
        return {name: self._output(value) for name, value in outputs.items()}, self._metrics(figures)

    def backward(self, number, output_gradients, input_gradients):
        with self._working():
            self._backward(number, output_gradients, input_gradients)

    def _backward(self, number, output_gradients, input_gradients):
        given, outputs, loss, scale = self._kept.pop(number)
        ends, seeds = [], []
        for name, gradient in output_gradients.items():
            if outputs[name].requires_grad:
                ends.append(outputs[name])
                seeds.append(torch.from_dlpack(gradient).reshape(outputs[name].shape))
        if isinstance(loss, torch.Tensor) and loss.requires_grad:
            ends.append(loss)
            seeds.append(torch.full_like(loss, scale))
        if ends:
            torch.autograd.backward(ends, seeds)
        for name, into in input_gradients.items():
            found, into = given[name].grad, torch.from_dlpack(into)
            into.zero_() if found is None else into.copy_(found)

    def forget(self, number):
        self._kept.pop(number, None)

    def close(self):
        self._kept.clear()
        with self._working():
            for each in self._trained.values():  # the run's memory ends
                each.grad = None
                each.data = each.data.to("cpu", copy=True)


def opener(make, settings):
    return lambda name, seed, trained: Replica(make, settings, name, seed, trained)
