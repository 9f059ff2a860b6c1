# SPDX-License-Identifier: Apache-2.0
"""Cornstarch (arXiv 2503.11367, ICML 2026): stages cut by forward times, against stages cut by the times of both passes,
which are short in frozen modules; and frozen encoders on all devices. README.md lists what is published and assumed."""
from workloads import FROZEN, chain, lanes, sample

STAGES, MICRO_BATCHES = 6, 12  # 24 GPUs, four to a stage; 48 samples in micro-batches of four
# Published times in ms for a stage (encoder forward; LLM forward and backward), the LLM's stages, seconds an iteration.
# The numbers of stages follow from the backward times: the LLM's sum is the same in both cuts within 0.8%.
PUBLISHED = {
    "SSS": {"forward": (207.13, 296.25, 1032.63, 1, 25.67), "frozen-aware": (301.61, 149.40, 518.43, 2, 21.81)},
    "MMS": {"forward": (635.56, 297.62, 1032.12, 1, 41.21), "frozen-aware": (903.86, 102.61, 346.54, 3, 40.34)},
    "MMM": {"forward": (712.72, 1159.76, 12113.67, 1, 173.01), "frozen-aware": (2330.90, 273.89, 2418.27, 5, 70.37)},
    "LLL": {"forward": (1597.36, 1686.28, 15878.58, 2, 247.79), "frozen-aware": (5316.08, 736.05, 6315.46, 5, 143.76)},
}
PUBLISHED_GAIN = {"SSS": 1.18, "MMS": 1.02, "MMM": 2.46, "LLL": 1.72}
# Backward times in forward times (encoder, LLM). A frozen LLM still passes gradients to the projectors before it.
TRAINING = {"both frozen": (0, 1), "encoder frozen": (0, 2), "both trained": (2, 2)}
FORWARD_MS = 600.0  # of the encoder and of the LLM, over all stages


def pipeline(encoder, llm, micro_batches=MICRO_BATCHES):
    """Returns the workload of a pipeline. `encoder`, `llm`: stages, forward and backward time of a stage."""
    frozen = encoder[2] == 0
    names = [f"encoder{at}" for at in range(encoder[0])] + [f"llm{at}" for at in range(llm[0])]
    sections, edges = chain(names, range(len(names)), [len(names) - at for at in range(len(names))])
    if frozen:
        for section in sections[:encoder[0]]:
            section["mode"] = FROZEN
    for edge in edges:
        edge["slots"] = 2  # a frozen encoder runs ahead by two micro-batches
    forward = {name: encoder[1] if name.startswith("encoder") else llm[1] for name in names}
    backward = {name: encoder[2] if name.startswith("encoder") else llm[2] for name in names}
    backward = {name: ms for name, ms in backward.items() if not (frozen and name.startswith("encoder"))}
    return {"sections": sections, "edges": edges,
            "samples": [sample(number, forward, backward) for number in range(micro_batches)]}


def everywhere(encoder, llm, micro_batches=MICRO_BATCHES):
    """Returns the workload with the encoder on the devices of all stages. `encoder`: forward and backward time; `llm`: these
    times of a stage."""
    names = [f"llm{at}" for at in range(STAGES)]
    sections, edges = chain(names, range(STAGES), [2 * STAGES - at for at in range(STAGES)])
    mode = {"mode": FROZEN} if encoder[1] == 0 else {}
    sections.insert(0, lanes("encoder", range(STAGES), **mode))
    edges.insert(0, {"from": "encoder", "to": "llm0"})
    for edge in edges:
        edge["slots"] = 2 * STAGES  # a rehearsal has the most slots of all edges on each
    forward = {"encoder": encoder[0], **dict.fromkeys(names, llm[0])}
    backward = {**({"encoder": encoder[1]} if encoder[1] else {}), **dict.fromkeys(names, llm[1])}
    return {"sections": sections, "edges": edges,
            "samples": [sample(number, forward, backward) for number in range(micro_batches)]}


def cut(encoder, llm):
    """Returns the encoder's number of stages with which the longest stage is shortest."""
    return min(range(1, STAGES), key=lambda stages: max(encoder / stages, llm / (STAGES - stages)))


def published_workloads(model):
    """Yields the name and workload of each layout of a published model."""
    for name, (encoder, forward, backward, stages, _) in PUBLISHED[model].items():
        yield name, pipeline((STAGES - stages, encoder, 0), (stages, forward, backward))
    encoder, forward, backward, stages, _ = PUBLISHED[model]["frozen-aware"]
    yield "all devices", everywhere(((STAGES - stages) * encoder, 0),
                                    (stages * forward / STAGES, stages * backward / STAGES))


def assumed_workloads(training):
    """Yields the assumed model's layouts: name, encoder stages and workload."""
    encoder, llm = TRAINING[training]
    for name, weights in (("forward", (1, 1)), ("frozen-aware", (1 + encoder, 1 + llm))):
        stages = cut(*weights)
        each, rest = FORWARD_MS / stages, FORWARD_MS / (STAGES - stages)
        yield name, stages, pipeline((stages, each, encoder * each), (STAGES - stages, rest, llm * rest))
    each = FORWARD_MS / STAGES
    yield "all devices", 0, everywhere((FORWARD_MS, encoder * FORWARD_MS), (each, llm * each))


def workloads():
    for model in PUBLISHED:
        for name, workload in published_workloads(model):
            yield f"cornstarch_{model}_{name}", workload
    for training in TRAINING:
        for name, _, workload in assumed_workloads(training):
            yield f"cornstarch_{training}_{name}", workload


def step(program, layout, workload):
    """Returns seconds. The published systems end a step before the next; in maestro frozen encoders run ahead."""
    return (program.period if layout == "all devices" else program.makespan)(workload) / 1e3


def tables(program):
    rows = []
    for model, published in PUBLISHED.items():
        times = {name: step(program, name, workload) for name, workload in published_workloads(model)}
        row = {"model": model}
        for name in published:
            row |= {f"{name} s": times[name], f"{name} published s": published[name][-1]}
        rows.append(row | {"gain": times["forward"] / times["frozen-aware"], "published gain": PUBLISHED_GAIN[model],
                           "all devices s": times["all devices"],
                           "gain of all devices": times["forward"] / times["all devices"]})
    yield "Cornstarch, with its published times of stages", rows
    rows = []
    for training in TRAINING:
        made = list(assumed_workloads(training))
        times = {name: step(program, name, workload) for name, _, workload in made}
        cuts = [f"{stages} + {STAGES - stages}" for _, stages, _ in made[:2]]
        rows.append({"trained": training, "by forward": cuts[0], "frozen-aware": cuts[1],
                     "gain": times["forward"] / times["frozen-aware"],
                     "gain of all devices": times["forward"] / times["all devices"]})
    yield "Cornstarch, encoder and LLM of equal forward times (assumed)", rows
