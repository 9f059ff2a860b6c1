#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what transformers answers to questions about images and sounds, for given_omni_test.py.

usage: record_omni_answers.py    (transformers, torch, Pillow, soundfile)

Writes references/image_text/qwen2_5_omni: a thinker of Qwen2.5-Omni with random weights in half precision, its tokenizer, template and
processor's settings as in a folder of the hub; list.jsonl, conversations about the images and sounds of
../dataset/references/{image,sound}_rows; and answers.json: the greedy continuations in single precision by the names of the files, and the
losses before each of four AdamW steps over all rows.
"""

import json
import shutil
import tempfile
from pathlib import Path

import soundfile
import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer
from transformers import (PreTrainedTokenizerFast, Qwen2_5OmniThinkerConfig, Qwen2_5OmniThinkerForConditionalGeneration,
                          WhisperFeatureExtractor)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

HERE = Path(__file__).parent
FOLDER = HERE / "references/image_text/qwen2_5_omni"
IMAGES = HERE.parent / "dataset/references/image_rows/images"
SOUNDS = HERE.parent / "dataset/references/sound_rows/sounds"
QUESTION = "What is this?"
# One entry per question: its files, in the order that `generate` shows.
ASKED = ("a.png", "b.flac", "a.png c.wav", "b.jpg c.webp a.wav b.flac")
LEARNED = (("", "I see and hear nothing."), ("a.png", "An image."), ("b.flac", "Two tones, one for each ear."),
           ("a.png c.wav", "An image, and noise."), ("a.wav b.jpg", "A tone, then an image."),
           ("c.webp b.flac a.png a.wav", "Two of each."))
RATE, STEPS, LR = 16000, 4, 1e-3
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|vision_bos|>", "<|vision_eos|>", "<|audio_bos|>", "<|audio_eos|>", "<|IMAGE|>", "<|AUDIO|>",
           "<|VIDEO|>"]
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n"
            "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
            "{% if part.type == 'image' %}<|vision_bos|><|IMAGE|><|vision_eos|>"
            "{% elif part.type == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>"
            "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SETTINGS = {
    "image_processor_type": "Qwen2VLImageProcessor", "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711], "merge_size": 2, "patch_size": 4, "temporal_patch_size": 2,
    "min_pixels": 256, "max_pixels": 2048, "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 12,
    "chunk_length": 1, "hop_length": 160, "n_fft": 400, "n_samples": 16000, "nb_max_frames": 100, "padding_side": "left",
    "padding_value": 0.0, "dither": 0.0, "return_attention_mask": True, "sampling_rate": RATE, "processor_class": "Qwen2_5OmniProcessor"}


def write_tokenizer():
    made = Tokenizer.from_file(str(HERE.parent / "tokenizer/references/qwen2.json"))
    made.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in SPECIAL])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>")
    tokenizer.save_pretrained(FOLDER)
    (FOLDER / "chat_template.jinja").write_text(TEMPLATE)
    (FOLDER / "preprocessor_config.json").write_text(json.dumps(SETTINGS, indent=2) + "\n")
    return tokenizer


def config_of(tokenizer):
    token = tokenizer.convert_tokens_to_ids
    words = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
             "vocab_size": len(tokenizer), "max_position_embeddings": 4096, "eos_token_id": token("<|im_end|>"),
             "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [2, 3, 3]}}
    seen = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32, "patch_size": 4,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 16, "fullatt_block_indexes": [1]}
    # A chunk has 20 frames, so the sounds have several, and last ones with an odd number of frames.
    heard = {"num_mel_bins": 12, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 48, "d_model": 32,
             "max_source_positions": 20, "n_window": 10, "output_dim": 32}
    return Qwen2_5OmniThinkerConfig(
        text_config=words, vision_config=seen, audio_config=heard, image_token_index=token("<|IMAGE|>"),
        audio_token_index=token("<|AUDIO|>"), video_token_index=token("<|VIDEO|>"), audio_start_token_id=token("<|audio_bos|>"),
        audio_end_token_id=token("<|audio_eos|>"), vision_start_token_id=token("<|vision_bos|>"),
        vision_end_token_id=token("<|vision_eos|>"))


def kind_of(name):
    return "audio" if name.endswith(("wav", "flac")) else "image"


def batch_of(tokenizer, names, answer=None):
    """Returns the inputs of the model for a question about files, as Qwen2_5OmniProcessor makes them."""
    names = names.split()
    parts = [{"type": kind_of(name)} for name in names] + [{"type": "text", "text": QUESTION}]
    messages = [{"role": "user", "content": parts}]
    if answer is not None:
        messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
    text = tokenizer.apply_chat_template(messages, chat_template=TEMPLATE, add_generation_prompt=answer is None, tokenize=False)
    images = [Image.open(IMAGES / name).convert("RGB") for name in names if kind_of(name) == "image"]
    sounds = [soundfile.read(SOUNDS / name, dtype="float32", always_2d=True)[0].mean(1) for name in names if kind_of(name) == "audio"]
    given = {}
    rows = {"image": [], "audio": []}
    if images:
        keys = ("image_mean", "image_std", "merge_size", "patch_size", "temporal_patch_size", "min_pixels", "max_pixels")
        seen = Qwen2VLImageProcessorPil(**{key: SETTINGS[key] for key in keys})(images, return_tensors="pt")
        given |= {"pixel_values": seen["pixel_values"], "image_grid_thw": seen["image_grid_thw"]}
        rows["image"] = (seen["image_grid_thw"].prod(-1) // 4).tolist()
    if sounds:
        extractor = WhisperFeatureExtractor(feature_size=12, chunk_length=1)
        heard = extractor(sounds, sampling_rate=RATE, padding="max_length", return_attention_mask=True, return_tensors="pt")
        given |= {"input_features": heard["input_features"], "feature_attention_mask": heard["attention_mask"]}
        lengths = (heard["attention_mask"].sum(-1) - 1) // 2 + 1
        rows["audio"] = ((lengths - 2) // 2 + 1).tolist()
    for token, kind in (("<|IMAGE|>", "image"), ("<|AUDIO|>", "audio")):
        pieces = text.split(token)
        text = "".join(piece + token * count for piece, count in zip(pieces, [*rows[kind], 0], strict=True))
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **given}


def losses(model, tokenizer):
    """Returns the losses of steps over the answers, up to the token that ends them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.0)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total, count = 0, 0
        for names, answer in LEARNED:
            whole, prompt = batch_of(tokenizer, names, answer), batch_of(tokenizer, names)
            first, ids = prompt["input_ids"].shape[1], whole["input_ids"][0]
            logits = model(**whole).logits[0, first - 1:-1]
            total = total + torch.nn.functional.cross_entropy(logits, ids[first:], reduction="sum")
            count += len(ids) - first
        (total / count).backward()
        found.append((total / count).item())
        optimizer.step()
    return found


def main():
    torch.manual_seed(3)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    tokenizer = write_tokenizer()
    with tempfile.TemporaryDirectory() as made:
        begun = Qwen2_5OmniThinkerForConditionalGeneration(config_of(tokenizer))
        for stored, each in begun.named_parameters():
            if each.dim() > 1 and "embed_" not in stored:
                each.data *= 8  # with small values a model repeats one token
        begun.half().save_pretrained(made)
        for name in ("config.json", "model.safetensors"):
            shutil.copy(Path(made) / name, FOLDER)
        model = Qwen2_5OmniThinkerForConditionalGeneration.from_pretrained(made, dtype=torch.float32).eval()
    answers = {}
    for names in ASKED:
        batch = batch_of(tokenizer, names)
        with torch.no_grad():
            written = model.generate(**batch, max_new_tokens=32, do_sample=False, eos_token_id=None)
        answers[names] = written[0][batch["input_ids"].shape[1]:].tolist()
    rows = []
    for names, answer in LEARNED:
        parts = [{"type": kind_of(name), kind_of(name): name} for name in names.split()] + [{"type": "text", "text": QUESTION}]
        rows.append({"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": answer}]})
    (FOLDER / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (FOLDER / "answers.json").write_text(json.dumps({"question": QUESTION, "answers": answers, "losses": losses(model, tokenizer)}) + "\n")
    for file in FOLDER.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    main()
