#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records Hugging Face transformers' and PyTorch's results for tiny vision parts, for vision_reference_test.cpp.

Needs torch, transformers and safetensors; run from anywhere: tests/sections/record_vision_references.py [MODEL...]
With names it records only these models of image_text.
Writes references/<model>/: config.json and model.safetensors, and expected.safetensors:
  siglip     pixels (P, 3 patch^2), places (P, 3), sample offsets (S + 1), features and their gradient dfeatures
             (P, C), gradient.<name> of sum(features * dfeatures); model.safetensors also holds the pooling head
  projector  features, visual, dvisual, gradient.<name> and gradient.features of sum(visual * dvisual)
  vision_language_<family>
             tokens (M; -1: image position), targets (M), offsets (S + 1), patch_offsets (S + 1), visual (P, C), loss,
             gradient.<name> and gradient.visual of the loss, exact_match (hits, samples)
  image_text/<model>
             complete vision-language models as saved by transformers: tokens, targets, offsets, pixels and places of the
             encoder's rows (class rows with zeros; blocks of joined patches), patch_offsets, visual_offsets, logits
             (M, V), loss, gradient.<stored name> of the loss; names.json has the modules' name of each stored tensor;
             rows of an image see each other in gemma3, rows before the first target in paligemma;
             of onevision also image_sizes (N, 2) = (height, width) and image_offsets (S + 1); of the models with
             images of any size also marks (M, 4) = three positions and the end of attention, visual (V, C) and
             visual_1, ... of the decoder's rows, with gradient.visual, ... of the loss. With sounds,
             pixels are a row's three windows, each with three frames, and the position table, which is not trained,
             has the gradient 0
  omni       a thinker of Qwen2.5-Omni, as the models of image_text; also sound_pixels, sound_places, frame_offsets and heard_offsets of
             the sounds, whose tokens are -2. The second encoder's rows are those of chunks
All fp32. With arguments, only these models of image_text are recorded. gradient.<name> has an entry for each stored tensor that has a gradient.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

import torch
from record_references import POSITIONS, VOCABULARY, WIDTH, cross_entropy, gpt2, llama, randomise
from record_text_parts import matched, tensors
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForImageTextToText, AutoModelForMultimodalLM, LlavaConfig, LlamaConfig, Qwen2_5OmniThinkerForConditionalGeneration, SiglipVisionConfig, SiglipVisionModel
from transformers.models.llava.modeling_llava import LlavaMultiModalProjector
from transformers.models.llava_onevision.modeling_llava_onevision import image_size_to_num_patches

ROOT = pathlib.Path(os.path.realpath(__file__)).parent / "references"
PATCH, GRID, VISION_WIDTH = 4, 3, 32
IMAGES = (2, 1)  # images by sample
LENGTHS, PATCHES = (14, 9, 12), (6, 0, 4)


def prefixed(name):
    """Returns the name in files from transformers before 5, which the encoder uses."""
    return name if name.startswith("vision_model.") else f"vision_model.{name}"


def gradients(model, name_of=lambda name: name):
    return {f"gradient.{name_of(name)}": p.grad.clone().contiguous()
            for name, p in model.named_parameters() if p.grad is not None}


def offsets(lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)


def randomise_vision(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "norm" in name and name.endswith("weight")
            parameter.normal_(1.0 if norm else 0.0, 0.15 if parameter.dim() > 1 else 0.1)


def patches_of(images):
    """Converts (N, 3, H, W) to (N H W / patch^2, 3 patch^2): a row per patch, in order (channel, row, column)."""
    n, side = len(images), GRID
    cut = images.view(n, 3, side, PATCH, side, PATCH).permute(0, 2, 4, 1, 3, 5)
    return cut.reshape(n * side * side, 3 * PATCH * PATCH).contiguous()


def record_siglip():
    torch.manual_seed(8)
    folder = ROOT / "siglip"
    model = SiglipVisionModel(SiglipVisionConfig(
        hidden_size=VISION_WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        image_size=PATCH * GRID, patch_size=PATCH, attn_implementation="eager"))
    randomise_vision(model)
    model.save_pretrained(folder)
    images = torch.rand(sum(IMAGES), 3, PATCH * GRID, PATCH * GRID) * 2 - 1
    features = model(images).last_hidden_state.reshape(-1, VISION_WIDTH)
    dfeatures = torch.randn_like(features)
    (features * dfeatures).sum().backward()
    places = [[image, row, column] for count in IMAGES for image in range(count)
              for row in range(GRID) for column in range(GRID)]
    save_file({"pixels": patches_of(images), "places": torch.tensor(places, dtype=torch.int32),
               "offsets": offsets([count * GRID * GRID for count in IMAGES]),
               "features": features.detach().contiguous(), "dfeatures": dfeatures} | gradients(model, prefixed),
              folder / "expected.safetensors")
    print(f"siglip: {len(features)} patches")


def record_projector():
    torch.manual_seed(9)
    folder = ROOT / "projector"
    config = LlavaConfig(vision_config=SiglipVisionConfig(hidden_size=VISION_WIDTH, num_attention_heads=2),
                         projector_hidden_act="gelu_pytorch_tanh", vision_feature_layer=-1,
                         vision_feature_select_strategy="full",
                         text_config=LlamaConfig(hidden_size=WIDTH, num_attention_heads=4, num_key_value_heads=4))
    model = LlavaMultiModalProjector(config)
    randomise_vision(model)
    config.save_pretrained(folder)
    save_file({f"multi_modal_projector.{name}": p.detach() for name, p in model.named_parameters()},
              folder / "model.safetensors", {"format": "pt"})
    features = torch.randn(7, VISION_WIDTH, requires_grad=True)
    visual = model(features)
    dvisual = torch.randn_like(visual)
    (visual * dvisual).sum().backward()
    save_file({"features": features.detach(), "visual": visual.detach(), "dvisual": dvisual,
               "gradient.features": features.grad}
              | gradients(model, lambda name: f"multi_modal_projector.{name}"), folder / "expected.safetensors")
    print("projector")


def with_images(tokens, marked):
    tokens[marked] = -1
    return tokens


def record_decoder(name, model):
    torch.manual_seed(10)
    folder = ROOT / name
    randomise(model)
    model.eval()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    samples = [torch.randint(0, VOCABULARY, (length,)) for length in LENGTHS]
    with_images(samples[0], [1, 2, 3, 7, 8, 9])  # two images with text between
    with_images(samples[2], [0, 1, 2, 3])
    tokens = torch.cat(samples).int()
    visual = torch.randn(sum(PATCHES), WIDTH, requires_grad=True)
    targets = torch.randint(0, VOCABULARY, tokens.shape, dtype=torch.int32)
    targets[tokens < 0] = -1
    targets[4] = targets[-1] = -1
    logits = []
    for sample, rows in zip(samples, visual.split(PATCHES)):
        embeds = model.get_input_embeddings()(sample.clamp(min=0)).clone()
        embeds[sample < 0] = rows
        logits.append(model(inputs_embeds=embeds[None]).logits[0])
    logits = torch.cat(logits)
    bounds = offsets(LENGTHS)
    best = logits.argmax(-1).int()
    last = slice(bounds[2], bounds[3])  # the last sample is answered correctly
    targets[last] = torch.where(targets[last] < 0, targets[last], best[last])
    hits = sum(bool(((best == targets) | (targets < 0))[bounds[s]:bounds[s + 1]].all()) for s in range(len(samples)))
    loss = cross_entropy(logits, targets)
    loss.backward()
    expected = {"tokens": tokens, "targets": targets, "offsets": bounds, "patch_offsets": offsets(PATCHES),
                "visual": visual.detach(), "loss": loss.detach().reshape(1), "gradient.visual": visual.grad,
                "exact_match": torch.tensor([hits, len(samples)], dtype=torch.float32)}
    save_file(expected | gradients(model), folder / "expected.safetensors")
    print(f"{name}: loss {loss.item():.6f}, {hits} of {len(samples)} exact")


TEXT = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TOWER = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 8,
         "patch_size": 2, "vision_use_head": False}
INTERNVL = {key: value for key, value in TOWER.items() if key != "vision_use_head"}
IMAGE_TOKEN = 39
WHOLE = {
    "llava_clip": ("llava", {"text_config": {"model_type": "llama", **TEXT}, "image_token_index": IMAGE_TOKEN,
                             "vision_config": {"model_type": "clip_vision_model", "projection_dim": 8, **TOWER}}),
    "llava_siglip": ("llava", {"text_config": {"model_type": "llama", **TEXT}, "image_token_index": IMAGE_TOKEN,
                               "vision_config": {"model_type": "siglip_vision_model", **TOWER},
                               "vision_feature_layer": -1, "vision_feature_select_strategy": "full"}),
    "smolvlm": ("smolvlm", {"text_config": {"model_type": "llama", "rms_norm_eps": 1e-5, **TEXT},
                            "vision_config": TOWER, "image_token_id": IMAGE_TOKEN, "scale_factor": 2}),
    "onevision": ("llava_onevision", {"text_config": {"model_type": "qwen2", **TEXT}, "image_token_index": IMAGE_TOKEN,
                                      "video_token_index": IMAGE_TOKEN - 1, "vision_aspect_ratio": "anyres_max_2",
                                      "vision_config": {"model_type": "siglip_vision_model", **TOWER},
                                      "image_grid_pinpoints": [[8, 8], [8, 16], [16, 8], [16, 16]]}),
    "internvl": ("internvl", {"text_config": {"model_type": "qwen2", **TEXT}, "image_token_id": IMAGE_TOKEN,
                              "vision_config": {**INTERNVL, "attention_bias": True}, "tie_word_embeddings": False}),
    "internvl_rms": ("internvl", {"text_config": {"model_type": "llama", **TEXT}, "image_token_id": IMAGE_TOKEN,
                                  "vision_config": {**INTERNVL, "norm_type": "rms_norm", "use_qk_norm": True,
                                                    "use_mean_pooling": False}, "tie_word_embeddings": False}),
    "gemma3": ("gemma3", {"text_config": {"model_type": "gemma3_text", "head_dim": 8, "sliding_window": 3,
                                          "query_pre_attn_scalar": 6, **TEXT, "num_hidden_layers": 3,
                                          "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
                          "vision_config": {"model_type": "siglip_vision_model", "layer_norm_eps": 1e-3, **TOWER},
                          "mm_tokens_per_image": 4, "image_token_index": IMAGE_TOKEN, "boi_token_index": 37,
                          "eoi_token_index": 38}),
    "paligemma": ("paligemma", {"text_config": {"model_type": "gemma", "head_dim": 8, **TEXT},
                                "vision_config": {"model_type": "siglip_vision_model", **TOWER},
                                "image_token_index": IMAGE_TOKEN, "projection_dim": 16}),
}
SUFFIX = 3  # tokens of a sample after its prefix
# Height and width of each sample's images: of onevision, which fits them into canvases.
FITTED = (((9, 20),), (), ((7, 5), (3, 8)), ((15, 13),), ((40, 12),))
TILES = (2, 0, 1)  # by sample


def encoder_rows(images, merge, class_row):
    """Returns the encoder's rows and places of tiles (N, 3, H, W): patches in blocks, after a class row if there is one."""
    patch, side = TOWER["patch_size"], TOWER["image_size"] // TOWER["patch_size"]
    pixels, places = [], []
    for tile, image in enumerate(images):
        if class_row:
            pixels.append(torch.zeros(3 * patch * patch))
            places.append([tile, -1, -1])
        for block_row in range(0, side, merge):
            for block_column in range(0, side, merge):
                for row in range(block_row, block_row + merge):
                    for column in range(block_column, block_column + merge):
                        pixels.append(image[:, row * patch:(row + 1) * patch,
                                            column * patch:(column + 1) * patch].reshape(-1))
                        places.append([tile, row, column])
    return pixels, places


def fitted_tiles(sizes, settings):
    """Returns the numbers of tiles of a sample's images."""
    if len(sizes) != 1:
        return [1] * len(sizes)
    pins, side = settings["image_grid_pinpoints"], TOWER["image_size"]
    return [image_size_to_num_patches(list(size), pins, side) for size in sizes]


def save_folder(model, folder):
    """Saves a model, and returns the modules' name of each stored tensor."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as raw:
        model.save_pretrained(raw, save_original_format=False)
        names = matched(tensors(folder), tensors(raw))
    (folder / "names.json").write_text(json.dumps(names, indent=1, sort_keys=True) + "\n")
    return names


def record_whole(name):
    torch.manual_seed(12)
    family, settings = WHOLE[name]
    smolvlm, class_row = family == "smolvlm", name.endswith("clip") or family == "internvl"
    model = AutoModelForImageTextToText.from_config(
        AutoConfig.for_model(family, **json.loads(json.dumps(settings))), dtype=torch.float32).eval()
    randomise_vision(model)
    folder = ROOT / "image_text" / name
    names = save_folder(model, folder)
    merge = 2 if family in ("internvl", "gemma3") else settings.get("scale_factor", 1)
    each = (TOWER["image_size"] // TOWER["patch_size"]) ** 2 // merge ** 2
    tokens, logits, pixels, places, all_tiles, visual = [], [], [], [], [], []
    for sizes in FITTED if name == "onevision" else [[None] * count for count in TILES]:
        tiles = fitted_tiles(sizes, settings) if name == "onevision" else [1] * len(sizes)
        images = torch.randn(sum(tiles), 3, TOWER["image_size"], TOWER["image_size"])
        given = {} if not sizes else {"pixel_values": images[None] if smolvlm else images}
        rows = [each] * len(sizes)
        if name == "onevision" and sizes:
            padded = torch.zeros(len(sizes), max(tiles), *images.shape[1:])
            for at, part in enumerate(images.split(tiles)):
                padded[at, :tiles[at]] = part
            given = {"pixel_values": padded, "image_sizes": torch.tensor(sizes),
                     "batch_num_images": torch.tensor([len(sizes)])}
            rows = [len(part) for part in model.model.get_image_features(**given).pooler_output]
        words = [torch.randint(3, IMAGE_TOKEN - 1, (3,)) for _ in range(len(sizes) + 2)]
        sample = torch.cat([piece for word, count in zip(words, rows)
                            for piece in (word, torch.full((count,), IMAGE_TOKEN))] + words[len(sizes):])
        if family == "gemma3":
            given["token_type_ids"] = (sample == IMAGE_TOKEN).long()[None]
        if family == "paligemma":
            given["token_type_ids"] = torch.cat([torch.zeros(len(sample) - SUFFIX), torch.ones(SUFFIX)]).long()[None]
        all_tiles.append(sum(tiles))
        visual.append(sum(rows))
        logits.append(model(input_ids=sample[None], **given).logits[0])
        seen = encoder_rows(images, merge, class_row)
        pixels += seen[0]
        places += seen[1]
        tokens.append(sample)
    lengths = [len(sample) for sample in tokens]
    tokens, logits = torch.cat(tokens).int(), torch.cat(logits)
    targets = torch.randint(0, TEXT["vocab_size"], tokens.shape, dtype=torch.int32)
    targets[tokens == IMAGE_TOKEN] = -1
    targets[-1] = -1
    if family == "paligemma":
        for first, length in zip(offsets(lengths).tolist(), lengths):
            targets[first:first + length - SUFFIX - 1] = -1
    loss = cross_entropy(logits, targets)
    loss.backward()
    tokens[tokens == IMAGE_TOKEN] = -1
    stored = {raw: hub for hub, raw in names.items()}
    per_tile = (TOWER["image_size"] // TOWER["patch_size"]) ** 2 + class_row
    save_file({"tokens": tokens, "targets": targets, "offsets": offsets(lengths), "pixels": torch.stack(pixels),
               "places": torch.tensor(places, dtype=torch.int32), "logits": logits.detach().contiguous(),
               "loss": loss.detach().reshape(1), "patch_offsets": offsets([tiles * per_tile for tiles in all_tiles]),
               "visual_offsets": offsets(visual)}
              | ({"image_sizes": torch.tensor([size for sizes in FITTED for size in sizes], dtype=torch.int32),
                  "image_offsets": offsets([len(sizes) for sizes in FITTED])} if name == "onevision" else {})
              | gradients(model, stored.__getitem__), folder / "expected.safetensors")
    if name == "onevision":
        (folder / "preprocessor_config.json").write_text(json.dumps({
            "image_processor_type": "LlavaOnevisionImageProcessor", "size": {"height": 8, "width": 8},
            "image_grid_pinpoints": settings["image_grid_pinpoints"]}) + "\n")
    print(f"{name}: loss {loss.item():.6f}")


MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
IDS = {"image_token_id": IMAGE_TOKEN, "video_token_id": IMAGE_TOKEN - 1, "vision_start_token_id": 3,
       "vision_end_token_id": 4}
NATIVE_TOWER = {"depth": 3, "num_heads": 2, "patch_size": 2}
NATIVE = {
    "qwen2_vl": ("qwen2_vl", {"text_config": {**TEXT, "rope_parameters": MROPE}, **IDS,
                              "vision_config": {**NATIVE_TOWER, "embed_dim": 16, "hidden_size": 16, "mlp_ratio": 2}}),
    # Windows of 4 x 4 patches, in all layers but the second.
    "qwen2_5_vl": ("qwen2_5_vl", {"text_config": {**TEXT, "rope_parameters": MROPE}, **IDS,
                                  "vision_config": {**NATIVE_TOWER, "hidden_size": 16, "out_hidden_size": 16,
                                                    "intermediate_size": 20, "window_size": 8,
                                                    "fullatt_block_indexes": [1]}}),
    "qwen3_vl": ("qwen3_vl", {"text_config": {**TEXT, "num_hidden_layers": 3, "head_dim": 8,
                                              "rope_parameters": {**MROPE, "mrope_interleaved": True}}, **IDS,
                              "vision_config": {**NATIVE_TOWER, "hidden_size": 8, "out_hidden_size": 16,
                                                "intermediate_size": 12, "num_position_embeddings": 25,
                                                "deepstack_visual_indexes": [0, 1]}}),
}
GRIDS = (((6, 10), (4, 2)), (), ((2, 14),), ((8, 6),))  # patches of each sample's images, rows and columns


def native_rows(rows, columns, merge=2):
    """Returns the places of an image's patches, in blocks."""
    return [(block_row + row, block_column + column) for block_row in range(0, rows, merge)
            for block_column in range(0, columns, merge) for row in range(merge) for column in range(merge)]


def record_native(name):
    torch.manual_seed(13)
    family, settings = NATIVE[name]
    model = AutoModelForImageTextToText.from_config(
        AutoConfig.for_model(family, **json.loads(json.dumps(settings))), dtype=torch.float32).eval()
    randomise_vision(model)
    folder = ROOT / "image_text" / name
    names = save_folder(model, folder)
    made = []  # the decoder's rows of each sample with images, by kind

    def keep(_module, _inputs, output):
        made.append([output.pooler_output, *(getattr(output, "deepstack_features", None) or [])])
        for rows in made[-1]:
            rows.retain_grad()

    model.model.visual.register_forward_hook(keep)
    patch = NATIVE_TOWER["patch_size"]
    tokens, logits, pixels, places, marks = [], [], [], [], []
    for grids in GRIDS:
        words = [torch.randint(5, IMAGE_TOKEN - 1, (2,)) for _ in range(len(grids) + 1)]
        sample = torch.cat([piece for word, (rows, columns) in zip(words, grids)
                            for piece in (word, torch.tensor([3] + [IMAGE_TOKEN] * (rows * columns // 4) + [4]))]
                           + words[len(grids):])[None]
        given = {}
        positions = torch.arange(sample.shape[1]).expand(3, -1)
        if grids:
            seen = torch.randn(sum(rows * columns for rows, columns in grids), 3, patch * patch)
            sizes = torch.tensor([(1, rows, columns) for rows, columns in grids])
            types = (sample == IMAGE_TOKEN).int()
            # A still counts in both frames.
            given = {"pixel_values": seen[:, :, None].expand(-1, -1, 2, -1).reshape(len(seen), -1),
                     "image_grid_thw": sizes, "mm_token_type_ids": types}
            positions = model.model.get_rope_index(sample, types, image_grid_thw=sizes)[0][:, 0]
            pixels.append(seen.reshape(len(seen), -1))
            places += [(image, *place) for image, grid in enumerate(grids) for place in native_rows(*grid)]
        logits.append(model(input_ids=sample, **given).logits[0])
        tokens.append(sample[0])
        marks.append(torch.cat([positions.T, torch.arange(1, sample.shape[1] + 1)[:, None]], 1).int())
    lengths = [len(sample) for sample in tokens]
    tokens, logits = torch.cat(tokens).int(), torch.cat(logits)
    targets = torch.randint(0, TEXT["vocab_size"], tokens.shape, dtype=torch.int32)
    targets[tokens == IMAGE_TOKEN] = -1
    targets[-1] = -1
    loss = cross_entropy(logits, targets)
    loss.backward()
    tokens[tokens == IMAGE_TOKEN] = -1
    patches = [sum(rows * columns for rows, columns in grids) for grids in GRIDS]
    expected = {"tokens": tokens, "targets": targets, "offsets": offsets(lengths), "pixels": torch.cat(pixels),
                "places": torch.tensor(places, dtype=torch.int32), "logits": logits.detach().contiguous(),
                "loss": loss.detach().reshape(1), "patch_offsets": offsets(patches),
                "visual_offsets": offsets([count // 4 for count in patches]), "marks": torch.cat(marks)}
    for kind, rows in enumerate(zip(*made)):
        port = "visual" if kind == 0 else f"visual_{kind}"
        expected[port] = torch.cat(rows).detach().contiguous()
        expected[f"gradient.{port}"] = torch.cat([each.grad for each in rows]).contiguous()
    stored = {raw: hub for hub, raw in names.items()}
    save_file(expected | gradients(model, stored.__getitem__), folder / "expected.safetensors")
    print(f"{name}: loss {loss.item():.6f}")


HEARD = {
    "qwen2_audio": ("qwen2_audio", {
        "text_config": {"model_type": "qwen2", **TEXT}, "audio_token_index": IMAGE_TOKEN,
        "audio_config": {"model_type": "qwen2_audio_encoder", "num_mel_bins": 5, "d_model": 16, "encoder_layers": 3,
                         "encoder_attention_heads": 2, "encoder_ffn_dim": 24, "max_source_positions": 20}}),
    # All rows of a clip are used, four of them side by side.
    "voxtral": ("voxtral", {
        "text_config": {"model_type": "llama", **TEXT}, "audio_token_id": IMAGE_TOKEN,
        "audio_config": {"model_type": "voxtral_encoder", "num_mel_bins": 5, "hidden_size": 16, "num_hidden_layers": 3,
                         "num_attention_heads": 2, "intermediate_size": 64, "max_source_positions": 8}}),
}
FRAMES = ((9, 12), (), (39,), (13,))  # of each sample's sounds; an odd number of rows leaves one over


def heard_rows(frames, count):
    """Returns the encoder's rows of a clip (mels, frames): the frames around 2 r - 1, 2 r and 2 r + 1 of row r."""
    def window(middle):
        around = [frames[:, at] if 0 <= at < frames.shape[1] else torch.zeros(len(frames))
                  for at in (middle - 1, middle, middle + 1)]
        return torch.stack(around, 1).reshape(-1) if middle >= 0 else torch.zeros(3 * len(frames))
    return [torch.cat([window(2 * row + offset) for offset in (-1, 0, 1)]) for row in range(count)]


def record_heard(name):
    torch.manual_seed(14)
    family, settings = HEARD[name]
    model = AutoModelForMultimodalLM.from_config(
        AutoConfig.for_model(family, **json.loads(json.dumps(settings))), dtype=torch.float32).eval()
    randomise_vision(model)
    folder = ROOT / "image_text" / name
    names = save_folder(model, folder)
    audio = settings["audio_config"]
    mels, clip = audio["num_mel_bins"], 2 * audio["max_source_positions"]
    tokens, logits, pixels, places, rows, visual = [], [], [], [], [], []
    for lengths in FRAMES:
        encoder = [(length - 1) // 2 + 1 for length in lengths]
        decoder = [(count - 2) // 2 + 1 for count in encoder]
        frames = torch.randn(len(lengths), mels, clip)
        given = {}
        if family == "voxtral":
            encoder, decoder = ([rows] * len(lengths) for rows in (clip // 2, clip // 8))
            given = {"input_features": frames} if lengths else {}
        elif lengths:
            mask = torch.arange(clip)[None] < torch.tensor(lengths)[:, None]
            given = {"input_features": frames, "feature_attention_mask": mask.long()}
        words = [torch.randint(3, IMAGE_TOKEN - 1, (3,)) for _ in range(len(lengths) + 2)]
        sample = torch.cat([piece for word, count in zip(words, decoder)
                            for piece in (word, torch.full((count,), IMAGE_TOKEN))] + words[len(lengths):])
        logits.append(model(input_ids=sample[None], **given).logits[0])
        for sound, count in enumerate(encoder):
            pixels += heard_rows(frames[sound], count)
            places += [[sound, row, 0] for row in range(count)]
        tokens.append(sample)
        rows.append(sum(encoder))
        visual.append(sum(decoder))
    lengths = [len(sample) for sample in tokens]
    tokens, logits = torch.cat(tokens).int(), torch.cat(logits)
    targets = torch.randint(0, TEXT["vocab_size"], tokens.shape, dtype=torch.int32)
    targets[tokens == IMAGE_TOKEN] = -1
    targets[-1] = -1
    loss = cross_entropy(logits, targets)
    loss.backward()
    tokens[tokens == IMAGE_TOKEN] = -1
    stored = {raw: hub for hub, raw in names.items()}
    untrained = {f"gradient.{stored[name]}": torch.zeros_like(p) for name, p in model.named_parameters()
                 if not p.requires_grad}
    save_file({"tokens": tokens, "targets": targets, "offsets": offsets(lengths), "pixels": torch.stack(pixels),
               "places": torch.tensor(places, dtype=torch.int32), "logits": logits.detach().contiguous(),
               "loss": loss.detach().reshape(1), "patch_offsets": offsets(rows), "visual_offsets": offsets(visual)}
              | untrained | gradients(model, stored.__getitem__), folder / "expected.safetensors")
    print(f"{name}: loss {loss.item():.6f}")


OMNI = {
    "text_config": {**TEXT, "rope_parameters": MROPE}, "image_token_index": IMAGE_TOKEN, "audio_token_index": IMAGE_TOKEN - 1,
    "video_token_index": IMAGE_TOKEN - 2, "vision_start_token_id": 3, "vision_end_token_id": 4, "audio_start_token_id": 31,
    "audio_end_token_id": 32,
    "vision_config": {**NATIVE_TOWER, "hidden_size": 16, "out_hidden_size": 16, "intermediate_size": 20, "window_size": 8,
                      "fullatt_block_indexes": [1]},
    # Chunks of 8 frames.
    "audio_config": {"num_mel_bins": 5, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24, "d_model": 12,
                     "max_source_positions": 20, "n_window": 4, "output_dim": 16}}
# Of each sample the grids of images, in patches, and the frames of sounds, in the order of the text.
SHOWN = (((6, 10), 11), (), (13, (2, 4)), (8, (4, 2), 21, (2, 14)), ((8, 6),), (9,))


def chunk_rows(frames, window):
    """Returns rows and places (row, column) of a sound (mels, frames), cut into chunks."""
    rows, places = [], []
    for first in range(0, frames.shape[1], 2 * window):
        chunk = frames[:, first:first + 2 * window]
        count = (chunk.shape[1] + 1) // 2
        made = heard_rows(chunk, count)
        if chunk.shape[1] % 2:
            made[-1][-3 * len(frames):] = 0  # the last window lies after the end
        rows += made
        places += [(first // (2 * window), row, int(2 * row + 1 >= chunk.shape[1])) for row in range(count)]
    return rows, places


def record_omni():
    torch.manual_seed(15)
    config = AutoConfig.for_model("qwen2_5_omni_thinker", **json.loads(json.dumps(OMNI)))
    model = Qwen2_5OmniThinkerForConditionalGeneration(config).float().eval()
    randomise_vision(model)
    folder = ROOT / "omni"
    names = save_folder(model, folder)
    patch, window = NATIVE_TOWER["patch_size"], OMNI["audio_config"]["n_window"]
    tokens, logits, marks = [], [], []
    pixels, places, patches = [], [], []
    sounds, sound_places, frames_of = [], [], []
    for shown in SHOWN:
        pieces, images, heard = [torch.randint(5, 30, (3,))], [], []
        for item in shown:
            sound = isinstance(item, int)
            rows = ((item - 1) // 2 + 1) // 2 if sound else item[0] * item[1] // 4
            begin, end = (31, 32) if sound else (3, 4)
            pieces += [torch.tensor([begin] + [IMAGE_TOKEN - sound] * rows + [end]), torch.randint(5, 30, (2,))]
            (heard if sound else images).append(torch.randn(5, item) if sound else item)
        sample = torch.cat(pieces)[None]
        given = {"attention_mask": torch.ones_like(sample)}
        patches.append(sum(rows * columns for rows, columns in images))
        frames_of.append(0)
        if images:
            seen = torch.randn(patches[-1], 3, patch * patch)
            given |= {"pixel_values": seen[:, :, None].expand(-1, -1, 2, -1).reshape(len(seen), -1),
                      "image_grid_thw": torch.tensor([(1, rows, columns) for rows, columns in images])}
            pixels.append(seen.reshape(len(seen), -1))
            places += [(image, *place) for image, grid in enumerate(images) for place in native_rows(*grid)]
        if heard:
            longest = max(each.shape[1] for each in heard)
            given |= {"input_features": torch.stack([torch.nn.functional.pad(each, (0, longest - each.shape[1])) for each in heard]),
                      "feature_attention_mask": torch.stack([(torch.arange(longest) < each.shape[1]).long() for each in heard])}
            tile = 0
            for each in heard:
                rows, own = chunk_rows(each, window)
                sounds += rows
                sound_places += [(tile + chunk, row, column) for chunk, row, column in own]
                tile += own[-1][0] + 1
                frames_of[-1] += len(rows)
        logits.append(model(input_ids=sample, **given).logits[0])
        lengths = given["feature_attention_mask"].sum(-1) if heard else None
        positions = model.model.get_rope_index(sample, given.get("image_grid_thw"), None, given["attention_mask"], False, lengths, None)[0][:, 0]
        tokens.append(sample[0])
        marks.append(torch.cat([positions.T, torch.arange(1, sample.shape[1] + 1)[:, None]], 1).int())
    bounds = offsets([len(sample) for sample in tokens])
    visual = offsets([int((sample == IMAGE_TOKEN).sum()) for sample in tokens])
    hearing = offsets([int((sample == IMAGE_TOKEN - 1).sum()) for sample in tokens])
    tokens, logits = torch.cat(tokens).int(), torch.cat(logits)
    targets = torch.randint(0, TEXT["vocab_size"], tokens.shape, dtype=torch.int32)
    targets[tokens >= IMAGE_TOKEN - 1] = -1
    targets[-1] = -1
    loss = cross_entropy(logits, targets)
    loss.backward()
    tokens[tokens == IMAGE_TOKEN] = -1
    tokens[tokens == IMAGE_TOKEN - 1] = -2
    stored = {raw: hub for hub, raw in names.items()}
    learned = {f"gradient.{stored[name]}": p.grad.contiguous() for name, p in model.named_parameters() if p.grad is not None}
    save_file({"tokens": tokens, "targets": targets, "offsets": bounds, "pixels": torch.cat(pixels),
               "places": torch.tensor(places, dtype=torch.int32), "patch_offsets": offsets(patches), "visual_offsets": visual,
               "sound_pixels": torch.stack(sounds), "sound_places": torch.tensor(sound_places, dtype=torch.int32),
               "frame_offsets": offsets(frames_of), "heard_offsets": hearing, "marks": torch.cat(marks),
               "logits": logits.detach().contiguous(), "loss": loss.detach().reshape(1)} | learned, folder / "expected.safetensors")
    print(f"omni: loss {loss.item():.6f}")


def main():
    if len(sys.argv) > 1:
        for name in sys.argv[1:]:
            if name == "omni":
                record_omni()
                continue
            (record_whole if name in WHOLE else record_heard if name in HEARD else record_native)(name)
        return
    assert max(LENGTHS) <= POSITIONS
    record_siglip()
    record_projector()
    for family, build in (("gpt2", gpt2), ("llama", llama)):
        torch.manual_seed(11)
        record_decoder(f"vision_language_{family}", build(family == "gpt2"))
    for name in WHOLE:
        record_whole(name)
    for name in NATIVE:
        record_native(name)
    for name in HEARD:
        record_heard(name)
    record_omni()


if __name__ == "__main__":
    main()
