#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records a distillation step of vision-language models in PyTorch, for image_teachers_test.py.

usage: record_image_teachers.py    (transformers, torch, Pillow)

Writes references/image_teachers.json, for each teacher in TEACHERS: the means of loss, kl, ce and teacher_ce over the
answers of ROWS, and for each parameter of the student, under its stored name, the gradient's norm and its sum with
pattern(). Each model reads the rows with its own processor; row i of the one's answers is paired with row i of the
other's. All in single precision.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoTokenizer, Idefics3Processor
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

from image_teachers import HERE, IMAGES, ROWS, TEACHERS, conversation, pattern, student_folder

sys.path.append(str(HERE.parent / "dataset"))
from record_image_texts import document  # noqa: E402

ALPHA, TEMPERATURE = 0.7, 2.0


def processor_of(folder):
    # SmolVLM's own processor needs a reader of videos; Idefics3's writes the same texts.
    settings = json.loads((folder / "processor_config.json").read_text())
    return Idefics3Processor(Idefics3ImageProcessorPil(**settings["image_processor"]), AutoTokenizer.from_pretrained(folder),
                             image_seq_len=settings["image_seq_len"],
                             chat_template=(folder / "chat_template.jinja").read_text())


class Reader:
    """A model with its processor."""

    def __init__(self, folder):
        self.processor = processor_of(folder)
        self.model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()

    def answers(self, row):
        """Returns the logits before each learned token of a row, and these tokens."""
        messages = conversation(row)
        images = [Image.open(IMAGES / image).convert("RGB") for image, _, _ in row if image]
        ids, learned = document(self.processor, messages, [image.size for image in images])
        given = {"input_ids": torch.tensor([ids])}
        if images:
            given |= {"pixel_values": self.processor.image_processor([images], return_tensors="pt")["pixel_values"]}
        logits = self.model(**given).logits[0]
        at = [place for place in range(len(ids) - 1) if learned[place + 1]]
        return logits[at], torch.tensor([ids[place + 1] for place in at])


def step(folder, make_teacher):
    student, teacher = Reader(student_folder(folder / "student")), Reader(make_teacher(folder / "teacher"))
    sums = dict.fromkeys(("loss", "kl", "ce", "teacher_ce"), 0)
    rows = 0
    for row in ROWS:
        z, targets = student.answers(row)
        with torch.no_grad():
            u, again = teacher.answers(row)
        assert torch.equal(targets, again)
        p, q = (torch.log_softmax(each / TEMPERATURE, -1) for each in (u, z))
        kl = (p.exp() * (p - q)).sum()
        ce = torch.nn.functional.cross_entropy(z, targets, reduction="sum")
        sums["kl"], sums["ce"] = sums["kl"] + kl, sums["ce"] + ce
        sums["teacher_ce"] += torch.nn.functional.cross_entropy(u, targets, reduction="sum")
        sums["loss"] += ALPHA * TEMPERATURE**2 * kl + (1 - ALPHA) * ce
        rows += len(targets)
    (sums["loss"] / rows).backward()
    gradients = {}
    for name, parameter in student.model.named_parameters():
        if parameter.grad is None:
            continue
        values = parameter.grad.double().flatten()
        gradients[name] = [float(values.norm()), float(values @ torch.tensor(pattern(len(values)), dtype=torch.double))]
    return {name: float(value.detach()) / rows for name, value in sums.items()} | {"gradients": gradients}


def main():
    made = {}
    for name, make_teacher in TEACHERS.items():
        with tempfile.TemporaryDirectory() as folder:
            made[name] = step(Path(folder), make_teacher)
        print(name, {key: value for key, value in made[name].items() if key != "gradients"})
    (HERE / "references/image_teachers.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
