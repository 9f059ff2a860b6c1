# SPDX-License-Identifier: Apache-2.0
"""The readers of the program: for each a valid example, and how a mutated example reaches the program.

A kind is a function case(rng, example, folder) that writes its changed input into `folder` and returns the arguments,
or (arguments, variables of the environment). `example` is the result of prepare().
"""

import json
import random
import shutil
import subprocess

import formats
from judge import Limits, own_environment
from mutators import NUMBERS, STRINGS, changed_bytes, changed_text

JOB = """name = "mutations"
app = "language_model"
[train]
steps = 2
global_batch = 4
validation_samples = 4
checkpoint_every = 1
ahead = 2
peer_timeout_s = 2.0
out = "out"
[data]
path = "{base}/corpus.txt"
sequence = 16
validation_fraction = 0.1
[transport]
listen = "127.0.0.1"
slots = 2
timeout_s = 5.0
start_timeout_s = 1.0
[schedule]
policy = "wavefront"
budget_ms = 20.0
[teacher]
family = "{family}"
layers = 1
width = 16
heads = 2
vocabulary = 256
positions = 16
micro_batch = 2
replicas = 1
lr = 1e-3
devices = ["cpu:0"]
"""
PICTURES = """name = "mutations"
app = "vision_language"
[train]
steps = 1
global_batch = 2
validation_samples = 1
checkpoint_at_end = {checkpoint}
out = "out"
[data]
kind = "llava"
path = "{path}"
validation_path = "{base}/llava.json"
images = "{images}"
sequence = 32
patch = 8
image_size = 16
[vision]
layers = 1
width = 16
heads = 2
patch = 8
positions = "2d"
max_grid = 4
devices = ["cpu:0"]
[projector]
decoder = "llm"
devices = ["cpu:0"]
[llm]
layers = 1
width = 16
heads = 2
vocabulary = 257
positions = 48
micro_batch = 2
devices = ["cpu:0"]
"""
WORKLOAD = {
    "sections": [{"name": "vision", "replicas": 2, "mode": "forward_only", "devices": [0, 1]},
                 {"name": "llm", "replicas": 1, "mode": "forward_backward", "max_in_flight": 2}],
    "edges": [{"from": "vision", "to": "llm", "slots": 2, "transfer_ms": 0.5}],
    "samples": [{"id": 7, "forward_ms": {"vision": 10.0, "llm": 8.0}, "backward_ms": {"llm": 16.0}},
                {"id": 8, "forward_ms": {"llm": 8.5}, "backward_ms": {"llm": 16.5}}]}
CONVERSATIONS = [
    {"id": "first", "image": "a.png", "conversations": [{"from": "human", "value": "<image>\nWhich?"},
                                                        {"from": "gpt", "value": "red"}]},
    {"id": 2, "conversations": [{"from": "user", "value": "1 + 1?"}, {"from": "assistant", "value": "2"}]}]
LAUNCHED = [
    {"MAESTRO_RANK": "0", "MAESTRO_PROCESSES": "2", "MAESTRO_HOSTS": "0,0", "MAESTRO_LOCAL_RANK": "0",
     "MAESTRO_ROOT_HOST": "127.0.0.1", "MAESTRO_ROOT_PORT": "61440", "MAESTRO_TOKEN": "abc"},
    {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
     "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"},
    {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
     "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_MCA_orte_hnp_uri": "979828736.0;tcp://192.0.2.2,10.0.0.2:57553",
     "PMIX_NAMESPACE": "979828736"},
    {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "17", "SLURM_LOCALID": "0",
     "SLURM_NODEID": "0", "SLURM_GTIDS": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x1)",
     "SLURM_STEP_NODELIST": "node[01-03,7]"}]


class Example:
    """A folder with a corpus, pictures, and the checkpoints of three short runs."""

    def __init__(self, program, base):
        self.program, self.base = program, base
        self.xxh3 = formats.load_xxh3()
        words = random.Random(7)
        (base / "corpus.txt").write_text(" ".join(words.choice(("river", "stone", "light", "runs")) for _ in range(2000)))
        (base / "images").mkdir()
        picture = formats.PNG_SIGNATURE + b"".join(formats.chunk(*part) for part in formats.png())
        (base / "images" / "a.png").write_bytes(picture)
        (base / "llava.json").write_text(json.dumps(CONVERSATIONS * 4))
        self.checkpoints = {"gpt2": self.train("gpt2", self.job("gpt2")), "llama": self.train("llama", self.job("llama")),
                            "pictures": self.train("pictures", self.pictures(checkpoint="true"))}

    def job(self, family="gpt2"):
        return JOB.format(base=self.base, family=family)

    def pictures(self, checkpoint="false", path=None, images=None):
        return PICTURES.format(base=self.base, checkpoint=checkpoint, path=path or self.base / "llava.json",
                               images=images or self.base / "images")

    def train(self, name, job):
        folder = self.base / name
        folder.mkdir()
        (folder / "job.toml").write_text(job)
        ended = subprocess.run([self.program, "train", "job.toml", "--control", "none"], cwd=folder, capture_output=True,
                               env=own_environment({}), text=True, timeout=300)
        if ended.returncode != 0:
            raise SystemExit(f"the example {name} does not train: {ended.stderr}")
        return max((folder / "out" / "checkpoints").glob("step-*"))


def job_file(rng, example, folder):
    (folder / "job.toml").write_bytes(changed_text(rng, example.job(rng.choice(["gpt2", "llama"])).encode()))
    return ["check", "job.toml"]


def setting(rng, example, folder):
    (folder / "job.toml").write_text(example.job())
    table, keys = None, []
    for line in example.job().splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        elif " = " in line:
            keys.append((f"{table}." if table else "") + line.split(" = ")[0])
    value = rng.choice(NUMBERS + STRINGS + ["[1]", "[[2]]", "{a=1}", "2024-06-11", '"x"'])
    text = f"{rng.choice(keys)}={value}".encode()
    if rng.random() < 0.4:
        text = changed_text(rng, text)
    return ["check", "job.toml", "--set", text.replace(b"\0", b"")[:100_000]]


def workload(rng, example, folder):
    (folder / "w.json").write_bytes(changed_text(rng, json.dumps(WORKLOAD, indent=1).encode()))
    return ["simulate", "w.json"]


def weights(rng, example, folder, family, section, job, config_only):
    """A job that starts from a changed folder of weights."""
    source = example.checkpoints[family] / section
    (folder / "weights").mkdir()
    for name in ("config.json", "model.safetensors"):
        data = (source / name).read_bytes()
        if config_only == (name == "config.json"):
            data = changed_text(rng, data) if config_only else formats.changed_safetensors(rng, data)
        (folder / "weights" / name).write_bytes(data)
    (folder / "job.toml").write_text(job)
    return ["check", "job.toml", "--set", f"{section}.weights=weights"]


def config_gpt2(rng, example, folder):
    return weights(rng, example, folder, "gpt2", "teacher", example.job("gpt2"), True)


def config_llama(rng, example, folder):
    return weights(rng, example, folder, "llama", "teacher", example.job("llama"), True)


def config_vision(rng, example, folder):
    return weights(rng, example, folder, "pictures", "vision", example.pictures(), True)


def config_projector(rng, example, folder):
    return weights(rng, example, folder, "pictures", "projector", example.pictures(), True)


def safetensors(rng, example, folder):
    return weights(rng, example, folder, "gpt2", "teacher", example.job("gpt2"), False)


def copied_checkpoint(example, folder):
    source = example.checkpoints["gpt2"]
    copy = folder / "from" / "checkpoints" / source.name
    shutil.copytree(source, copy)
    (folder / "job.toml").write_text(example.job())
    return copy


def manifest(rng, example, folder):
    copy = copied_checkpoint(example, folder)
    text = changed_text(rng, (copy / "checkpoint.json").read_bytes())
    (copy / "checkpoint.json").write_bytes(formats.resealed(text, example.xxh3) if rng.random() < 0.7 else text)
    return ["check", "job.toml", "--resume", str(copy)]


def checkpoint_files(rng, example, folder):
    copy = copied_checkpoint(example, folder)
    record = json.loads((copy / "checkpoint.json").read_text())
    entry = rng.choice(record["files"])
    data = (copy / entry["path"]).read_bytes()
    data = formats.changed_safetensors(rng, data) if entry["path"].endswith("safetensors") else changed_text(rng, data)
    (copy / entry["path"]).write_bytes(data)
    entry.update(bytes=len(data), xxh3_128=example.xxh3(data))
    (copy / "checkpoint.json").write_bytes(formats.sealed(record, example.xxh3))
    return ["check", "job.toml", "--resume", str(copy)]


def llava(rng, example, folder):
    (folder / "data.json").write_bytes(changed_text(rng, json.dumps(CONVERSATIONS * 2, indent=1).encode()))
    (folder / "job.toml").write_text(example.pictures(path="data.json"))
    return ["check", "job.toml"]


def picture(example, folder, data):
    (folder / "images").mkdir()
    (folder / "images" / "a.png").write_bytes(data)
    (folder / "data.json").write_text(json.dumps([CONVERSATIONS[0]] * 2))
    (folder / "job.toml").write_text(example.pictures(path="data.json", images="images"))
    validation = example.base / "text.json"
    validation.write_text(json.dumps(CONVERSATIONS[1:]))
    return ["train", "job.toml", "--control", "none", "--set", f"data.validation_path={validation}"]


def png(rng, example, folder):
    return picture(example, folder, formats.changed_png(rng))


def jpeg(rng, example, folder):
    return picture(example, folder, formats.changed_jpeg(rng))


def launcher(rng, example, folder):
    """Changed variables of a launcher; a job of a single process that finds its own place trains its two steps."""
    (folder / "job.toml").write_text(example.job())
    variables = dict(rng.choice(LAUNCHED))
    for _ in range(rng.choice([1, 1, 2, 3])):
        name = rng.choice(list(variables))
        old = variables[name].encode(errors="surrogateescape")
        new = rng.choice([rng.choice(NUMBERS).encode(), rng.choice(STRINGS).encode(), changed_bytes(rng, old), b""])
        variables[name] = new.replace(b"\0", b"").decode(errors="surrogateescape")[:100_000]
    return ["train", "job.toml", "--control", "none"], variables


# Damage behind a picture's header shows when it is decoded: the run had begun, and fails with status 1.
FOUND_WHILE_TRAINING = Limits(list_lines=True, statuses=(0, 1, 2))

# name: (case, limits, of every hundred mutations)
KINDS = {
    "job": (job_file, Limits(), 12),
    "set": (setting, Limits(), 8),
    "workload": (workload, Limits(), 8),
    "config.gpt2": (config_gpt2, Limits(), 6),
    "config.llama": (config_llama, Limits(), 6),
    "config.vision": (config_vision, Limits(), 5),
    "config.projector": (config_projector, Limits(), 5),
    "safetensors": (safetensors, Limits(), 10),
    "checkpoint": (manifest, Limits(), 8),
    "checkpoint.files": (checkpoint_files, Limits(), 8),
    "llava": (llava, Limits(list_lines=True), 8),
    "png": (png, FOUND_WHILE_TRAINING, 6),
    "jpeg": (jpeg, FOUND_WHILE_TRAINING, 6),
    "environment": (launcher, Limits(), 4),
}
