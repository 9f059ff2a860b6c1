# SPDX-License-Identifier: Apache-2.0
"""Linear modules in plain Python, for served sections: served_modules.py ADDRESS KIND [FILE] [key=value ...].

KIND head: an output layer with softmax cross-entropy, the type language_model_head. FILE: safetensors with
lm_head.weight (F32). Sums are in double precision.
KIND logits: a teacher whose logits are a row of a table by token, tanh(sin(...)) of both indices.
PYTHONPATH has maestro_client.
"""

import importlib.util
import json
import math
import struct
import sys
import time
from array import array
from operator import mul
from pathlib import Path

if importlib.util.find_spec("thrift") is None:
    sys.path.append("/usr/lib/python3/dist-packages")  # python3-thrift; its Python part fits any interpreter

from maestro_client.serve import Parameter, Port, Result, Values, serve  # noqa: E402

WEIGHT = "lm_head.weight"


def read_safetensors(path, name):
    """Returns (values, shape) of an F32 tensor."""
    content = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    entry = json.loads(content[8:8 + length])[name]
    first, end = (8 + length + at for at in entry["data_offsets"])
    assert entry["dtype"] == "F32", entry
    return array("f", content[first:end]), entry["shape"]


def rows_of(values, columns):
    return [values[at:at + columns] for at in range(0, len(values), columns)]


def floats(values):
    return array("f", values.data)


def packed(rows):
    flat = array("f")
    for row in rows:
        flat.extend(row)
    return Values("fp32", len(rows), len(rows[0]) if rows else 0, flat.tobytes())


class HeadSession:
    def __init__(self, module):
        self.module, self.width = module, module.width
        self.values = array("f", module.values)
        self.summed = [[0.0] * self.width for _ in range(module.vocabulary)]
        self.kept = {}

    def forward(self, batch):
        hidden = rows_of(floats(batch.inputs["hidden"]), self.width)
        targets = array("i", batch.inputs["targets"].data)
        weights = rows_of(self.values, self.width)
        total, count, gradients = 0.0, 0, []
        for row, target in zip(hidden, targets):
            logits = [sum(map(mul, row, weight)) for weight in weights]
            largest = max(logits)
            exponents = [math.exp(logit - largest) for logit in logits]
            norm = sum(exponents)
            if target < 0:
                gradients.append([0.0] * len(weights))
                continue
            total += math.log(norm) + largest - logits[target]
            count += 1
            scale = batch.loss_scale / norm
            gradient = [each * scale for each in exponents]
            gradient[target] -= batch.loss_scale
            gradients.append(gradient)
        if batch.keep:
            self.kept[batch.number] = hidden, gradients, weights
        return Result({}, {"loss": (total, count), "ce": (total, count)})

    def backward(self, number, gradients):
        assert not gradients  # the head is without outputs
        hidden, by_row, weights = self.kept.pop(number)
        columns = list(zip(*weights))
        for at, of_logit in enumerate(zip(*by_row)):
            sums = self.summed[at]
            for column, of_hidden in enumerate(zip(*hidden)):
                sums[column] += sum(map(mul, of_logit, of_hidden))
        return {"hidden": packed([[sum(map(mul, row, column)) for column in columns] for row in by_row])}

    def initial_values(self, parameter):
        assert parameter == WEIGHT
        return self.module.values.tobytes()

    def set_values(self, parameter, first, values):
        assert parameter == WEIGHT
        part = array("f", values)
        self.values[first:first + len(part)] = part

    def gradients(self, parameter):
        assert parameter == WEIGHT
        return packed(self.summed).data

    def clear_gradients(self):
        self.summed = [[0.0] * self.width for _ in self.summed]


class Head:
    def __init__(self, file):
        self.values, (self.vocabulary, self.width) = read_safetensors(file, WEIGHT)
        self.inputs = [Port("hidden", "fp32", self.width, differentiable=True), Port("targets", "i32")]
        self.outputs = []
        self.parameters = [Parameter(WEIGHT, (self.vocabulary, self.width))]
        self.flops_per_row = 2.0 * self.vocabulary * self.width
        self.fingerprint = str(sum(self.values))
        self.description = f"linear head {self.vocabulary} x {self.width}"

    def session(self, trained, backward):
        return HeadSession(self)


class Logits:
    """A module without state. `slow_s`: duration of every pass."""

    def __init__(self, vocabulary=256, slow_s=0.0, fingerprint="1", fails_at=0):
        self.vocabulary, self.slow_s, self.fingerprint = int(vocabulary), float(slow_s), fingerprint
        self.fails_at = int(fails_at)
        self.inputs = [Port("tokens", "i32")]
        self.outputs = [Port("logits", "fp32", self.vocabulary)]
        self.parameters = []
        self.flops_per_row = 2.0 * self.vocabulary
        self.description = "table of logits"
        self.rows = {}

    def session(self, trained, backward):
        return self

    def row(self, token):
        if token not in self.rows:
            self.rows[token] = array("f", (math.tanh(math.sin(token * 31.0 + at * 17.0)) for at in range(self.vocabulary)))
        return self.rows[token]

    def forward(self, batch):
        time.sleep(self.slow_s)  # stands for the module's work
        if batch.number == self.fails_at:
            raise ValueError(f"pass {batch.number} fails\non two lines")
        tokens = array("i", batch.inputs["tokens"].data)
        return Result({"logits": packed([self.row(token) for token in tokens])})


def main(arguments):
    address, kind, *others = arguments
    given = dict(each.split("=", 1) for each in others if "=" in each)
    files = [each for each in others if "=" not in each]
    keys = given.pop("keys", None)
    serve({"head": Head, "logits": Logits}[kind](*files, **given), address, keys)


if __name__ == "__main__":
    main(sys.argv[1:])
