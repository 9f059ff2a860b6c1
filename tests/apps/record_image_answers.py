#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what transformers answers to questions about images, for given_vlm_test.py.

usage: record_image_answers.py [MODEL...]    (transformers, torch, Pillow)

Writes references/image_text/MODEL for the folders in ../dataset/references/images: model.safetensors, random weights in
half precision, and answers.json: the greedy continuations in single precision, by the names of the images.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image
from transformers import (AutoConfig, AutoModelForImageTextToText, AutoTokenizer, Gemma3Processor, Idefics3Processor,
                          InternVLProcessor, LlavaOnevisionProcessor, LlavaProcessor, PaliGemmaProcessor, Qwen2_5_VLProcessor, Qwen3VLProcessor)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.paligemma import processing_paligemma
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

HERE = Path(__file__).parent
FOLDERS = HERE.parent / "dataset/references/images"
IMAGES = HERE.parent / "dataset/references/image_rows/images"
QUESTION = "What is this?"
KINDS = {"smolvlm": (Idefics3ImageProcessorPil, Idefics3Processor), "llava": (CLIPImageProcessorPil, LlavaProcessor),
         "llava_onevision": (LlavaOnevisionImageProcessorPil, LlavaOnevisionProcessor),
         "internvl": (GotOcr2ImageProcessorPil, InternVLProcessor),
         "gemma3": (Gemma3ImageProcessorPil, Gemma3Processor),
         "paligemma": (SiglipImageProcessorPil, PaliGemmaProcessor),
         "qwen2_5_vl": (Qwen2VLImageProcessorPil, Qwen2_5_VLProcessor),
         "qwen3_vl": (Qwen2VLImageProcessorPil, Qwen3VLProcessor)}
LARGER = {"paligemma": 15}  # factor of the products' initial matrices: with small ones a model repeats one token
ASKED = (["a.png"], ["b.jpg"], ["c.webp"], ["a.png", "b.jpg"])


def processor_of(name):
    # SmolVLM's own processor needs a reader of videos; Idefics3's writes the same texts.
    settings = json.loads((FOLDERS / name / "processor_config.json").read_text())
    kind, whole = KINDS[name]
    given = {key: value for key, value in settings.items() if key not in ("image_processor", "processor_class", "video_processor")}
    file = FOLDERS / name / "chat_template.jinja"
    template = file.read_text() if file.exists() else None
    parts = [kind(**settings["image_processor"]), AutoTokenizer.from_pretrained(FOLDERS / name)]
    if name in ("llava_onevision", "internvl", "qwen2_5_vl", "qwen3_vl"):  # without its reader of videos
        whole.check_argument_for_proper_class = lambda self, name, argument: type(argument)
        parts.append(None)
    made = whole(*parts, chat_template=template, **given)
    if len(parts) == 3:
        whole.get_attributes = classmethod(lambda cls: ["image_processor", "tokenizer"])
    return made


def main():
    processing_paligemma.EXTRA_TOKENS = []
    for name in sys.argv[1:] or KINDS:
        torch.manual_seed(3)
        folder = HERE / "references/image_text" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as made:
            begun = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(FOLDERS / name))
            for stored, matrix in begun.named_parameters():
                if matrix.dim() > 1 and not matrix.any():  # Gemma 3's projector begins with zeros
                    torch.nn.init.normal_(matrix, std=0.2)
                elif matrix.dim() > 1 and "embed_tokens" not in stored:
                    matrix.data *= LARGER.get(name, 1)
            begun.half().save_pretrained(made)
            shutil.copy(Path(made) / "model.safetensors", folder)
            model = AutoModelForImageTextToText.from_pretrained(made, dtype=torch.float32).eval()
        processor, answers = processor_of(name), {}
        for images in ASKED:
            content = [{"type": "image"} for _ in images] + [{"type": "text", "text": QUESTION}]
            text = "<image>" * len(images) + QUESTION  # of a model without a template
            if processor.chat_template:
                text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
            # As apply_chat_template does: no second begin of text.
            begun = processor.tokenizer.bos_token is not None and text.startswith(processor.tokenizer.bos_token)
            batch = processor(text=text, images=[[Image.open(IMAGES / each).convert("RGB") for each in images]],
                              return_tensors="pt", **({"add_special_tokens": False} if begun else {}))
            with torch.no_grad():
                written = model.generate(**batch, max_new_tokens=32, do_sample=False, eos_token_id=None)
            answers[" ".join(images)] = written[0][batch["input_ids"].shape[1]:].tolist()
        (folder / "answers.json").write_text(json.dumps({"question": QUESTION, "answers": answers}) + "\n")


if __name__ == "__main__":
    main()
