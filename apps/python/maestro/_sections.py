# SPDX-License-Identifier: Apache-2.0
"""Ports and micro-batches of sections that are written in Python."""

import inspect
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Input:
    """An input port: (rows, columns). Rows are the tokens of the micro-batch's samples, which follow each other without
    padding; with `axis` "patches", the patches of their images; with "visual", the rows that a decoder receives for these
    images. `dtype`: "fp32", "bf16" or "i32". `differentiable`: gradients go back to the section that sends it; None: if
    the dtype is a floating-point type. `host`: the value is in the CPU's memory also if the section is on a CUDA device;
    without a wait only if a section on CPUs, or the corpus, sends it."""

    columns: int = 1
    dtype: str = "fp32"
    differentiable: Optional[bool] = None
    axis: str = "tokens"
    host: bool = False


@dataclass(frozen=True)
class Output:
    """An output port; the fields are those of Input without `host`, and gradients come from the sections that receive it."""

    columns: int = 1
    dtype: str = "fp32"
    differentiable: Optional[bool] = None
    axis: str = "tokens"


@dataclass(frozen=True)
class Batch:
    """A micro-batch. A loss is a sum over rows; the run multiplies it by `loss_scale`, 1 / the step's target tokens."""

    samples: list[int]
    tokens: list[int]  # rows of each sample
    patches: list[int]  # patches of each sample
    visual: list[int]  # rows of each sample that a decoder receives for its images
    training: bool  # or validation
    loss_scale: float


def settings_of(make, keys):
    """Returns [(name, kind)] of the keys that `make` takes, of `keys`; kind: "int", "float", "bool", "str" or ""."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return []
    kinds = {bool: "bool", int: "int", float: "float", str: "str"}
    found = []
    for key in keys:
        if key not in parameters:
            continue
        each = parameters[key]
        kind = kinds.get(each.annotation) or (kinds.get(type(each.default)) if each.default is not each.empty else None)
        if isinstance(each.annotation, str):
            kind = {"bool": "bool", "int": "int", "float": "float", "str": "str"}.get(each.annotation, kind)
        found.append((key, kind or ""))
    return found
