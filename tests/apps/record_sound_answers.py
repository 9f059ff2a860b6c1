#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what transformers answers to questions about sounds, for given_audio_test.py.

usage: record_sound_answers.py    (transformers, torch, soundfile)

Writes ../dataset/references/sound_rows: sounds/, and list.jsonl with conversations about them; and for each model
references/image_text/MODEL: model.safetensors, random weights in half precision, and answers.json: the greedy
continuations in single precision by the names of the sounds, and the losses before each of four AdamW steps over all
rows of the list. The other files of qwen2_audio are in ../dataset/references/images. Voxtral's are written here: its
processor needs Mistral's tokenizer, so the folder has another tokenizer and a template, and the text is expanded here.
"""

import json
import shutil
import tempfile
import types
from pathlib import Path

import numpy
import soundfile
import torch
from tokenizers import AddedToken, Tokenizer
from transformers import (AutoConfig, AutoModelForMultimodalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen2AudioProcessor,
                          VoxtralConfig, VoxtralProcessor, WhisperFeatureExtractor)

HERE = Path(__file__).parent
FOLDERS = HERE.parent / "dataset/references/images"
ROWS = HERE.parent / "dataset/references/sound_rows"
QUESTION = "What is this?"
# The sounds of each question.
ASKED = (["a.wav"], ["b.flac"], ["c.wav"], ["a.wav", "b.flac"])
LEARNED = (("a.wav", "It is a tone."), ("b.flac", "Two tones, one for each ear."), ("c.wav", "Noise."),
           ("a.wav b.flac", "A tone, and two tones."))
RATE, STEPS, LR = 16000, 4, 1e-3
VOXTRAL = ("{% for message in messages %}{% if message.role == 'user' %}[INST]{% for part in message.content %}"
           "{% if part.type == 'audio' %}[BEGIN_AUDIO][AUDIO]{% else %}{{ part.text }}{% endif %}{% endfor %}[/INST]"
           "{% else %}{{ message.content[0].text }}</s>{% endif %}{% endfor %}")


def write_sounds():
    shutil.rmtree(ROWS, ignore_errors=True)
    (ROWS / "sounds").mkdir(parents=True)
    source = numpy.random.default_rng(5)
    time = numpy.arange(9000) / RATE
    tones = [0.5 * numpy.sin(2 * numpy.pi * pitch * time) for pitch in (440, 1200)]
    soundfile.write(ROWS / "sounds/a.wav", tones[0][:5000], RATE, "PCM_16")
    soundfile.write(ROWS / "sounds/b.flac", numpy.stack(tones, 1), RATE, "PCM_16")
    soundfile.write(ROWS / "sounds/c.wav", source.uniform(-0.3, 0.3, 3333), RATE, "PCM_16")
    soundfile.write(ROWS / "sounds/long.flac", 0.4 * numpy.sin(numpy.arange(20000) ** 1.3 / 99), RATE, "PCM_16")
    rows = []
    for names, answer in LEARNED:
        parts = [{"type": "audio", "audio": name} for name in names.split()] + [{"type": "text", "text": QUESTION}]
        rows.append({"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": answer}]})
    (ROWS / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def qwen2_audio(_folder):
    """Returns the folder of the other files, and what makes the model's inputs of a text and sounds."""
    other = FOLDERS / "qwen2_audio"
    settings = json.loads((other / "processor_config.json").read_text())["feature_extractor"]
    processor = Qwen2AudioProcessor(WhisperFeatureExtractor(**settings), AutoTokenizer.from_pretrained(other),
                                    chat_template=(other / "chat_template.jinja").read_text())
    return other, processor.tokenizer, processor.chat_template, lambda text, sounds: processor(
        text=text, audio=sounds, sampling_rate=RATE, return_tensors="pt")


def voxtral(folder):
    """Does the same, and writes the files."""
    made = Tokenizer.from_file(str(HERE.parent / "tokenizer/references/qwen2.json"))
    special = ["[INST]", "[/INST]", "[BEGIN_AUDIO]", "[AUDIO]", "</s>"]
    made.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in special])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>")
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(VOXTRAL)
    # With a hop of 400 samples a clip of 1 s has 40 frames and 20 rows, which are 5 of the decoder.
    extractor = WhisperFeatureExtractor(feature_size=12, chunk_length=1, hop_length=400)
    extractor.save_pretrained(folder)
    token = tokenizer.convert_tokens_to_ids("[AUDIO]")
    audio = {"model_type": "voxtral_encoder", "num_mel_bins": 12, "hidden_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 2, "intermediate_size": 128, "max_source_positions": 20}
    words = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(tokenizer), "bos_token_id": None,
             "max_position_embeddings": 4096, "eos_token_id": tokenizer.eos_token_id, "tie_word_embeddings": False}
    VoxtralConfig(audio_config=audio, text_config=words, audio_token_id=token).save_pretrained(folder)
    owner = types.SimpleNamespace(feature_extractor=extractor)

    def inputs(text, sounds):
        features = VoxtralProcessor._retrieve_input_features(
            owner, sounds, 40, sampling_rate=RATE, padding=True, truncation=False, pad_to_multiple_of=RATE, return_tensors="pt")
        pieces = text.split("[AUDIO]")
        clips = [-(-len(sound) // RATE) for sound in sounds]
        whole = "".join(piece + "[AUDIO]" * (5 * count) for piece, count in zip(pieces, [*clips, 0]))
        return {"input_ids": tokenizer(whole, return_tensors="pt")["input_ids"], "input_features": features}

    return folder, tokenizer, VOXTRAL, inputs


def batch_of(model, names, answer=None):
    _, tokenizer, template, inputs = model
    sounds = [soundfile.read(ROWS / "sounds" / name, dtype="float32", always_2d=True)[0].mean(1) for name in names]
    content = [{"type": "audio"} for _ in names] + [{"type": "text", "text": QUESTION}]
    messages = [{"role": "user", "content": content}]
    if answer is not None:
        messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
    text = tokenizer.apply_chat_template(messages, chat_template=template, add_generation_prompt=answer is None, tokenize=False)
    return inputs(text, sounds)


def losses(weights, model):
    """Returns the losses of steps over the answers, up to the token that ends them."""
    weights.model.audio_tower.embed_positions.requires_grad_(False)  # as made; transformers 5.24 forgets it when it loads
    learned = [each for each in weights.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=LR, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.0)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total, count = 0, 0
        for names, answer in LEARNED:
            whole, prompt = batch_of(model, names.split(), answer), batch_of(model, names.split())
            first, ids = prompt["input_ids"].shape[1], whole["input_ids"][0]
            logits = weights(**whole).logits[0, first - 1:-1]
            total = total + torch.nn.functional.cross_entropy(logits, ids[first:], reduction="sum")
            count += len(ids) - first
        (total / count).backward()
        found.append((total / count).item())
        optimizer.step()
    return found


def record(name, make):
    torch.manual_seed(3)
    folder = HERE / "references/image_text" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = make(folder)
    with tempfile.TemporaryDirectory() as made:
        begun = AutoModelForMultimodalLM.from_config(AutoConfig.from_pretrained(model[0]))
        for stored, each in begun.named_parameters():
            if each.dim() > 1 and "embed_" not in stored:
                each.data *= 8  # with small values a model repeats one token
        begun.half().save_pretrained(made)
        shutil.copy(Path(made) / "model.safetensors", folder)
        weights = AutoModelForMultimodalLM.from_pretrained(made, dtype=torch.float32).eval()
    answers = {}
    several_clips = [["long.flac"]] if name == "voxtral" else []
    for names in [*ASKED, *several_clips]:
        batch = batch_of(model, names)
        with torch.no_grad():
            written = weights.generate(**batch, max_new_tokens=32, do_sample=False, eos_token_id=None)
        answers[" ".join(names)] = written[0][batch["input_ids"].shape[1]:].tolist()
    (folder / "answers.json").write_text(json.dumps({"question": QUESTION, "answers": answers,
                                                     "losses": losses(weights, model)}) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)


def main():
    write_sounds()
    for name, make in (("qwen2_audio", qwen2_audio), ("voxtral", voxtral)):
        record(name, make)


if __name__ == "__main__":
    main()
