# SPDX-License-Identifier: Apache-2.0
"""MegaScale-Omni (arXiv 2605.08962, EuroSys 2026): encoders in the first stage of the LLM's pipeline, on devices apart, and
on the devices of all stages. README.md lists what is published and assumed."""
import random

from workloads import chain, lanes, sample, work

# LLM, GPUs, global batch, encoders, stages, largest published gain over four systems. An encoder has its parameters and the
# share of micro-batches that it works for; parameters are in billions.
WORKLOADS = {
    "A": (12, 64, 32, {"vision": (1, 1)}, 4, 1.54),
    "B": (70, 128, 64, {"vision": (2.4, 1)}, 8, 3.30),
    "C": (70, 256, 128, {"vision": (10, 1)}, 8, 7.57),
    "D": (175, 512, 256, {"vision": (10, 1)}, 8, 1.98),
    "A with audio": (12, 64, 32, {"vision": (1, 0.5), "audio": (2, 0.5)}, 4, 2.01),
}
PATCHES_PER_TOKEN = 4  # inputs of an encoder for each token of the LLM
ABLATION = "2.12 to 2.54"  # throughput falls by 52.9% to 60.6% without multiplexing
GPUS_PER_STAGE = 8
SHARES = (0.1, 0.5, 0.9)  # tokens from encoders in all tokens: 1:9 to 9:1
STAGE_MS, STAGE_SPREAD = 3.0, 0.05  # forward time of a stage of the LLM: sequences are packed to equal length
SIZE_SIGMA, LARGEST = 0.7, 5  # encoder time for a micro-batch, log-normal, in medians
IN_FLIGHT = 4  # limit for all lanes of an encoder together, in stages


def micro_batches(name):
    _, gpus, batch, _, stages, _ = WORKLOADS[name]
    return batch * stages * GPUS_PER_STAGE // gpus


def shares_of(name):
    return SHARES if len(WORKLOADS[name][3]) == 1 else SHARES[1:2]


def works(name, share):
    """Returns the work of each encoder, in the work of the LLM. Encoders have equal shares of the tokens."""
    llm, _, _, encoders, _, _ = WORKLOADS[name]
    return {encoder: PATCHES_PER_TOKEN * share / len(encoders) * parameters / llm
            for encoder, (parameters, _) in encoders.items()}


def encoder_times(name, share, draw):
    """Returns the forward times of each encoder, by micro-batch."""
    _, _, _, encoders, stages, _ = WORKLOADS[name]
    result = {}
    for encoder, (_, used) in encoders.items():
        sizes = {number: min(LARGEST, draw.lognormvariate(0, SIZE_SIGMA)) for number in range(micro_batches(name))
                 if draw.random() < used}
        total = works(name, share)[encoder] * stages * STAGE_MS * micro_batches(name)
        result[encoder] = {number: total * size / sum(sizes.values()) for number, size in sizes.items()}
    return result


def drawn(name, share):
    """Returns the samples: encoder work grows with the share of its tokens."""
    draw = random.Random(f"omni {name}")
    encoders = encoder_times(name, share, draw)
    rows = []
    for number in range(micro_batches(name)):
        forward = {f"llm{at}": STAGE_MS * draw.uniform(1 - STAGE_SPREAD, 1 + STAGE_SPREAD)
                   for at in range(WORKLOADS[name][4])}
        forward |= {encoder: times[number] for encoder, times in encoders.items() if number in times}
        rows.append(sample(number, forward))
    return rows


def layout(name, rows, places):
    """Returns the workload with encoders on these devices."""
    stages = WORKLOADS[name][4]
    sections, edges = chain([f"llm{at}" for at in range(stages)], range(stages), [2 * stages - at for at in range(stages)])
    for encoder, devices in places.items():
        sections.append(lanes(encoder, devices, in_flight=IN_FLIGHT * stages // len(devices)))
        edges.append({"from": encoder, "to": "llm0", "slots": 2 * stages})
    return {"sections": sections, "edges": edges, "samples": rows}


def layouts(name, share):
    """Yields the name, the number of devices and the workload of each layout."""
    encoders, stages = WORKLOADS[name][3:5]
    rows, apart = drawn(name, share), stages // 4
    yield "stage 0", stages, layout(name, rows, dict.fromkeys(encoders, [0]))
    places = {encoder: range(stages + at * apart, stages + (at + 1) * apart) for at, encoder in enumerate(encoders)}
    yield "apart", stages + apart * len(encoders), layout(name, rows, places)
    yield "all stages", stages, layout(name, rows, dict.fromkeys(encoders, range(stages)))


def workloads():
    for name in WORKLOADS:
        for share in shares_of(name):
            for place, _, workload in layouts(name, share):
                yield f"omni_{name}_{share}_{place}", workload


def row_of(program, name, share):
    llm, gpus, _, encoders, stages, published = WORKLOADS[name]
    costs = {place: program.period(workload) * devices / work(workload)
             for place, devices, workload in layouts(name, share)}
    encoder = sum(works(name, share).values())
    sizes = " + ".join(f"{parameters}B" for parameters in [*(size for size, _ in encoders.values()), llm])
    return {"workload": f"{name}: {sizes}", "GPUs": gpus, "stages": stages, "micro-batches": micro_batches(name),
            "images": f"{share:.0%}", "e": encoder, **costs, "over stage 0": costs["stage 0"] / costs["all stages"],
            "formula": (1 + stages * encoder) / (1 + encoder), "over apart": costs["apart"] / costs["all stages"],
            "published, at most": published}


def tables(program):
    yield (f"MegaScale-Omni, device time in multiples of the work; published without multiplexing: {ABLATION}",
           [row_of(program, name, share) for name in WORKLOADS for share in shares_of(name)])
