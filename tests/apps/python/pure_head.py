# SPDX-License-Identifier: Apache-2.0
"""An output layer with its loss that Python computes without a framework: the protocol of a replica in
apps/python/python_section.hpp, on memory of the run."""

import json
import math


def floats(array):
    return memoryview(array).cast("B").cast("f")


def integers(array):
    return memoryview(array).cast("B").cast("i")


class Replica:
    def __init__(self, width, vocabulary=32):
        self.width, self.vocabulary = width, vocabulary
        self.inputs = [("hidden", "fp32", width, True, "tokens"), ("targets", "i32", 1, False, "tokens")]
        self.outputs = []
        self.parameters = [("weight", (vocabulary, width), True)]
        self.flops_per_row = 2.0 * width * vocabulary
        self.description = "an output layer in Python"
        self.config = json.dumps({"model_type": "python", "settings": {"width": width, "vocabulary": vocabulary}})
        self.fingerprint, self.notes, self.host_inputs, self.kept = "", [], [], {}

    def initial(self, name, values):
        values = floats(values)
        for at in range(len(values)):
            values[at] = math.sin(at * 7.0) / 4

    def bind(self, values, gradients):
        self.weight = floats(values["weight"])
        self.gradient = floats(gradients["weight"]) if "weight" in gradients else None

    def forward(self, number, inputs, batch, keep):
        hidden, targets, width = floats(inputs["hidden"]), integers(inputs["targets"]), self.width
        loss, counted, rows = 0.0, 0, []
        for row, target in enumerate(targets):
            if target < 0:
                continue
            x = hidden[row * width:(row + 1) * width].tolist()
            logits = [sum(a * b for a, b in zip(x, self.weight[v * width:(v + 1) * width])) for v in range(self.vocabulary)]
            most = max(logits)
            exponentials = [math.exp(logit - most) for logit in logits]
            total = sum(exponentials)
            loss += math.log(total) + most - logits[target]
            counted += 1
            rows.append((row, target, x, [each / total for each in exponentials]))
        if keep:
            self.kept[number] = rows, batch["loss_scale"]
        return {}, [("loss", loss, counted)]

    def backward(self, number, output_gradients, input_gradients):
        rows, scale = self.kept.pop(number)
        width = self.width
        into = floats(input_gradients["hidden"]) if "hidden" in input_gradients else None
        if into is not None:
            for at in range(len(into)):
                into[at] = 0.0
        for row, target, x, probabilities in rows:
            for v, probability in enumerate(probabilities):
                gradient = scale * (probability - (v == target))
                for k in range(width):
                    self.gradient[v * width + k] += gradient * x[k]
                    if into is not None:
                        into[row * width + k] += gradient * self.weight[v * width + k]

    def forget(self, number):
        self.kept.pop(number, None)

    def close(self):
        pass


class PureHead:
    """`width` and `vocabulary` are keys of the section's table."""

    def __init__(self, width: int, vocabulary: int = 32):
        raise AssertionError("maestro_open makes the replicas")

    @staticmethod
    def maestro_open(settings):
        return lambda name, seed, trained: Replica(**settings)
