#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the tokens that transformers' processors make from conversations about images, for image_texts_test.cpp.

Needs `transformers`, `tokenizers` and `Pillow` from PyPI; run from anywhere: tests/dataset/record_image_texts.py
[MODEL...]; with names it records only these models.
Writes, for each model in MODELS, references/images/MODEL: config.json, processor_config.json, tokenizer.json,
tokenizer_config.json and chat_template.jinja as transformers saves them, and references/images/texts.json: the
conversations with their images' sizes, and for each model and conversation a hash of the document's ids and targets.
For a model with sounds an image is a sound of SAMPLES times its width.
The ids are from `processor.apply_chat_template(tokenize=True)`; the targets follow the prefix rule, implemented here a
second time on texts whose images have the texts of the complete conversation. Files of SmolVLM name SmolVLMProcessor,
but Idefics3Processor, which writes the same texts, records them: the former needs a reader of videos.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import transformers
import numpy
from PIL import Image
from tokenizers import AddedToken, Tokenizer
from transformers import (CLIPVisionConfig, Gemma3Config, Gemma3Processor, Gemma3TextConfig, GemmaConfig,
                          Idefics3Config, Idefics3Processor, InternVLConfig, InternVLProcessor, LlamaConfig, LlavaConfig,
                          LlavaOnevisionConfig, LlavaOnevisionProcessor, LlavaProcessor, PaliGemmaConfig,
                          PaliGemmaProcessor, PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLProcessor,
                          Qwen2AudioConfig, Qwen2AudioProcessor, Qwen2Config, Qwen3VLConfig, Qwen3VLProcessor, SiglipVisionConfig, SmolVLMConfig,
                          WhisperFeatureExtractor)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.paligemma import processing_paligemma
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from record_references import common, hash_of, text

TESTS = Path(__file__).resolve().parents[1]
REFERENCES = Path(__file__).resolve().parent / "references" / "images"
CONVERSATIONS = 60
SAMPLES = 100

SMOLVLM = ("<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
           "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
           "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
           "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
           "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}")
BORDERS = ("{% for message in messages %}{{ message.role + '\n' }}{% for part in message.content %}"
           "{% if part.type == 'image' %}{{ '\n<image>\n' }}{% else %}{{ part.text }}{% endif %}{% endfor %}"
           "<end_of_utterance>{% endfor %}{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}")
IMAGES_FIRST = ("{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}%s{% endfor %}"
                "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}%s{% endfor %}")
LLAVA = ("{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}"
         "{% endif %}" + IMAGES_FIRST.replace("%s", "{{ '<image>\n' }}", 1).replace("%s", "{{ content['text'] + ' ' }}")
         + "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}")
ONEVISION = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
             + IMAGES_FIRST.replace("%s", "{{ '<image>' }}", 1).replace("%s", "{{ content['text'] }}")
             + "{{'<|im_end|>'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# Gemma 3's.
GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
"""

INTERNVL = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}{% for content in message['content'] %}"
            "{% if content['type'] == 'image' %}{{ '<IMG_CONTEXT>\n' }}{% else %}{{ content['text'] }}{% endif %}"
            "{% endfor %}{{'<|im_end|>\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
QWEN = ("{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
        "{{ '<|im_start|>' + message['role'] + '\n' }}{% for content in message['content'] %}"
        "{% if content['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
        "{% else %}{{ content['text'] }}{% endif %}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")

# Qwen2-Audio's.
QWEN2_AUDIO = ("{% set audio_count = namespace(value=0) %}{% for message in messages %}"
               "{% if loop.first and message['role'] != 'system' %}"
               "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
               "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
               "{% for content in message['content'] %}{% if 'audio' in content or 'audio_url' in content or "
               "message['type'] == 'audio' or content['type'] == 'audio' %}"
               "{% set audio_count.value = audio_count.value + 1 %}"
               "Audio {{ audio_count.value }}: <|audio_bos|><|AUDIO|><|audio_eos|>\n{% elif 'text' in content %}"
               "{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

MARKED = {"llava": LLAVA.replace("{{ content['text'] + ' ' }}", "TEXT"),
          "llava_onevision": ONEVISION.replace("{{ content['text'] }}", "TEXT")}
GENERATED = ("{% if message['role'] == 'assistant' %}{% generation %}{{ content['text'] + ' ' }}{% endgeneration %}"
             "{% else %}{{ content['text'] + ' ' }}{% endif %}")


def tokenizer_of(name, special, bos, eos, **more):
    made = Tokenizer.from_file(str(TESTS / "tokenizer" / "references" / f"{name}.json"))
    made.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in special])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=bos, eos_token=eos, **more)


def tags():
    return [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]


def tagged(kind, name, template):
    special = ["<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>", "<|im_start|>", *tags()]
    tokenizer = tokenizer_of(name, special, "<|im_start|>", "<end_of_utterance>")
    images = Idefics3ImageProcessorPil(size={"longest_edge": 96}, max_image_size={"longest_edge": 32})
    processor = Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=template)
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 32, "patch_size": 8}
    config = kind(vision_config=vision, scale_factor=2, image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
                  text_config=LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                                          num_attention_heads=2, num_key_value_heads=2, vocab_size=len(tokenizer)))
    return processor, config


def llava():
    tokenizer = tokenizer_of("llama2", ["<image>"], "<s>", None)  # LLaVA's template writes no end
    images = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    processor = LlavaProcessor(images, tokenizer, patch_size=14, vision_feature_select_strategy="default",
                               num_additional_image_tokens=1, chat_template=LLAVA)
    vision = CLIPVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                              image_size=28, patch_size=14)
    words = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                        vocab_size=len(tokenizer))
    return processor, LlavaConfig(vision_config=vision, text_config=words,
                                  image_token_index=tokenizer.convert_tokens_to_ids("<image>"))


def without_videos(kind):
    """Lets a processor be made and saved without its reader of videos."""
    kind.check_argument_for_proper_class = lambda self, name, argument: type(argument)
    kind.get_attributes = classmethod(lambda cls: ["image_processor", "tokenizer"])


def onevision():
    tokenizer = tokenizer_of("qwen2", ["<image>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>")
    grids = [[28 * row, 28 * column] for row in range(1, 4) for column in range(1, 4)]
    images = LlavaOnevisionImageProcessorPil(size={"height": 28, "width": 28}, image_grid_pinpoints=grids)
    LlavaOnevisionProcessor.check_argument_for_proper_class = lambda self, name, argument: type(argument)
    processor = LlavaOnevisionProcessor(images, tokenizer, None, num_image_tokens=16, chat_template=ONEVISION,
                                        vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_2")
    LlavaOnevisionProcessor.get_attributes = classmethod(lambda cls: ["image_processor", "tokenizer"])
    vision = SiglipVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                                image_size=28, patch_size=7)
    words = Qwen2Config(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                        num_key_value_heads=2, vocab_size=len(tokenizer))
    return processor, LlavaOnevisionConfig(
        vision_config=vision, text_config=words, image_token_index=tokenizer.convert_tokens_to_ids("<image>"), image_grid_pinpoints=grids,
        vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_2")


def internvl():
    named = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
             "video_token": "<video>"}
    tokenizer = tokenizer_of("qwen2", [*named.values(), "<|im_start|>", "<|im_end|>"], None, "<|im_end|>",
                             extra_special_tokens=named)
    images = GotOcr2ImageProcessorPil(size={"height": 28, "width": 28}, max_patches=6)
    without_videos(InternVLProcessor)
    processor = InternVLProcessor(images, tokenizer, None, image_seq_length=4, chat_template=INTERNVL)
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
              "image_size": 28, "patch_size": 7, "attention_bias": True}
    words = Qwen2Config(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                        num_key_value_heads=2, vocab_size=len(tokenizer))
    return processor, InternVLConfig(vision_config=vision, text_config=words, tie_word_embeddings=False, image_seq_length=4,
                                     image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"))


def qwen(kind, config, section, words=(), **vision):
    special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    tokenizer = tokenizer_of("qwen2", special, None, "<|im_end|>")
    images = Qwen2VLImageProcessorPil(patch_size=4, size={"shortest_edge": 256, "longest_edge": 4096})
    without_videos(kind)
    processor = kind(images, tokenizer, None, chat_template=QWEN)
    words = {**dict(words), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
             "num_key_value_heads": 2, "vocab_size": len(tokenizer), "max_position_embeddings": 4096,
             "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id,
             "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, **section}}
    names = {"image": "<|image_pad|>", "video": "<|video_pad|>", "vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>"}
    return processor, config(
        text_config=words, vision_config={"depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "patch_size": 4,
                                          "out_hidden_size": 32, **vision},
        **{f"{name}_token_id": tokenizer.convert_tokens_to_ids(token) for name, token in names.items()})


def qwen2_audio():
    special = ["<|im_start|>", "<|im_end|>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
    tokenizer = tokenizer_of("qwen2", special, None, "<|im_end|>")
    processor = Qwen2AudioProcessor(WhisperFeatureExtractor(feature_size=12, chunk_length=1), tokenizer,
                                    chat_template=QWEN2_AUDIO)
    audio = {"model_type": "qwen2_audio_encoder", "num_mel_bins": 12, "d_model": 32, "encoder_layers": 2,
             "encoder_attention_heads": 2, "encoder_ffn_dim": 48, "max_source_positions": 50}
    words = Qwen2Config(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                        num_key_value_heads=2, vocab_size=len(tokenizer), max_position_embeddings=4096, bos_token_id=None,
                        eos_token_id=tokenizer.eos_token_id)
    return processor, Qwen2AudioConfig(audio_config=audio, text_config=words,
                                       audio_token_index=tokenizer.convert_tokens_to_ids("<|AUDIO|>"))


def gemma3():
    named = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    tokenizer = tokenizer_of("gemma", [*named.values(), "<start_of_turn>", "<end_of_turn>"], "<s>", "</s>",
                             extra_special_tokens=named)
    ends = [tokenizer.convert_tokens_to_ids(token) for token in ("</s>", "<end_of_turn>")]
    images = Gemma3ImageProcessorPil(size={"height": 28, "width": 28})
    processor = Gemma3Processor(images, tokenizer, image_seq_length=4, chat_template=GEMMA3)
    vision = SiglipVisionConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                                image_size=28, patch_size=7, vision_use_head=False)
    words = Gemma3TextConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                             num_key_value_heads=1, head_dim=16, sliding_window=6, vocab_size=len(tokenizer),
                             layer_types=["sliding_attention", "full_attention"], max_position_embeddings=4096)
    ids = {f"{name}_index": tokenizer.convert_tokens_to_ids(token) for name, token in named.items()}
    return processor, Gemma3Config(vision_config=vision, text_config=words, mm_tokens_per_image=4, eos_token_id=ends, **ids)


def paligemma():
    processing_paligemma.EXTRA_TOKENS = []  # places and masks, more than a thousand
    tokenizer = tokenizer_of("gemma", ["<image>"], "<bos>", "<eos>", extra_special_tokens={"image_token": "<image>"})
    images = SiglipImageProcessorPil(size={"height": 28, "width": 28}, image_seq_length=16)
    processor = PaliGemmaProcessor(images, tokenizer)
    vision = SiglipVisionConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                                image_size=28, patch_size=7, vision_use_head=False)
    words = GemmaConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                        num_key_value_heads=1, head_dim=16, vocab_size=len(tokenizer), max_position_embeddings=4096)
    return processor, PaliGemmaConfig(vision_config=vision, text_config=words, projection_dim=32,
                                      image_token_index=tokenizer.convert_tokens_to_ids("<image>"))


MODELS = {"smolvlm": lambda: tagged(SmolVLMConfig, "smollm2", SMOLVLM),
          "idefics3": lambda: tagged(Idefics3Config, "llama3", BORDERS), "llava": llava, "llava_onevision": onevision,
          "qwen2_audio": qwen2_audio,
          "internvl": internvl, "gemma3": gemma3, "paligemma": paligemma,
          "qwen2_5_vl": lambda: qwen(Qwen2_5_VLProcessor, Qwen2_5_VLConfig, {"mrope_section": [2, 3, 3]}, window_size=16,
                                     fullatt_block_indexes=[1]),
          "qwen3_vl": lambda: qwen(Qwen3VLProcessor, Qwen3VLConfig, {"mrope_section": [4, 2, 2], "mrope_interleaved": True},
                                   {"head_dim": 16}, num_position_embeddings=64, deepstack_visual_indexes=[0])}


def conversation(source):
    """Returns messages with parts, and the sizes of 0 to 4 images."""
    messages, sizes = [], []
    if source.random() < 0.3:
        messages.append({"role": "system", "content": [{"type": "text", "text": text(source, 8)}]})
    images = source.choice([0, 1, 1, 1, 2, 3, 4])
    for _ in range(source.choice([1, 1, 2, 3])):
        parts = [{"type": "text", "text": text(source, 12)}]
        while images > 0 and source.random() < 0.7:
            images -= 1
            sizes.append([source.choice([8, 20, 28, 33, 60, 90, 130]) + source.randint(0, 9) for _ in range(2)])
            parts.insert(source.randint(0, len(parts)), {"type": "image"})
            if source.random() < 0.3:
                parts.append({"type": "text", "text": text(source, 4)})
        messages.append({"role": "user", "content": parts})
        messages.append({"role": "assistant", "content": [{"type": "text", "text": text(source, 12)}]})
    return messages, sizes


def rendered(processor, messages, prompt):
    return processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)


def ids_of(processor, written):
    tokenizer = processor.tokenizer
    begins = tokenizer.bos_token is not None and written.startswith(tokenizer.bos_token)
    return tokenizer(written, add_special_tokens=not begins)["input_ids"]


def document(processor, messages, sizes):
    hears = hasattr(processor, "audio_token")
    kind = "audio" if hears else "image"
    if hears:
        images = [numpy.zeros(SAMPLES * size[0], dtype=numpy.float32) for size in sizes]
        messages = [{**message, "content": [{"type": "audio"} if part["type"] == "image" else part
                                            for part in message["content"]]} for message in messages]
    else:
        images = [Image.new("RGB", tuple(size)) for size in sizes]
    filled = iter(images)
    given = [{**message, "content": [{"type": kind, kind: next(filled)} if part["type"] == kind else part
                                     for part in message["content"]]} for message in messages]
    texts, replace = [], processor.get_text_with_replacements

    def record(written, *others, **named):
        for each in (*others, *named.values()):
            texts.extend(each or ())
        return replace(written, *others, **named)

    processor.get_text_with_replacements = record
    ids = processor.apply_chat_template(given, tokenize=True, return_dict=True)["input_ids"]
    processor.get_text_with_replacements = replace
    ids = [int(token) for token in (ids[0] if isinstance(ids[0], list) or hasattr(ids[0], "tolist") else ids)]
    written = rendered(processor, messages, False)

    def expanded(part):
        pieces = part.split(processor.audio_token if hears else processor.image_token)
        return "".join(piece + after for piece, after in zip(pieces, [*texts[:len(pieces) - 1], ""]))

    assert ids == ids_of(processor, expanded(written)), (messages, sizes)
    learned = [0] * len(ids)
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before, until = rendered(processor, messages[:at], True), rendered(processor, messages[:at + 1], False)
        if not until.startswith(before) or not written.startswith(until):
            return None
        first, end = (common(ids, ids_of(processor, expanded(each))) for each in (before, until))
        learned[first:len(ids) if until == written else end] = [1] * ((len(ids) if until == written else end) - first)
    return ids, learned


def pairs(processor, messages, sizes):
    """Returns the ids and the suffix's mask of each question with its answer, after all images up to it."""
    if messages[0]["role"] == "system":
        return None
    made, shown = [], 0
    for question, answer in zip(messages[::2], messages[1::2]):
        shown += sum(part["type"] == "image" for part in question["content"])
        prompt = "\n".join(part["text"] for part in question["content"] if part["type"] == "text").strip()
        suffix = answer["content"][0]["text"]
        if shown == 0:  # the processor needs an image
            before, after = (processor.tokenizer(each, add_special_tokens=False)["input_ids"]
                             for each in ("<bos>" + prompt + "\n", suffix + "<eos>"))
            made.append((before + after, [0] * len(before) + [1] * len(after)))
            continue
        batch = processor(images=[[Image.new("RGB", tuple(size)) for size in sizes[:shown]]],
                          text=["<image>" * shown + prompt], suffix=[suffix])
        made.append(tuple([int(value) for value in batch[key][0]] for key in ("input_ids", "token_type_ids")))
    return made


def marked(processor, template, messages, sizes):
    """Returns the ids and transformers' mask of a template with {% generation %}, and learns the end after an answer."""
    filled = (Image.new("RGB", tuple(size)) for size in sizes)
    given = [{**message, "content": [{"type": "image", "image": next(filled)} if part["type"] == "image" else part
                                     for part in message["content"]]} for message in messages]
    made = processor.apply_chat_template(given, chat_template=template, tokenize=True, return_dict=True,
                                         return_assistant_tokens_mask=True)
    ids, mask = ([int(value) for value in made[key][0]] for key in ("input_ids", "assistant_masks"))
    ends = [at for at in range(1, len(ids)) if ids[at] == processor.tokenizer.eos_token_id and mask[at - 1]]
    return ids, [int(learned or at in ends) for at, learned in enumerate(mask)]


def main():
    transformers.logging.set_verbosity_error()
    source = random.Random(14)
    conversations = [conversation(source) for _ in range(CONVERSATIONS)]
    lines = [f'"conversations": [\n' + ",\n".join(json.dumps(each, ensure_ascii=False) for each in conversations) + "]"]
    wanted = sys.argv[1:] or list(MODELS)
    before = json.loads((REFERENCES / "texts.json").read_text()) if sys.argv[1:] else {}
    lines += [f'"{key}": ' + json.dumps(hashes) for key, hashes in before.items()
              if key != "conversations" and key.split()[0] not in wanted]
    for name, make in MODELS.items():
        if name not in wanted:
            continue
        processor, config = make()
        folder = REFERENCES / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        processor.save_pretrained(folder)
        config.save_pretrained(folder)
        tokens = json.loads((folder / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps(tokens, ensure_ascii=False, separators=(",", ":")))
        if name == "smolvlm":
            keys = json.loads((folder / "processor_config.json").read_text())
            keys["processor_class"] = "SmolVLMProcessor"
            keys["image_processor"]["image_processor_type"] = "SmolVLMImageProcessor"
            (folder / "processor_config.json").write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n")
        if name == "paligemma":
            made = [pairs(processor, *each) for each in conversations]
            lines.append(f'"{name}": ' + json.dumps(["refused" if each is None else hash_of(each) for each in made]))
            print(name, len(tokens["added_tokens"]), [[len(pair[0]) for pair in each] for each in made if each][:9])
            continue
        made = [document(processor, *each) for each in conversations]
        lines.append(f'"{name}": ' + json.dumps(["refused" if each is None else hash_of([each]) for each in made]))
        if name in MARKED:
            template = MARKED[name].replace("TEXT", GENERATED)
            (folder / "marked.jinja").write_text(template)
            masks = [marked(processor, template, *each) for each in conversations]
            lines.append(f'"{name} marked": ' + json.dumps([hash_of([each]) for each in masks]))
            print(sum(masks[0][1]), sum(masks[1][1]))
        print(name, len(tokens["added_tokens"]), sum(each is None for each in made), [len(each[0]) for each in made if each][:9])
    (REFERENCES / "texts.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
