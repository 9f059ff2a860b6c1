# SPDX-License-Identifier: Apache-2.0
"""Serves PyTorch modules as sections of runs (docs/served-sections.md): frozen, frozen with gradients passing through,
and trained. Not imported by the package, since it needs `torch`."""

from __future__ import annotations

import copy
import ctypes
import hashlib
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

import torch

from .errors import MaestroError
from .serve import Batch, Parameter, Port, Result, Server, Values, serve

__all__ = ["Port", "Server", "TorchBatch", "TorchModule", "TorchResult", "packed", "padded", "serve"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "i32": torch.int32}


@dataclass(frozen=True)
class TorchBatch:
    """A micro-batch. Inputs are (rows, columns); rows of samples follow each other without padding."""

    inputs: dict[str, torch.Tensor]
    samples: list[int]
    tokens: list[int]  # rows of each sample
    patches: list[int]  # rows of each sample
    training: bool  # else validation


@dataclass(frozen=True)
class TorchResult:
    """Outputs by port, (rows, columns); a loss as a sum over rows; metrics {name: (sum, weight)}."""

    outputs: dict[str, torch.Tensor] = field(default_factory=dict)
    loss: Optional[torch.Tensor] = None
    metrics: dict[str, tuple[float, float]] = field(default_factory=dict)


Run = Callable[[torch.nn.Module, TorchBatch], Union[TorchResult, dict[str, torch.Tensor]]]


def padded(rows: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """Returns packed rows (M, ...) as (samples, longest, ...), with zeros after shorter samples."""
    return torch.nn.utils.rnn.pad_sequence(list(rows.split(lengths)), batch_first=True)


def packed(batch: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """Returns (samples, longest, ...) as packed rows (M, ...)."""
    return torch.cat([sample[:length] for sample, length in zip(batch, lengths)])


def _bytes_of(tensor: torch.Tensor) -> bytes:
    host = tensor.detach().cpu().contiguous()
    return ctypes.string_at(host.data_ptr(), host.numel() * host.element_size()) if host.numel() > 0 else b""


def _tensor_of(data: bytes, dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)


def _device_of(module: torch.nn.Module) -> torch.device:
    first = next(module.parameters(), None)
    return first.device if first is not None else torch.device("cpu")


class _Session:
    """A session of a module. `trained`: no other session uses the module."""

    def __init__(self, of: TorchModule, module: torch.nn.Module, trained: bool) -> None:
        self._of, self._module = of, module
        self._parameters: dict[str, torch.nn.Parameter] = {}
        if trained:
            named = dict(module.named_parameters())
            self._parameters = {each.name: named[each.name].requires_grad_() for each in of.parameters}
        self._kept: dict[int, tuple[dict[str, torch.Tensor], TorchResult, float]] = {}

    def _inputs(self, batch: Batch) -> dict[str, torch.Tensor]:
        device = _device_of(self._module)
        inputs = {}
        for port in self._of.inputs:
            given = batch.inputs[port.name]
            value = _tensor_of(given.data, DTYPES[given.dtype]).reshape(given.rows, given.columns).to(device)
            inputs[port.name] = value.requires_grad_(batch.keep and port.differentiable)
        return inputs

    def forward(self, batch: Batch) -> Result:
        inputs = self._inputs(batch)
        with torch.set_grad_enabled(batch.keep):
            made = self._of.run(self._module, TorchBatch(inputs, batch.samples, batch.tokens, batch.patches, batch.training))
        result = made if isinstance(made, TorchResult) else TorchResult(made)
        if batch.keep:
            self._kept[batch.number] = inputs, result, batch.loss_scale
        outputs = {}
        for port in self._of.outputs:
            value = result.outputs[port.name].to(DTYPES[port.dtype])
            outputs[port.name] = Values(port.dtype, value.shape[0], value.shape[1], _bytes_of(value))
        return Result(outputs, result.metrics)

    def backward(self, number: int, gradients: dict[str, Values]) -> dict[str, Values]:
        inputs, result, scale = self._kept.pop(number)
        ends, seeds = [], []
        for name, given in gradients.items():
            end = result.outputs[name]
            if end.requires_grad:
                ends.append(end)
                seeds.append(_tensor_of(given.data, DTYPES[given.dtype]).reshape(end.shape).to(end))
        if result.loss is not None and result.loss.requires_grad:
            ends.append(result.loss)
            seeds.append(torch.full_like(result.loss, scale))
        if ends:
            torch.autograd.backward(ends, seeds)
        found = {}
        for port in self._of.inputs:
            if port.differentiable:
                value = inputs[port.name]
                gradient = value.grad if value.grad is not None else torch.zeros_like(value)
                found[port.name] = Values(port.dtype, value.shape[0], value.shape[1], _bytes_of(gradient))
        return found

    def initial_values(self, parameter: str) -> bytes:
        return _bytes_of(self._of.initial[parameter])

    def set_values(self, parameter: str, first: int, values: bytes) -> None:
        given = _tensor_of(values, torch.float32)
        with torch.no_grad():
            self._parameters[parameter].view(-1)[first:first + given.numel()] = given

    def gradients(self, parameter: str) -> bytes:
        of = self._parameters[parameter]
        return _bytes_of(of.grad if of.grad is not None else torch.zeros_like(of))

    def clear_gradients(self) -> None:
        for parameter in self._parameters.values():
            parameter.grad = None


class TorchModule:
    """A module for `serve`. `run(module, batch)` returns its outputs, or a TorchResult. Each replica of a trained
    section has a copy of the module, and the run trains its fp32 parameters with `requires_grad`; replicas of a frozen section
    share the module. The module stays in its mode (train or eval). Checkpoints do not have its buffers."""

    def __init__(self, module: torch.nn.Module, run: Run, inputs: list[Port], outputs: list[Port],
                 flops_per_row: Optional[float] = None, description: str = "") -> None:
        self._module = module
        self.run, self.inputs, self.outputs = run, inputs, outputs
        trainable = {name: each for name, each in module.named_parameters() if each.requires_grad}
        others = [name for name, each in trainable.items() if each.dtype != torch.float32]
        if others:
            raise MaestroError(f"parameter {others[0]} is {trainable[others[0]].dtype}: a run trains float32; convert the "
                               "module, or freeze the parameter with requires_grad_(False)")
        for each in trainable.values():
            each.data = each.data.contiguous()
        self.parameters = [Parameter(name, tuple(each.shape) or (1,), each.ndim > 1) for name, each in trainable.items()]
        self.initial = trainable
        module.requires_grad_(False)
        count = sum(each.numel() for each in module.parameters())
        self.flops_per_row = 2.0 * count if flops_per_row is None else flops_per_row
        self.description = description or f"{type(module).__name__} of {count} parameters"
        self.fingerprint = self._hashed()

    def _hashed(self) -> str:
        digest = hashlib.sha256()
        for name, value in self._module.state_dict().items():
            if isinstance(value, torch.Tensor):
                digest.update(name.encode())
                digest.update(_bytes_of(value))
        return digest.hexdigest()

    def session(self, trained: bool, backward: bool) -> Any:
        return _Session(self, copy.deepcopy(self._module) if trained else self._module, trained)
