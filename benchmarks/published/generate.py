#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the workload files of the published comparisons from a stated model of FLOPs and layouts (README.md).

generate.py                    writes the files of Maestro's paper to its folder
generate.py --check            exits with 1 and names the file if a file there differs from the generated file
generate.py --systems FOLDER   writes the workloads of the other systems, which the benchmark makes anew, to FOLDER
"""
import json
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).resolve().parent

# Models. Active parameters per token; the vision encoder of Qwen3-VL and Qwen3.5 has 27 layers and width 1152.
ACTIVE = {"400B-A17B": 17e9, "80B-A3B": 3e9}
VISION_PARAMETERS = 0.41e9
VISION_LAYERS, VISION_WIDTH = 27, 1152
PATCHES_PER_TOKEN = 4  # 2 x 2 patches become a token of the LLM

# Speed in 10^12 FLOP/s per H100, with the losses of layout and pipeline bubble; sources in README.md.
LLM_RATE = {"400B-A17B": 233.0, "80B-A3B": 121.0}
VISION_RATE = 250.0
TEACHER_SPEED_UP = 2.6  # published, from micro-batch 4

# Data.
IMAGE_SHARE = 0.5
IMAGES_GEOMETRIC, MOST_IMAGES = 0.5, 8
IMAGE_TOKENS_MEDIAN, IMAGE_TOKENS_SIGMA, IMAGE_TOKENS = 512, 0.5, (256, 1280)
TEXT_TOKENS_MEDIAN, TEXT_TOKENS_SIGMA, TEXT_TOKENS = 1500, 1.0, (64, 16384)
DISTILLATION_TOKENS = 4096

LINK_BYTES_PER_MS = 50e6  # 400 Gbit/s per device
HIDDEN_BYTES = 4096 * 2


def milliseconds(tera_flop, devices, rate):
    return round(1e3 * tera_flop / (devices * rate), 3)


def llm_forward(model, tokens):
    """Returns 10^12 FLOP: 2 FLOP per active parameter and token. Attention scores, linear or few, are left out."""
    return 2e-12 * ACTIVE[model] * tokens


def vision_forward(image_tokens):
    patches = PATCHES_PER_TOKEN * image_tokens
    return 1e-12 * (2 * VISION_PARAMETERS * patches + 4 * VISION_LAYERS * VISION_WIDTH * patches * patches)


def heavy_tail(chosen, median, sigma, limits):
    return round(min(max(median * 2.718281828459045 ** (sigma * chosen.normalvariate(0, 1)), limits[0]), limits[1]))


def draw_samples(count, seed):
    """Returns [(text tokens, [tokens of each image])]."""
    chosen = random.Random(seed)
    samples = []
    for _ in range(count):
        text = heavy_tail(chosen, TEXT_TOKENS_MEDIAN, TEXT_TOKENS_SIGMA, TEXT_TOKENS)
        images = []
        if chosen.random() < IMAGE_SHARE:
            images.append(0)
            while len(images) < MOST_IMAGES and chosen.random() < IMAGES_GEOMETRIC:
                images.append(0)
        images = [heavy_tail(chosen, IMAGE_TOKENS_MEDIAN, IMAGE_TOKENS_SIGMA, IMAGE_TOKENS) for _ in images]
        samples.append((text, images))
    return samples


def section(name, replicas, trained, **more):
    return {"name": name, "replicas": replicas, "mode": "forward_backward" if trained else "forward_only", **more}


def times(forward, trained):
    """Returns times of passes; a backward pass takes twice as long as its forward pass."""
    result = {"forward_ms": forward}
    backward = {name: round(2 * ms, 3) for name, ms in forward.items() if name in trained}
    if backward:
        result["backward_ms"] = backward
    return result


def vision_language(model, samples, lanes, devices_per_lane, encoder_lanes, encoder_devices_at_once):
    """Returns (separate devices, colocated). `encoder_devices_at_once`: number of a lane's devices that work on the
    encoder, which is in the first pipeline stage of the baseline."""
    drawn = draw_samples(samples, seed=400 if model == "400B-A17B" else 80)
    image_tokens = [sum(images) for _, images in drawn if images]
    transfer = round(HIDDEN_BYTES * sum(image_tokens) / len(image_tokens) / LINK_BYTES_PER_MS, 3)

    def workload(sections, encoder_devices):
        rows = []
        for sample, (text, images) in enumerate(drawn):
            forward = {"llm": milliseconds(llm_forward(model, text + sum(images)), devices_per_lane, LLM_RATE[model])}
            if images:
                forward["vision"] = milliseconds(sum(map(vision_forward, images)), encoder_devices, VISION_RATE)
            rows.append({"id": sample, **times(forward, {"vision", "llm"})})
        own = len(sections[0].get("devices", [])) == 0
        edge = {"from": "vision", "to": "llm", "transfer_ms": transfer if own else 0.0}
        return {"sections": sections, "edges": [{**edge, "slots": 2} if own else edge], "samples": rows}

    together = list(range(lanes))
    return (workload([section("vision", encoder_lanes, True, max_in_flight=8),
                      section("llm", lanes, True, max_in_flight=1)], 1),
            workload([section("vision", lanes, True, devices=together), section("llm", lanes, True, devices=together)],
                     encoder_devices_at_once))


def distillation(samples, lanes, teacher_lanes, devices_per_teacher):
    """Returns (separate devices, colocated)."""
    teacher_flop = llm_forward("400B-A17B", DISTILLATION_TOKENS)
    student_ms = milliseconds(llm_forward("80B-A3B", DISTILLATION_TOKENS), 1, LLM_RATE["80B-A3B"])

    def workload(sections, edge, teacher_ms):
        rows = [{"id": sample, **times({"teacher": teacher_ms, "student": student_ms}, {"student"})}
                for sample in range(samples)]
        return {"sections": sections, "edges": [{"from": "teacher", "to": "student", **edge}], "samples": rows}

    together = list(range(lanes))
    rate = LLM_RATE["400B-A17B"]
    transfer = round(HIDDEN_BYTES * DISTILLATION_TOKENS / LINK_BYTES_PER_MS, 3)
    return (workload([section("teacher", teacher_lanes, False), section("student", lanes, True, max_in_flight=1)],
                     {"slots": 2, "transfer_ms": transfer},
                     milliseconds(teacher_flop, devices_per_teacher, TEACHER_SPEED_UP * rate)),
            workload([section("teacher", lanes, False, devices=together), section("student", lanes, True, devices=together)],
                     {"transfer_ms": 0.0}, milliseconds(teacher_flop, 1, rate)))


def text_of(workload):
    """Returns the file's text, with a line per sample for readable diffs."""
    parts = [json.dumps(workload[key]) for key in ("sections", "edges")]
    rows = ",\n".join("  " + json.dumps(row) for row in workload["samples"])
    return f'{{"sections": {parts[0]},\n "edges": {parts[1]},\n "samples": [\n{rows}]}}\n'


def files():
    pairs = {
        "vlm_400b": vision_language("400B-A17B", samples=512, lanes=16, devices_per_lane=16, encoder_lanes=32,
                                    encoder_devices_at_once=2),
        "vlm_80b": vision_language("80B-A3B", samples=1024, lanes=128, devices_per_lane=1, encoder_lanes=16,
                                   encoder_devices_at_once=1),
        "kd_400b_80b": distillation(samples=1024, lanes=128, teacher_lanes=2, devices_per_teacher=16),
    }
    for name, (own, together) in pairs.items():
        yield f"{name}.json", text_of(own)
        yield f"{name}_colocated.json", text_of(together)


def write_systems(folder):
    """Writes a file for each layout of Cornstarch, DIP, MegaScale-Omni and RRFP."""
    sys.path.insert(0, str(HERE.parent))
    import cornstarch, dip, omni, rrfp
    folder.mkdir(parents=True, exist_ok=True)
    for system in (cornstarch, dip, omni, rrfp):
        for name, workload in system.workloads():
            (folder / f"{name.replace(' ', '_')}.json").write_text(text_of(workload))


def main(arguments):
    if arguments[:1] == ["--systems"] and len(arguments) == 2:
        write_systems(pathlib.Path(arguments[1]))
        return 0
    differing = []
    for name, text in files():
        path = HERE / name
        if arguments != ["--check"]:
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            differing.append(name)
    for name in differing:
        print(f"benchmarks/published/{name} is not what generate.py writes; run it", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
