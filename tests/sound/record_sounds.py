#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records log-mel frames of made waveforms by transformers' WhisperFeatureExtractor, for sound_processor_test.cpp.

Needs torch, transformers and safetensors; run from anywhere. Writes expected.safetensors next to this file: for each
case settings.N = (feature_size, n_fft, hop_length, chunk_length, samples, frames, clips) and frames.N (frames, mels),
the frames that the rows of a sound read; wave() is made_wave() of the test. With clips > 0 they are all frames of a
sound that is padded to whole clips, as VoxtralProcessor pads it.
"""
import os
import pathlib

import numpy
import torch
from safetensors.torch import save_file
from transformers import WhisperFeatureExtractor

HERE = pathlib.Path(os.path.realpath(__file__)).parent
CASES = [(80, 400, 160, 30, 5637, 0), (128, 400, 160, 30, 8000, 0), (20, 400, 160, 1, 15990, 0),
         (24, 512, 125, 1, 4001, 0), (16, 400, 160, 1, 16000, 0), (10, 400, 160, 1, 24000, 2), (12, 400, 160, 1, 400, 1)]

TORCH = 1e-4


def wave(count):
    """Returns two tones, noise by a linear congruence, and silence in the middle."""
    state, samples = 1, []
    for at in range(count):
        state = (state * 1664525 + 1013904223) % 2 ** 32
        noise = state / 2 ** 32 - 0.5
        tone = 0.4 * numpy.sin(0.05 * at) + 0.2 * numpy.sin(0.9 * at)
        samples.append(0.0 if count // 3 < at < count // 2 else tone + 0.1 * noise)
    return numpy.array(samples, dtype=numpy.float32)


def main():
    found = {}
    for number, (mels, window, hop, seconds, count, clips) in enumerate(CASES):
        extractor = WhisperFeatureExtractor(feature_size=mels, n_fft=window, hop_length=hop, chunk_length=seconds)
        padding = {"padding": True, "truncation": False, "pad_to_multiple_of": seconds * 16000} if clips else {
            "padding": "max_length"}
        made = extractor(wave(count), sampling_rate=16000, return_attention_mask=True, return_tensors="pt", **padding)
        length = int(made["attention_mask"].sum())
        rows = clips * seconds * 16000 // hop // 2 if clips else (length - 1) // 2 + 1
        found[f"settings.{number}"] = torch.tensor([mels, window, hop, seconds, count, length, clips], dtype=torch.int32)
        # The path by NumPy, in f64: the path by torch, in f32, differs from it by up to TORCH next to silence.
        padded = numpy.zeros((1, max(clips, 1) * seconds * 16000), dtype=numpy.float32)
        padded[0, :count] = wave(count)
        frames = torch.tensor(extractor._np_extract_fbank_features(padded, "cpu")[0], dtype=torch.float32)
        off = (frames - made["input_features"][0]).abs().max().item()
        assert off < TORCH, off
        print(f"{mels} bands: {off:.1e} from torch")
        found[f"frames.{number}"] = frames[:, :2 * rows + 1].T.contiguous()
    save_file(found, HERE / "expected.safetensors")


if __name__ == "__main__":
    main()
