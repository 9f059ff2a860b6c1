# SPDX-License-Identifier: Apache-2.0
"""A folder with SmolVLM-256M's shape and random values, and conversations about images."""

import base64
import json
import random
import shutil
import struct
import sys
import zlib
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tests" / "apps")]
from model_folders import REPOSITORY, shapes, write_tensors  # noqa: E402
from shapes import SHAPES  # noqa: E402

SMALL = REPOSITORY / "tests" / "dataset" / "references" / "images" / "smolvlm"  # tokenizer and template
SIDE, PATCH, JOIN = 512, 16, 4
IMAGE_ROWS = (SIDE // PATCH // JOIN) ** 2
IMAGE_TOKEN, VOCABULARY = 701, 49280
TEXT = {**SHAPES["135m"], "vocab_size": VOCABULARY, "tie_word_embeddings": False, "head_dim": 64}
VISION = {"model_type": "smolvlm_vision", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
          "intermediate_size": 3072, "image_size": SIDE, "patch_size": PATCH}
CONFIG = {"model_type": "smolvlm", "architectures": ["SmolVLMForConditionalGeneration"], "scale_factor": JOIN,
          "image_token_id": IMAGE_TOKEN, "tie_word_embeddings": False, "vision_config": VISION,
          "text_config": {key: value for key, value in TEXT.items() if key not in ("architectures", "dtype")}}


def all_shapes():
    """Returns {tensor: shape} of the model."""
    width, ffn, text = VISION["hidden_size"], VISION["intermediate_size"], TEXT["hidden_size"]
    tower, found = "model.vision_model.", {"lm_head.weight": (VOCABULARY, text)}
    found["model.connector.modality_projection.proj.weight"] = (text, width * JOIN**2)
    found |= {name.replace("model.", "model.text_model.", 1): shape for name, shape in shapes(TEXT).items()}
    found |= {f"{tower}embeddings.patch_embedding.weight": (width, 3, PATCH, PATCH),
              f"{tower}embeddings.patch_embedding.bias": (width,),
              f"{tower}embeddings.position_embedding.weight": ((SIDE // PATCH) ** 2, width)}
    norms = ["post_layernorm"]
    for layer in range(VISION["num_hidden_layers"]):
        name = f"encoder.layers.{layer}."
        norms += [f"{name}layer_norm1", f"{name}layer_norm2"]
        linear = {f"self_attn.{part}_proj": (width, width) for part in ("q", "k", "v", "out")}
        linear |= {"mlp.fc1": (ffn, width), "mlp.fc2": (width, ffn)}
        for part, shape in linear.items():
            found |= {f"{tower}{name}{part}.weight": shape, f"{tower}{name}{part}.bias": shape[:1]}
    return found | {f"{tower}{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}


def write_folder(folder):
    """Writes the model with the processor's settings; an image is one tile."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    write_tensors(folder / "model.safetensors", all_shapes())
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(SMALL / name, folder)
    settings = json.loads((SMALL / "processor_config.json").read_text())
    settings["image_seq_len"] = IMAGE_ROWS
    settings["image_processor"] |= {"do_image_splitting": False, "size": {"longest_edge": SIDE},
                                    "max_image_size": {"longest_edge": SIDE}}
    (folder / "processor_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def png(chosen):
    """Returns an image of random squares of 32 pixels."""
    rows = [b"".join(chosen.randbytes(3) * 32 for _ in range(SIDE // 32)) for _ in range(SIDE // 32)]
    content = zlib.compress(b"".join((b"\0" + row) * 32 for row in rows), 1)
    parts = ((b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)), (b"IDAT", content), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts)


def write_conversations(file, rows, words):
    """Writes rows of an image, a question, and an answer of so many numbers."""
    chosen = random.Random(1)
    with open(file, "w") as out:
        for _ in range(rows):
            url = "data:image/png;base64," + base64.b64encode(png(chosen)).decode()
            question = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Which numbers?"}]
            answer = " ".join(str(chosen.randrange(10, 100)) for _ in range(words))
            messages = [{"role": "user", "content": question},
                        {"role": "assistant", "content": [{"type": "text", "text": answer}]}]
            out.write(json.dumps({"messages": messages}) + "\n")
