# SPDX-License-Identifier: Apache-2.0
"""Builds workload files of pipelines (docs/workloads.md) for the benchmarks `shared` and `published`, and prints tables."""
import random

TRAINED, FROZEN = "forward_backward", "forward_only"


def chain(names, devices, in_flight, mode=TRAINED):
    """Returns the sections of consecutive stages, a device and a limit of micro-batches in flight each, and their edges."""
    sections = [{"name": name, "replicas": 1, "mode": mode, "max_in_flight": limit, "devices": [device]}
                for name, device, limit in zip(names, devices, in_flight, strict=True)]
    return sections, [{"from": one, "to": other} for one, other in zip(names, names[1:])]


def lanes(name, devices, mode=TRAINED, in_flight=4):
    """Returns a section with a replica on each of these devices."""
    return {"name": name, "replicas": len(devices), "mode": mode, "max_in_flight": in_flight, "devices": list(devices)}


def sample(number, forward, backward=None):
    """Returns a sample. Without `backward` a backward pass takes twice as long as its forward pass."""
    return {"id": number, "forward_ms": forward,
            "backward_ms": {name: 2 * ms for name, ms in forward.items()} if backward is None else backward}


def work(workload):
    """Returns the sum of all passes' times."""
    return sum(sum(row[key].values()) for row in workload["samples"] for key in ("forward_ms", "backward_ms"))


def multiplexed(stages, share, apart, scale):
    """Returns a workload and its area: 16 samples a stage, of which a share has images of log-normal sizes."""
    draw = random.Random(0)
    names = [f"llm{stage}" for stage in range(stages)]
    encoders = max(1, stages // 4) if apart else stages
    samples = []
    for number in range(16 * stages):
        with_image = draw.random() < share
        size = min(5, draw.lognormvariate(0, 0.7))
        forward = {name: 3 * scale * draw.uniform(0.95, 1.05) for name in names}
        if with_image:
            forward["vision"] = (5 if stages == 4 else 6) * scale * size
        samples.append(sample(number, forward))
    sections, edges = chain(names, range(stages), [2 * stages - at for at in range(stages)])
    sections.insert(0, lanes("vision", [stages + at if apart else at for at in range(encoders)]))
    edges.insert(0, {"from": "vision", "to": "llm0", "slots": 2 * stages})
    workload = {"sections": sections, "edges": edges, "samples": samples}
    return workload, work(workload) / (stages + (encoders if apart else 0))


def interleaved(devices, batches, chunks, scale):
    """Returns a workload of `chunks` stages on each device, and its area."""
    stages = devices * chunks
    names = [f"stage{at}" for at in range(stages)]
    sections, edges = chain(names, [at % devices for at in range(stages)],
                            [min(64, 2 * stages - at) for at in range(stages)])
    samples = [sample(number, {name: 12 * scale / chunks for name in names}) for number in range(batches)]
    return {"sections": sections, "edges": edges, "samples": samples}, 36 * scale * batches


def print_table(rows, file=None, digits=3):
    """Prints rows, dictionaries with the same keys, as a Markdown table."""
    print(f"\n| {' | '.join(rows[0])} |", file=file)
    print(f"|{'---|' * len(rows[0])}", file=file)
    for row in rows:
        cells = (f"{value:.{digits}f}" if isinstance(value, float) else str(value) for value in row.values())
        print(f"| {' | '.join(cells)} |", file=file)
