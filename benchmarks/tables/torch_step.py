# SPDX-License-Identifier: Apache-2.0
"""The work of `bench_tables steps` in PyTorch: EmbeddingBag with sparse gradients and row-wise AdaGrad, on one thread.

torch_step.py ROWS STEPS prints a JSON line with the median CPU time of a step.
"""
import json, statistics, sys, time

import numpy
import torch

SAMPLES, FEATURES, COLUMNS, DISTINCT = 4096, 26, 64, 65536
READS = SAMPLES * FEATURES
LR, EPSILON = 0.01, 1e-8


def mixed(bits):
    """mix64 of runtime/core/random.hpp."""
    bits = (bits ^ (bits >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
    bits = (bits ^ (bits >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
    return bits ^ (bits >> numpy.uint64(31))


def ids_of(rows, step):
    with numpy.errstate(over="ignore"):
        drawn = mixed(numpy.arange(READS, dtype=numpy.uint64) * numpy.uint64(0x9e3779b97f4a7c15) + numpy.uint64(step))
    return torch.from_numpy((drawn % numpy.uint64(DISTINCT)).astype(numpy.int64) * (rows // DISTINCT))


@torch.no_grad()
def step_rows(table, sums):
    gradient = table.grad.coalesce()
    rows, values = gradient.indices()[0], gradient.values()
    norm = values.square().sum().sqrt().item()  # a step clips by it
    sums.index_add_(0, rows, values.square().mean(1))
    table.index_add_(0, rows, values / (sums[rows].sqrt() + EPSILON)[:, None], alpha=-LR)
    table.grad = None
    return norm


def main():
    rows, steps = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    bags = torch.nn.EmbeddingBag(rows, COLUMNS, mode="sum", sparse=True, _weight=torch.zeros(rows, COLUMNS))
    sums = torch.zeros(rows)
    offsets = torch.arange(READS)  # a feature has one id
    back = torch.full((READS, COLUMNS), 0.01)
    times = []
    for number in range(steps + 2):
        ids = ids_of(rows, number)
        begin = time.process_time()
        bags(ids, offsets).backward(back)
        step_rows(bags.weight, sums)
        times.append(time.process_time() - begin)
    print(json.dumps({"program": "PyTorch", "rows": rows, "step_ms": round(1e3 * statistics.median(times[2:]), 2)}))


if __name__ == "__main__":
    main()
