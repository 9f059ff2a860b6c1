#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the tiles of transformers' classes for images, on Pillow, for resampler_test.cpp and image_processor_test.cpp.

Needs transformers 5.24, Pillow 13 and torch; run from anywhere: tests/images/record_references.py
Writes references/processors.json, the settings of each class as transformers saves them, and references/pixels.txt,
a line per reference:
  resize FILTER ORDER WIDTH HEIGHT WIDTH HEIGHT CRC          an image, resized
  tiles NAME ORDER IMAGES WIDTH HEIGHT CRC...                the bytes of each tile, (height, width, 3)
  rows NAME WIDTH HEIGHT CRC                                 the f32 rows of all tiles, (rows, 3 x patch x patch)
  plans NAME CRC...                                          a check of PLANS_OF_A_CRC plans each
An image is made by formula (made_image) from its size. ORDER is "pillow13", or "horizontal": two resizes, first of the
width. CRC is zlib's crc32.
"""
import contextlib
import importlib
import json
import math
import types
import zlib
from pathlib import Path

import numpy as np
import PIL.Image
from transformers import image_processing_backends

REFERENCES = Path(__file__).resolve().parent / "references"
PLANS, PLANS_OF_A_CRC = 5000, 50
LARGEST_IMAGE = 178956970
PLAIN = dict(do_rescale=False, do_normalize=False)

PINPOINTS = [[48 * rows, 48 * columns] for rows in range(1, 7) for columns in range(1, 7)]
# name: (model, class, settings, the model's patches). merge: patches that a decoder row joins along each side.
PROCESSORS = {
    "smolvlm": ("smolvlm", "SmolVLM", dict(size={"longest_edge": 256}, max_image_size={"longest_edge": 64}),
                dict(patch=16, merge=2)),
    "smolvlm_whole": ("smolvlm", "SmolVLM", dict(size={"longest_edge": 256}, max_image_size={"longest_edge": 64},
                                                 do_image_splitting=False), dict(patch=16, merge=2)),
    "smolvlm_hub": ("smolvlm", "SmolVLM", dict(size={"longest_edge": 2048}, max_image_size={"longest_edge": 512}),
                    dict(patch=16, merge=4)),
    "idefics3": ("idefics3", "Idefics3", dict(size={"longest_edge": 300}, max_image_size={"longest_edge": 70}),
                 dict(patch=14, merge=1)),
    "clip": ("clip", "CLIP", dict(size={"shortest_edge": 84}, crop_size={"height": 84, "width": 84}),
             dict(patch=14, class_row=True)),
    "clip_wide": ("clip", "CLIP", dict(size={"shortest_edge": 60}, crop_size={"height": 42, "width": 56}),
                  dict(patch=14, class_row=True, keeps_class_row=True)),
    "llava": ("llava", "Llava", dict(size={"shortest_edge": 84}, crop_size={"height": 84, "width": 84}, do_pad=True),
              dict(patch=14, class_row=True)),
    "onevision": ("llava_onevision", "LlavaOnevision",
                  dict(size={"height": 48, "width": 48}, image_grid_pinpoints=PINPOINTS), dict(patch=14)),
    "onevision_class": ("llava_onevision", "LlavaOnevision", {}, dict(patch=14)),
    "qwen2_vl": ("qwen2_vl", "Qwen2VL", dict(size={"shortest_edge": 3136, "longest_edge": 28 * 28 * 40}),
                 dict(patch=14, merge=2)),
    "qwen3_vl": ("qwen2_vl", "Qwen2VL", dict(patch_size=16, size={"shortest_edge": 65536, "longest_edge": 131072},
                                             image_mean=[.5] * 3, image_std=[.5] * 3), dict(patch=16, merge=2)),
    "gemma3": ("gemma3", "Gemma3", dict(size={"height": 112, "width": 112}), dict(patch=14, merge=4)),
    "paligemma": ("siglip", "Siglip", dict(size={"height": 98, "width": 98}, image_seq_length=49), dict(patch=14)),
    "siglip_nearest": ("siglip", "Siglip", dict(size={"height": 70, "width": 98}, resample=0), dict(patch=14)),
    "siglip_lanczos": ("siglip", "Siglip", dict(size={"height": 70, "width": 98}, resample=1), dict(patch=14)),
    "internvl": ("got_ocr2", "GotOcr2", dict(size={"height": 56, "width": 56}, crop_to_patches=True),
                 dict(patch=14, merge=2)),
    "internvl_wide": ("got_ocr2", "GotOcr2", dict(size={"height": 56, "width": 84}, crop_to_patches=True, min_patches=2,
                                                  max_patches=6), dict(patch=14, merge=2)),
    "got_ocr2": ("got_ocr2", "GotOcr2", dict(size={"height": 56, "width": 56}), dict(patch=14, merge=2)),
}
LARGE = {"smolvlm_hub": [(150, 100), (1500, 1000), (333, 640)], "onevision_class": [(120, 200), (1500, 1000)]}


def mixed(value):
    """Returns 32 mixed bits of each number, (value) of u32; the test has the same function."""
    value = np.asarray(value, np.uint32)
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint32(16))) * np.uint32(2146121005)
        value = (value ^ (value >> np.uint32(15))) * np.uint32(2221713035)
    return value ^ (value >> np.uint32(16))


def made_image(width, height):
    """Returns noise, a ramp, or black and white noise, (height, width, 3) u8, by the sum of the sides."""
    y, x, c = np.meshgrid(*(np.arange(n, dtype=np.uint32) for n in (height, width, 3)), indexing="ij")
    if (width + height) % 3 == 1:
        ramp = x * 255 // np.uint32(width) // 2 + y * 255 // np.uint32(height) // 2 + c * 20
        return np.minimum(255, ramp).astype(np.uint8)
    noise = mixed((y * np.uint32(width) + x) * np.uint32(3) + c) & np.uint32(255)
    if (width + height) % 3 == 2:
        noise = np.where(noise > 127, 255, 0)
    return noise.astype(np.uint8)


def sizes_of_tests():
    fixed = [(1, 1), (1, 150), (150, 1), (42, 70), (70, 42), (100, 150), (150, 100), (10, 190), (190, 13), (64, 64),
             (512, 256), (2, 2), (3, 1), (48, 48), (49, 48), (10, 1900), (1900, 10)]
    chance = [(2 + int(mixed(2 * n)) % 400, 2 + int(mixed(2 * n + 1)) % 400) for n in range(24)]
    return fixed + chance


def sizes_of_plans():
    """Returns PLANS sizes: every fourth is small."""
    most = lambda n: 40 if n % 4 == 0 else 3000
    return [(1 + int(mixed(2 * n)) % most(n), 1 + int(mixed(2 * n + 1)) % most(n)) for n in range(PLANS)]


def crc(array):
    return f"{zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}"


WHOLE_RESIZE = PIL.Image.Image.resize


@contextlib.contextmanager
def pass_order(order):
    """Lets every resize use the same pass order."""
    def horizontal(image, size, resample=None, box=None, reducing_gap=None):
        return WHOLE_RESIZE(WHOLE_RESIZE(image, (size[0], image.height), resample), size, resample)
    if order == "horizontal":
        PIL.Image.Image.resize = horizontal
    try:
        yield
    finally:
        PIL.Image.Image.resize = WHOLE_RESIZE


def processor_of(name, **more):
    model, kind, settings, _ = PROCESSORS[name]
    module = importlib.import_module(f"transformers.models.{model}.image_processing_pil_{model}")
    return getattr(module, kind + "ImageProcessorPil")(**{**settings, **more})


def unpatched(values, grid, patch, merge=2):
    """Returns the image (3, height, width) of Qwen's rows: blocks of merge x merge, (channel, time, row, column)."""
    _, rows, columns = (int(n) for n in grid)
    values = np.asarray(values).reshape(rows // merge, columns // merge, merge, merge, 3, 2, patch, patch)
    assert (values[:, :, :, :, :, 0] == values[:, :, :, :, :, 1]).all()
    return values[:, :, :, :, :, 0].transpose(4, 0, 2, 5, 1, 3, 6).reshape(3, rows * patch, columns * patch)


def tiles_of(name, images, **more):
    """Returns the tiles of the first of the images, each (3, height, width)."""
    nested = name.startswith(("smolvlm", "idefics3", "onevision"))
    made = [PIL.Image.fromarray(image) for image in images]
    if name.startswith(("smolvlm", "idefics3", "onevision")):
        more["do_pad"] = False
    out = processor_of(name, **more)([made] if nested else made, return_tensors=None)
    values = out["pixel_values"]
    if name.startswith("qwen"):
        return [unpatched(values, out["image_grid_thw"][0], PROCESSORS[name][3]["patch"])]
    return list(values[0]) if nested else list(values)


def rows_of(tiles, patch, merge=1, class_row=False, **_):
    """Returns the f32 rows of tiles in blocks of merge x merge patches."""
    rows = []
    for tile in tiles:
        tile = np.asarray(tile)
        assert tile.dtype == np.float32
        down, across = tile.shape[1] // patch // merge, tile.shape[2] // patch // merge
        tile = tile[:, :down * merge * patch, :across * merge * patch]
        tile = tile.reshape(3, down, merge, patch, across, merge, patch).transpose(1, 4, 2, 5, 0, 3, 6)
        if class_row:
            rows.append(np.zeros((1, 3 * patch * patch), np.float32))
        rows.append(tile.reshape(-1, 3 * patch * patch))
    return np.concatenate(rows)


def is_narrow(name, width, height):
    """Returns whether a test leaves out a size: transformers refuses it, or makes a huge image of it."""
    most = {"qwen2_vl": 200, "qwen3_vl": 200, "clip": 60, "clip_wide": 60}.get(name, math.inf)
    return max(width, height) / min(width, height) > most


def resize_lines():
    filters = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
    sizes = [(1 + int(mixed(4 * n)) % 120, 1 + int(mixed(4 * n + 1)) % 120, 1 + int(mixed(4 * n + 2)) % 120,
              1 + int(mixed(4 * n + 3)) % 120) for n in range(200)]
    for order in ("pillow13", "horizontal"):
        with pass_order(order):
            for n, (width, height, to_width, to_height) in enumerate(sizes):
                name, number = list(filters.items())[n % 4]
                image = PIL.Image.fromarray(made_image(width, height)).resize((to_width, to_height), number)
                yield f"resize {name} {order} {width} {height} {to_width} {to_height} {crc(image)}"


def tile_lines(name):
    patches = PROCESSORS[name][3]
    sizes = [size for size in LARGE.get(name, sizes_of_tests()) if not is_narrow(name, *size)]
    for order in ("pillow13", "horizontal"):
        with pass_order(order):
            for width, height in sizes:
                for count in (1, 2) if name == "onevision" else (1,):
                    tiles = tiles_of(name, [made_image(width, height)] * count, **PLAIN)
                    tiles = tiles[:1] if count == 2 else tiles
                    if count == 2:
                        tiles = [np.asarray(tiles[0])[0]] if np.asarray(tiles[0]).ndim == 4 else tiles
                    crcs = " ".join(crc(np.moveaxis(np.asarray(tile), 0, -1).astype(np.uint8)) for tile in tiles)
                    yield f"tiles {name} {order} {count} {width} {height} {crcs}"
    for width, height in sizes[9:12] if len(sizes) > 12 else []:
        rows = rows_of(tiles_of(name, [made_image(width, height)]), **patches)
        yield f"rows {name} {width} {height} {crc(rows)}"


class TooNarrow(ValueError):
    pass


@contextlib.contextmanager
def only_sizes():
    """Makes transformers resize images without pixels, and refuse the sizes that the program refuses."""
    def sized(image, size, **_):
        height, width = size
        if height < 1 or width < 1 or height * width > LARGEST_IMAGE:
            raise TooNarrow
        return np.broadcast_to(np.uint8(0), (3, height, width))
    kept, image_processing_backends.np_resize = image_processing_backends.np_resize, sized
    try:
        yield
    finally:
        image_processing_backends.np_resize = kept


def onevision_rows(processor, width, height, side, patch):
    """Returns the decoder rows of an image, by the class that joins text and images."""
    from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor as Whole
    whole = types.SimpleNamespace(image_processor=processor, num_image_tokens=(side // patch) ** 2,
                                  vision_aspect_ratio="anyres_max_9")
    whole._get_unpadded_features = types.MethodType(Whole._get_unpadded_features, whole)
    return Whole._get_number_of_features(whole, height, width, side, side)


def plan_text(name, processor, width, height):
    """Returns the text of a plan: tiles, rows and columns of the cut, decoder rows."""
    from transformers.image_processing_utils import select_best_resolution
    from transformers.models.got_ocr2 import image_processing_pil_got_ocr2 as got
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
    patches, image = PROCESSORS[name][3], np.broadcast_to(np.uint8(0), (3, height, width))
    patch, merge = patches["patch"], patches.get("merge", 1)
    of_tile = lambda high, wide: (high // patch // merge) * (wide // patch // merge) + patches.get("keeps_class_row", 0)
    if name.startswith("qwen"):
        limits = processor.size.shortest_edge, processor.size.longest_edge
        high, wide = smart_resize(height, width, patch * merge, *limits)
        return f"1 0 0 {of_tile(high, wide)}"
    if name.startswith("onevision"):
        side = processor.size.height
        best = select_best_resolution((height, width), processor.image_grid_pinpoints)
        rows, columns = best[0] // side, best[1] // side
        return f"{1 + rows * columns} {rows} {columns} {onevision_rows(processor, width, height, side, patch)}"
    if name.startswith(("smolvlm", "idefics3")):
        image = processor.resize(image, processor.size)
        rows = columns = 0
        side = processor.max_image_size["longest_edge"]
        if processor.do_image_splitting:
            image = processor.resize_for_vision_encoder(image, side)
            tiles, rows, columns = processor.split_images(image, processor.max_image_size)
        return f"{1 + rows * columns} {rows} {columns} {(1 + rows * columns) * of_tile(side, side)}"
    if name.startswith(("internvl", "got_ocr2")):
        size = processor.size
        if not processor.crop_to_patches:
            return f"1 0 0 {of_tile(size.height, size.width)}"
        limits = processor.min_patches, processor.max_patches
        tiles = len(processor.crop_image_to_patches(image, *limits, patch_size=size))
        columns, rows = got.get_optimal_tiled_canvas((height, width), (size.height, size.width), *limits)
        rows, columns = (rows, columns) if tiles > 1 else (0, 0)
        return f"{tiles} {rows} {columns} {tiles * of_tile(size.height, size.width)}"
    if processor.do_pad:
        width = height = max(width, height)
    image = processor.resize(np.broadcast_to(np.uint8(0), (3, height, width)), processor.size)
    cut = processor.crop_size if processor.do_center_crop else processor.size
    return f"1 0 0 {of_tile(cut.height, cut.width)}"


def plan_line(name):
    processor, texts = processor_of(name), []
    with only_sizes():
        for width, height in sizes_of_plans():
            try:
                text = plan_text(name, processor, width, height)
            except ValueError:
                text = "refused"
            texts.append(f"{width} {height} {text}\n")
    blocks = ["".join(texts[at:at + PLANS_OF_A_CRC]) for at in range(0, PLANS, PLANS_OF_A_CRC)]
    return f"plans {name} " + " ".join(f"{zlib.crc32(block.encode()):08x}" for block in blocks)


def main():
    settings = {}
    with open(REFERENCES / "pixels.txt", "w", encoding="utf-8") as file:
        for line in resize_lines():
            print(line, file=file)
        for name, (_, _, _, patches) in PROCESSORS.items():
            print(name, flush=True)
            settings[name] = {"image_processor": json.loads(processor_of(name).to_json_string()), "patches": patches}
            for line in tile_lines(name):
                print(line, file=file)
            print(plan_line(name), file=file)
    (REFERENCES / "processors.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
