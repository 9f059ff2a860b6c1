# SPDX-License-Identifier: Apache-2.0
"""DIP (arXiv 2504.14145, ASPLOS 2026): chunks of about equal parameters in one interleaved pipeline, against pipeline
segments for each modality, and against replicas of the first module on all devices. README.md lists what is published and
assumed."""
import random

from workloads import chain, lanes, sample, work

MICRO_BATCHES = 64
CHUNKS = (1, 2, 4)  # on a device, in the baseline: their number is not public
MOST_SEGMENTS = 3  # on a device, of a module
PATCHES, TOKENS, MOST_IMAGES, MEAN_IMAGES = 2704, 8192, 48, 8
CLIP_TOKENS, FRAME_TOKENS, SECONDS, MOST_CLIPS = 300, 512, (4, 16), 8
# Published dimensions: layers, width, width of the feed-forward layer, its matrices, key and value width.
MODULES = {
    "ViT 5B": (63, 1792, 15360, 2, 1792), "ViT 22B": (48, 6144, 24576, 2, 6144),
    "Llama3 8B": (32, 4096, 14336, 3, 1024), "Qwen2 32B": (64, 5120, 27648, 3, 1024), "Qwen2 72B": (80, 8192, 29568, 3, 1024),
    "DiT 5B": (28, 3584, 10240, 2, 3584), "DiT 30B": (48, 6144, 24576, 2, 6144),
}
# First module, second module, stages, published gains: a range over models and baselines.
MODELS = {
    "VLM-S": ("ViT 5B", "Llama3 8B", 4, "1.16 to 1.76"),
    "VLM-M": ("ViT 5B", "Qwen2 32B", 4, "1.16 to 1.76"),
    "VLM-L": ("ViT 22B", "Qwen2 72B", 8, "1.16 to 1.76"),
    "T2V-S": ("Llama3 8B", "DiT 5B", 4, "1.37 to 1.97"),
    "T2V-L": ("Qwen2 32B", "DiT 30B", 8, "1.37 to 1.97"),
}
ABLATED = "VLM-S"  # published: 26.13 s, with the partitioner 22.27, interleaving 18.81, reordering 17.61, memory 16.05
PUBLISHED_ABLATION = {"segments, in the file's order": "1.17", "segments, planned": "1.39, with reordering 1.48"}
# Published milliseconds of a layer, both passes: ViT 5B for 8 images, Qwen2 32B for 8192 tokens.
VISION_LAYER_MS, LANGUAGE_LAYER_MS = 6.75, 10.5


def layer_parameters(module):
    _, width, hidden, matrices, keys = MODULES[module]
    crossed = 2 if module.startswith("DiT") else 1  # attention to the video, and to the text
    return crossed * 2 * width * (width + keys) + matrices * width * hidden


def layer_flop(module, tokens, causal):
    """Returns the FLOP of a layer's forward pass for one sequence."""
    width = MODULES[module][1]
    return 2 * layer_parameters(module) * tokens + (2 if causal else 4) * width * tokens * tokens


def rates():
    """Returns the FLOP per ms of a forward pass that takes a third of the published time: (vision, language)."""
    return (8 * layer_flop("ViT 5B", PATCHES, causal=False) / (VISION_LAYER_MS / 3),
            layer_flop("Qwen2 32B", TOKENS, causal=True) / (LANGUAGE_LAYER_MS / 3))


def drawn(model):
    """Returns the forward time of a layer of both modules, for each micro-batch."""
    first, second, _, _ = MODELS[model]
    vision, language = rates()
    draw = random.Random(f"dip {model}")
    times = []
    for _ in range(MICRO_BATCHES):
        if model.startswith("VLM"):
            images = min(MOST_IMAGES, max(1, round(draw.expovariate(1 / MEAN_IMAGES))))
            times.append((images * layer_flop(first, PATCHES, causal=False) / vision,
                          layer_flop(second, TOKENS, causal=True) / language))
        else:
            clips, seconds = draw.randint(1, MOST_CLIPS), draw.uniform(*SECONDS)
            times.append((clips * layer_flop(first, CLIP_TOKENS, causal=True) / language,
                          clips * layer_flop(second, FRAME_TOKENS * seconds / clips, causal=False) / language))
    return times


def pieces(model, parts):
    """Cuts both modules into pieces with about equal parameters. Returns each piece's layers in the first and second module."""
    layers = [(which, layer_parameters(module)) for which, module in enumerate(MODELS[model][:2])
              for _ in range(MODULES[module][0])]
    total, done = sum(size for _, size in layers), 0
    result = [[0, 0] for _ in range(parts)]
    for which, size in layers:
        result[min(parts - 1, int((done + size / 2) / total * parts))][which] += 1
        done += size
    return result


def segments(model):
    """Returns the numbers of segments of both modules: in proportion to their mean times, at least one."""
    mean = [sum(row[which] for row in drawn(model)) * MODULES[module][0]
            for which, module in enumerate(MODELS[model][:2])]
    return [min(MOST_SEGMENTS, int(one / min(mean))) for one in mean]


def staged(model, parts):
    """Returns the workload of a chain of stages with these layers, dealt to the devices in turn."""
    stages = MODELS[model][2]
    names = [f"stage{at}" for at in range(len(parts))]
    sections, edges = chain(names, [at % stages for at in range(len(parts))],
                            [min(64, 2 * len(parts) - at) for at in range(len(parts))])
    samples = [sample(number, {name: first * part[0] + second * part[1] for name, part in zip(names, parts)})
               for number, (first, second) in enumerate(drawn(model))]
    return {"sections": sections, "edges": edges, "samples": samples}


def even(model, which, parts):
    """Returns equal stages of a module."""
    layers = MODULES[MODELS[model][which]][0] / parts
    return [[layers, 0] if which == 0 else [0, layers] for _ in range(parts)]


def replicated(model):
    """Returns the workload with a replica of the first module on each device, and segments of the second."""
    stages = MODELS[model][2]
    workload = staged(model, even(model, 1, stages * segments(model)[1]))
    workload["sections"].insert(0, lanes("first", range(stages)))
    workload["edges"].insert(0, {"from": "first", "to": "stage0", "slots": 2 * stages})
    layers = MODULES[MODELS[model][0]][0]
    for row, (first, _) in zip(workload["samples"], drawn(model)):
        row["forward_ms"]["first"], row["backward_ms"]["first"] = layers * first, 2 * layers * first
    return workload


def layouts(model):
    """Yields the name and workload of each layout."""
    stages, (one, two) = MODELS[model][2], segments(model)
    for chunks in CHUNKS:
        yield f"{chunks} by parameters", staged(model, pieces(model, chunks * stages))
    yield "segments", staged(model, even(model, 0, stages * one) + even(model, 1, stages * two))
    yield "replicas", replicated(model)


def workloads():
    for model in MODELS:
        for layout, workload in layouts(model):
            yield f"dip_{model}_{layout}", workload


def cost(program, model, workload, policy):
    """Returns the rehearsed step in multiples of the area bound."""
    return program.period(workload, policy=policy) * MODELS[model][2] / work(workload)


def models_table(program):
    rows = []
    for model, (first, second, stages, published) in MODELS.items():
        costs = {layout: cost(program, model, workload, "arrival" if "by" in layout else "wavefront")
                 for layout, workload in layouts(model)}
        times = [sum(column) for column in zip(*drawn(model))]
        gains = {layout: ", ".join(f"{costs[f'{chunks} by parameters'] / costs[layout]:.2f}" for chunks in CHUNKS)
                 for layout in ("segments", "replicas")}
        rows.append({"model": model, "modules": f"{first} + {second}", "devices": stages,
                     "first / second": times[0] * MODULES[first][0] / (times[1] * MODULES[second][0]), **costs,
                     "gains of segments": gains["segments"], "gains of replicas": gains["replicas"], "published": published})
    return rows


def ablation_table(program):
    made = dict(layouts(ABLATED))
    baseline = cost(program, ABLATED, made[f"{CHUNKS[1]} by parameters"], "arrival")
    steps = (("segments, in the file's order", "segments", "arrival"), ("segments, planned", "segments", "wavefront"),
             ("replicas, planned", "replicas", "wavefront"))
    return [{f"{ABLATED}, over {CHUNKS[1]} chunks in the file's order": name,
             "gain": baseline / cost(program, ABLATED, made[layout], policy),
             "published": PUBLISHED_ABLATION.get(name, "")} for name, layout, policy in steps]


def tables(program):
    yield "DIP, steps in multiples of the area bound", models_table(program)
    yield "DIP, ablation", ablation_table(program)
