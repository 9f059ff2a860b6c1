#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rows with images in the shapes that people have, for prepared_images_test.cpp.

Needs `Pillow` and `pyarrow` from PyPI; run from anywhere: tests/dataset/record_image_rows.py
Writes to references/image_rows: images/ (a PNG, a JPEG and a WebP), list.json (a list of LLaVA), and the same rows as
onevision.parquet (the columns of LLaVA-OneVision-Data) and messages.parquet (parts in lists, as TRL has them);
cauldron.parquet has the columns of The Cauldron.
"""

import io
import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
from PIL import Image

REFERENCES = Path(__file__).resolve().parent / "references" / "image_rows"
BYTES_AND_PATH = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def image(source, width, height, kind):
    made = Image.new("RGB", (width, height))
    made.putdata([(x * 255 // width, y * 255 // height, source.randrange(256))
                  for y in range(height) for x in range(width)])
    written = io.BytesIO()
    made.save(written, kind)
    return written.getvalue()


def rows(names):
    for at in range(12):
        turns = [{"from": "human", "value": f"<image>\nWhat is in image {at}?"},
                 {"from": "gpt", "value": f"Noise, number {at}."}]
        if at % 3 == 0:
            turns += [{"from": "human", "value": "Are you sure?"}, {"from": "gpt", "value": "Yes."}]
        yield {"id": f"row {at}", "image": names[at % len(names)], "conversations": turns}


def parts(turn):
    marked = turn["value"].startswith("<image>")
    words = {"type": "text", "text": turn["value"].removeprefix("<image>\n"), "index": None}
    return ([{"type": "image", "text": None, "index": 0}] if marked else []) + [words]


def write(name, table, **columns):
    pyarrow.parquet.write_table(pyarrow.table(table, **columns), REFERENCES / f"{name}.parquet", compression="snappy")


def main():
    source = random.Random(3)
    folder = REFERENCES / "images"
    folder.mkdir(parents=True, exist_ok=True)
    files = {"a.png": image(source, 40, 30, "PNG"), "b.jpg": image(source, 70, 33, "JPEG"),
             "c.webp": image(source, 20, 60, "WEBP")}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    listed = list(rows(list(files)))
    (REFERENCES / "list.json").write_text("[" + ",\n".join(json.dumps(row) for row in listed) + "]\n")
    embedded = [{"bytes": files[row["image"]], "path": row["image"]} for row in listed]
    write("onevision", {"id": [row["id"] for row in listed], "image": pyarrow.array(embedded, BYTES_AND_PATH),
                        "conversations": [row["conversations"] for row in listed]})
    roles = {"human": "user", "gpt": "assistant"}
    messages = [[{"role": roles[turn["from"]], "content": parts(turn)} for turn in row["conversations"]]
                for row in listed]
    write("messages", {"images": pyarrow.array([[each] for each in embedded], pyarrow.list_(BYTES_AND_PATH)),
                       "messages": messages})
    write("cauldron", {"images": pyarrow.array([embedded[:2], embedded[2:3]], pyarrow.list_(BYTES_AND_PATH)),
                       "texts": [[{"user": "Compare.", "assistant": "Both are noise.", "source": "made"}],
                                 [{"user": "What is it?", "assistant": "Noise.", "source": "made"},
                                  {"user": "Sure?", "assistant": "Yes.", "source": "made"}]],
                       "relevance_min": [4, 5]})


if __name__ == "__main__":
    main()
