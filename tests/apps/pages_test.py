#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documents name commands, options and keys that exist; their sessions run; their figures equal the program's.

A block ```console is a session: its lines after "$ " run in order in the page's folder, with few steps. A block below
`<!-- as: FILE -->` is that file of the session. Models that a page names are small, with random values. The output of a
session is the program's to the byte if it depends on the page's files only; of a measured one the labels of lines exist.
`MAESTRO_PROGRAM=build/release/bin/maestro tests/apps/pages_test.py --write` redraws the figures and renews the outputs.
"""

import concurrent.futures
import functools
import json
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

from maestro_program import PROGRAM, SystemTest, distillation, job_text, text_corpus
from model_folders import REPOSITORY, tokenizer_text, write_model

DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md"), REPOSITORY / "clients/python/README.md"])
FENCE = re.compile(r"^(?:<!-- as: (\S+) -->\n)?```(\w*)\n(.*?)^```$", re.S | re.M)
INLINE = re.compile(r"`([^`\n]+)`")
CALL = re.compile(r"(?:^|[\s;&(])(\./run|maestro) ([a-z][\w|-]*)(.*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
KEY = re.compile(r"(?:train|data|schedule|guard|transport|emulation|student|teacher|vision|projector|llm)\.(?!json|toml)[a-z][a-z_0-9]*")
FEW_STEPS = ("--set", "train.steps=4", "--set", "train.validation_samples=4", "--set", "train.validate_every=0")
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 2048, "hidden_size": 32, "intermediate_size": 64,
         "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4096,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu"}
QWEN = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16, "attention_bias": False}


@functools.cache
def help_of(*words):
    return subprocess.run([*words, "--help"], text=True, capture_output=True, check=True).stdout


@functools.cache
def commands_of(program):
    """Returns the subcommands that --help lists."""
    if program == PROGRAM:
        return set(re.findall(r"^  ([a-z][a-z-]*)  ", help_of(PROGRAM).split("Subcommands:")[1], re.M))
    return set(re.findall(r"^  ([a-z][a-z-]*)(?: |$)", help_of(REPOSITORY / "run"), re.M)) | commands_of(PROGRAM)


def options_of(program, command):
    found = set(OPTION.findall(help_of(REPOSITORY / "run"))) if program != PROGRAM else set()
    return found | set(OPTION.findall(help_of(PROGRAM, command))) if command in commands_of(PROGRAM) else found


@functools.cache
def keys():
    """Returns every TABLE.KEY of job files; a section's table has the keys of all section types."""
    found, of_sections, table = set(), set(), ""
    for line in subprocess.run([PROGRAM, "help", "--markdown"], text=True, capture_output=True, check=True).stdout.splitlines():
        if line.startswith("### "):
            table = line.removeprefix("### ").strip("[]")
        elif line.startswith("| `"):
            key = line.split("`")[1]
            (found if re.fullmatch("[a-z]+", table) else of_sections).add(f"{table}.{key}" if re.fullmatch("[a-z]+", table) else key)
    sections = ("student", "teacher", "vision", "projector", "llm")
    return found | {f"{section}.{key}" for section in sections for key in of_sections}


def code_of(document):
    """Returns the lines of all shell blocks, joined at backslashes, and the words in backticks."""
    text = document.read_text()
    for _, language, body in FENCE.findall(text):
        if language in ("", "sh", "bash", "console"):
            lines = body.replace("\\\n", " ").splitlines()
            yield from (re.sub(r"\s#\s.*", "", line) for line in lines if not line.startswith("error: "))
    for code in INLINE.findall(FENCE.sub("", text)):
        yield code.replace("\\|", "|")


def calls(document):
    """Returns (program, command, rest) for each command line; `status|plan` counts as two."""
    for line in code_of(document):
        for part in re.split(r" && | \| |; ", line):
            if match := CALL.search(part):
                program = PROGRAM if match[1] == "maestro" else REPOSITORY / "run"
                command, rest = match[2], match[3]
                if program != PROGRAM and command == "maestro":
                    words = rest.split(maxsplit=1)
                    program, command, rest = PROGRAM, (words or ["help"])[0], "".join(words[1:])
                for name in command.split("|"):
                    yield program, name, rest


def cells_of_maestro(text):
    """Returns the cells of a page's tables in the columns `maestro` and `here`."""
    column = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
        if not cells:
            column = None
        elif column is None:
            column = next(at for at, cell in enumerate(cells) if cell in ("maestro", "here"))
        elif not line.startswith("|---"):
            yield cells[column]


def is_described(words):
    """Returns true for commands whose output depends on files only: nothing is measured."""
    return words[0] == "fleet" or "--cluster" in words


def described_sessions(folder):
    """Runs the described commands of all pages. Yields (page, block, the block with the command's output)."""
    for page in sorted((REPOSITORY / "docs").glob("*.md")):
        for match in FENCE.finditer(page.read_text()):
            file, language, body = match.groups()
            if file:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(body)
            first, _, _ = body.partition("\n")
            words = first.split()[2:] if language == "console" else []
            if words and is_described(words):
                done = subprocess.run([PROGRAM, *words], cwd=folder, text=True, capture_output=True, check=True)
                yield page, match[0], f"```console\n{first}\n{done.stdout}```"


def labels(output):
    """Returns the first words of the lines."""
    return {line.split()[0] for line in output.splitlines() if line.strip()}


class Pages(SystemTest):
    def test_commands_and_options_of_the_documents_exist(self):
        with concurrent.futures.ThreadPoolExecutor() as pool:  # starting a program takes longer than its help
            list(pool.map(functools.partial(help_of, PROGRAM), commands_of(PROGRAM)))
        seen = 0
        for document in DOCUMENTS:
            for program, command, rest in calls(document):
                with self.subTest(document=document.name, command=command, rest=rest):
                    self.assertIn(command, commands_of(program))
                    if command == "bench":
                        self.assertTrue(not rest.strip() or (REPOSITORY / "benchmarks" / rest.split()[0] / "run").exists())
                    else:
                        self.assertLessEqual(set(OPTION.findall(rest)), options_of(program, command))
                    seen += 1
        self.assertGreater(seen, 150)

    def test_keys_of_the_documents_exist(self):
        self.assertLess({"train.steps", "data.path", "student.alpha", "teacher.weights", "vision.patch"}, keys())
        for document in DOCUMENTS:
            for code in code_of(document):
                for key in KEY.findall(code) if re.fullmatch(rf"{KEY.pattern}( = .*)?", code) else re.findall(rf"--set '?({KEY.pattern})=", code):
                    with self.subTest(document=document.name):
                        self.assertTrue(key in keys() or key.startswith("data.mix"), key)

    def test_settings_next_to_the_settings_of_other_programs_exist(self):
        names = {key.rpartition(".")[2] for key in keys()}
        seen = 0
        for cell in cells_of_maestro((REPOSITORY / "docs/coming-from.md").read_text()):
            for code in INLINE.findall(cell):
                key = re.fullmatch(r"([a-z][a-z_0-9.]*)( = .*)?", code)
                if key is None or code in ("srun", "mpirun", "torchrun"):  # options and commands have other tests
                    continue
                self.assertTrue(key[1] in (keys() if "." in key[1] else names), f"no key {key[1]}: {cell}")
                seen += 1
        self.assertGreater(seen, 100)

    def test_the_figures_are_the_programs(self):
        for figure, drawn in figures(self.folder).items():
            self.assertEqual((REPOSITORY / "docs/figures" / figure).read_text(), drawn, f"{figure}: tests/apps/pages_test.py --write")

    def test_outputs_of_described_clusters_are_the_programs(self):
        shown = list(described_sessions(self.folder))
        self.assertGreaterEqual(len(shown), 4)
        for page, block, printed in shown:
            self.assertEqual(block, printed, f"{page.name}: tests/apps/pages_test.py --write")

    def test_sentences_about_described_clusters_agree_with_their_outputs(self):
        text = " ".join((REPOSITORY / "docs/planning.md").read_text().split())
        fixed, cells = (float(hours) for hours in re.findall(r"completion ([\d.]+) h on average", text))
        self.assertIn(f"jobs complete {100 * (1 - cells / fixed):.0f}% earlier on average", text)
        before, after = (float(hours) for hours in re.findall(r"large 10 [\d.]+ h ([\d.]+) h", text))
        self.assertIn(f"large jobs {100 * (after / before - 1):.0f}% later", text)
        pools = text.partition("--cluster pools.toml")[2]
        self.assertIn(f"no step would take less than {re.search(r'hosts ([0-9.]+) ', pools)[1]} ms", pools)
        students, = set(re.findall(r"(?:plain|student) (\d+) new ", pools))
        teacher, old = re.search(r"teacher (\d+) new \+ (\d+) old", pools).groups()
        self.assertIn(f"The students share {students} of the new devices, and the teacher computes on the other {teacher} "
                      f"and on the {old} old devices.", pools)

    def put(self, path, text):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def put_model(self, name, config, tokenizer="smollm2"):
        folder = self.folder / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / "1"
        text = tokenizer_text(tokenizer)
        tokens = 1 + max(json.loads(text)["model"]["vocab"].values())
        write_model(folder, {**config, "vocab_size": max(tokens, 2048)})
        (folder / "tokenizer.json").write_text(text)
        (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')

    def play(self, page):
        """Runs a page's sessions and returns their number of commands."""
        self.put("text.txt", text_corpus())
        variables = {"MAESTRO_REPOSITORY": str(REPOSITORY), "HF_HUB_CACHE": str(self.folder / "hub"), "HOME": str(self.folder)}
        played = 0
        for file, language, body in FENCE.findall((REPOSITORY / "docs" / page).read_text()):
            if file:
                self.put(file, body)
            for line in re.findall(r"^\$ (.*)", body.replace("\\\n", " "), re.M) if language == "console" else []:
                words = shlex.split(line, comments=True)
                self.assertIn(words.pop(0), ("maestro", "./run"), line)
                if is_described(words):
                    continue
                more = FEW_STEPS if words[0] in ("train", "distill", "vlm") else ()
                more += ("--teacher-set", "train.steps=4") if words == ["distill"] else ()
                more += ("--measure-ms", "0") if words[0] == "plan" and "--cluster" not in words else ()
                finished = self.call(*words, *more, variables=variables)
                self.assertEqual(finished.status, 0, f"{page}: $ {line}\n{finished.describe()}")
                if words[0] in ("plan", "what-if"):
                    missing = labels(body) - labels(finished.out) - {"$", "..."}
                    self.assertFalse(missing, f"{page}: $ {line}: no line begins with these\n{finished.describe()}")
                played += 1
        return played

    def test_the_sessions_of_the_first_page_run(self):
        self.assertGreaterEqual(self.play("start.md"), 6)

    def test_the_sessions_of_a_distillation_run(self):
        self.put("texts/a.txt", text_corpus())
        self.put_model("HuggingFaceTB/SmolLM2-360M", {**LLAMA, "num_hidden_layers": 3})
        self.put_model("HuggingFaceTB/SmolLM2-135M", LLAMA)
        self.assertGreaterEqual(self.play("distil-a-model.md"), 10)
        self.assertGreaterEqual(self.play("../README.md"), 1)

    def test_the_session_of_a_newcomer_runs(self):
        self.put_model("Qwen/Qwen3-0.6B", QWEN, "qwen2")
        template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" \
                   "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        model = next((self.folder / "hub").rglob("config.json")).parent
        (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": template}))
        turns = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two."}]
        self.put("chat.jsonl", (json.dumps({"messages": turns}) + "\n") * 40)
        self.assertGreaterEqual(self.play("coming-from.md"), 1)

    def test_the_sessions_of_other_pages_run(self):
        job = distillation(steps=16)
        job["name"], job["data"]["path"] = "distill", "text.txt"
        workload = re.search(r"```json\n(.*?)```", (REPOSITORY / "docs/workloads.md").read_text(), re.S)[1]
        on_policy = {**job, "generator": {"max_tokens": 8, "prompt_tokens": 8}}
        for page, commands in {"planning.md": 4, "distillation.md": 1, "launching.md": 1, "workloads.md": 1, "writing-an-app.md": 1,
                               "vision-language.md": 1}.items():
            self.put("job.toml", job_text(job))
            self.put("on-policy.toml", job_text(on_policy))
            self.put("workload.json", workload)
            with self.subTest(page):
                self.assertGreaterEqual(self.play(page), commands)

    def test_every_page_with_a_session_is_played(self):
        sessions = {file.name for file in (REPOSITORY / "docs").glob("*.md") if "```console\n" in file.read_text()}
        sessions.remove("first-section.md")  # needs an installation: tests/build/first_section_test.py
        self.assertEqual(sorted(name for name in sessions if f'"{name}"' not in Path(__file__).read_text()), [])


def figures(folder):
    """Returns {file: drawing} of the bundled jobs, on two devices."""
    (folder / "figure.txt").write_text(text_corpus())
    vlm = (REPOSITORY / "apps/graph/vlm.toml").read_text()
    vlm = re.sub(r'kind = "llava"\npath = .*\nvalidation_path = .*\n', 'kind = "synthetic_images"\n', vlm)
    (folder / "vlm.toml").write_text(vlm)
    jobs = {"distill.svg": (REPOSITORY / "apps/distill/distill.toml", "--set", "teacher.weights=random", "--set", "data.path=figure.txt"),
            "vlm.svg": ("vlm.toml", "--set", "llm.positions=256")}
    return {name: subprocess.run([PROGRAM, "check", *job, "--cpu-devices", "2", "--graph=svg"], cwd=folder, text=True,
                                 capture_output=True, check=True).stdout for name, job in jobs.items()}


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        import tempfile
        with tempfile.TemporaryDirectory() as scratch:
            for figure, drawn in figures(Path(scratch)).items():
                (REPOSITORY / "docs/figures" / figure).write_text(drawn)
            for page, block, printed in list(described_sessions(Path(scratch))):
                page.write_text(page.read_text().replace(block, printed))
    else:
        unittest.main(verbosity=2)
