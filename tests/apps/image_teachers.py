# SPDX-License-Identifier: Apache-2.0
"""Teachers that see other images than their student: folders derived from the recorded SmolVLM, and a job's rows."""

import array
import json
import math
import random
import shutil
import struct
import sys
from pathlib import Path

from model_folders import tensors

HERE = Path(__file__).resolve().parent
FOLDERS = HERE.parent / "dataset/references/images"
IMAGES = HERE.parent / "dataset/references/image_rows/images"
STUDENT = HERE / "references/image_text/smolvlm/model.safetensors"

ROWS = [[("a.png", "What is this?", "Noise, number 0."), (None, "Are you sure?", "Yes.")],
        [("b.jpg", "And this one?", "Noise, number 1.")],
        [(None, "What is noise?", "Anything without a plan.")],
        [("c.webp", "What is this?", "More noise."), ("a.png", "And here?", "Noise, number 0.")]]


def conversation(row):
    """Returns the messages of an entry in ROWS."""
    messages = []
    for image, question, answer in row:
        parts = [{"type": "image", "image": image}] if image else []
        messages += [{"role": "user", "content": [*parts, {"type": "text", "text": question}]},
                     {"role": "assistant", "content": [{"type": "text", "text": answer}]}]
    return messages


def write_rows(file, rows=ROWS):
    file.write_text("".join(json.dumps({"messages": conversation(row)}) + "\n" for row in rows))


def edit(file, change):
    """Rewrites a JSON file after change(its content)."""
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content, indent=2) + "\n")


def student_folder(folder):
    shutil.copytree(FOLDERS / "smolvlm", folder)
    shutil.copy(STUDENT, folder)
    return folder


def write_weights(file, values):
    """Writes {name: (shape, floats)} as a safetensors file in F32."""
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, numbers) in values.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (begin, begin + 4 * len(numbers))}
        begin += 4 * len(numbers)
    text = json.dumps(header).encode()
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, numbers in values.values():
            floats = array.array("f", numbers)
            if sys.byteorder == "big":
                floats.byteswap()
            out.write(floats.tobytes())


def floats_of(entry):
    """Returns the values of an entry of tensors(), in F16 or F32."""
    dtype, _, content = entry
    return struct.unpack(f"<{len(content) // {'F16': 2, 'F32': 4}[dtype]}{ {'F16': 'e', 'F32': 'f'}[dtype]}", content)


def random_weights(shapes):
    chosen = random.Random(5)
    return {name: (shape, [1 + 0.1 * chosen.gauss(0, 1) if len(shape) == 1 and "norm" in name and name.endswith("weight")
                           else 0.15 * chosen.gauss(0, 1) for _ in range(math.prod(shape))])
            for name, shape in sorted(shapes.items())}


def teacher_folder(folder, patch=4, scale=4, tokens=4):
    """Writes a teacher with two layers, other patches and other numbers for its pixels."""
    student_folder(folder)
    shapes = {name: shape for name, (_, shape, _) in tensors(folder).items()}
    for name in list(shapes):
        if "text_model.layers.0." in name:
            shapes[name.replace("layers.0.", "layers.1.")] = shapes[name]
        if name.endswith("patch_embedding.weight"):
            shapes[name] = [32, 3, patch, patch]
        if name.endswith("position_embedding.weight"):
            shapes[name] = [(32 // patch) ** 2, 32]
        if "modality_projection" in name:
            shapes[name] = [32, 32 * scale**2]
    write_weights(folder / "model.safetensors", random_weights(shapes))

    def change_model(config):
        config["text_config"]["num_hidden_layers"] = 2
        config["vision_config"]["patch_size"] = patch
        config["scale_factor"] = scale

    def change_processor(config):
        config["image_seq_len"] = tokens
        config["image_processor"] |= {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.5, 0.4, 0.3], "resample": 3}

    edit(folder / "config.json", change_model)
    edit(folder / "processor_config.json", change_processor)
    return folder


def pattern(count):
    """Returns numbers of all phases, to sum up a gradient with."""
    return [math.cos(0.7 * at) for at in range(count)]


def swap_tokens(folder, one, other):
    """Swaps the ids of two special tokens."""

    def change(content):
        ids = {token["content"]: token["id"] for token in content["added_tokens"]}
        ids[one], ids[other] = ids[other], ids[one]
        for token in content["added_tokens"]:
            token["id"] = ids[token["content"]]
        content["added_tokens"].sort(key=lambda token: token["id"])

    edit(folder / "tokenizer.json", change)
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    image, = [token["id"] for token in added if token["content"] == "<image>"]
    edit(folder / "config.json", lambda content: content.update(image_token_id=image))


def rewriting_folder(folder):
    """Writes a teacher with four times as many tokens for an image, and other ids for them."""
    teacher_folder(folder, patch=8, scale=1, tokens=16)
    swap_tokens(folder, "<image>", "<global-img>")
    return folder


TEACHERS = {"images": teacher_folder, "tokens": rewriting_folder}
