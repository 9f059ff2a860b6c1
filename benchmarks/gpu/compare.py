#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training on a GPU with PyTorch, in one run: JSON lines of all measurements, then tables for the README.

GPT-2 124M, 32 x 1024 tokens a step, and a Llama-style 1.1B, 4 x 2048; bf16 with fp32 master weights, clipping, AdamW.
PyTorch runs compiled, with its vocabulary unchanged and padded to a multiple of 64: its faster run counts. Runs are
interleaved, `--rounds` of each, and the fastest of each counts. Then every single operator is compared with a copy and
a matrix product measured in the same run.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# By name: the model, the sequences per step, and their tokens. In small steps the GPU waits for the host.
WORKLOADS = {"gpt2-124m": ("gpt2-124m", 32, 1024), "llama-1b": ("llama-1b", 4, 2048),
             "gpt2-124m, small steps": ("gpt2-124m", 2, 256)}
TINY = {"gpt2-tiny": ("gpt2-tiny", 4, 64), "llama-tiny": ("llama-tiny", 4, 64)}
ALIGNED = {"llama-1b"}  # models with a vocabulary divisible by 64
WITHOUT_GRAPHS = "maestro, no graphs"
WANTED_SHARE = 0.8  # share of a copy's bandwidth, or of the measured matrix rate


def run(command, log):
    """Returns a program's JSON objects, which are also written to `log`; if it failed none, with a line on stderr."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = " ".join(map(str, command))
        print(f"compare: failed ({done.returncode}): {words}\n{done.stderr[-2000:]}", file=sys.stderr)
        return []
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for each in found:
        print(json.dumps(each), flush=True)
        log.write(json.dumps(each) + "\n")
    return found


def programs(arguments, model, batch, sequence):
    """Yields (name, command) for every program that trains the model."""
    common = ["--device", arguments.device, "--model", model, "--batch", batch, "--sequence", sequence, "--steps",
              arguments.steps, "--warmup", arguments.warmup]
    own = [arguments.binaries / "train_bench", *common]
    yield "maestro", own
    yield WITHOUT_GRAPHS, [*own, "--graphs", "never"]
    if arguments.python:
        peer = [arguments.python, HERE / "torch_train.py", *common, *(["--eager"] if arguments.tiny else [])]
        yield "PyTorch", peer
        if model not in ALIGNED:
            yield "PyTorch, padded", [*peer, "--padded"]
        if batch * sequence < 1024 and not arguments.tiny:  # the GPU waits for the host
            yield "PyTorch, graphs", [*peer, "--graphs", "--padded"]


def train_all(arguments, log):
    """Returns {workload: {program: fastest run}}; our program reports the FLOPs of a step."""
    best = {}
    for workload, (model, batch, sequence) in (TINY if arguments.tiny else WORKLOADS).items():
        if arguments.models and workload not in arguments.models:
            continue
        runs = best.setdefault(workload, {})
        for _ in range(arguments.rounds):
            for name, command in programs(arguments, model, batch, sequence):
                for result in run(command, log):
                    if name not in runs or result["step_ms"] < runs[name]["step_ms"]:
                        runs[name] = result
    return best


def training_table(best, peaks):
    print("\n| model | program | tokens/s | step ms | share of measured matrix peak | memory in use, MiB |")
    print("|---|---|---|---|---|---|")
    for model, runs in best.items():
        flops = runs.get("maestro", {}).get("flops_per_step")
        for name, result in runs.items():
            share = "-"
            if flops and peaks:
                share = f"{flops / result['step_ms'] / 1e9 / peaks['matrix_tflops']:.2f}"
            memory = f"{result['memory_mib']:.0f}" if "memory_mib" in result else "-"
            print(f"| {model} | {name} | {result['tokens_per_s']:.0f} | {result['step_ms']:.2f} | {share} | {memory} |")
        peers = [result["tokens_per_s"] for name, result in runs.items() if not name.startswith("maestro")]
        if peers and "maestro" in runs:
            print(f"\n{model}: {runs['maestro']['tokens_per_s'] / max(peers):.2f} x the fastest PyTorch run\n")


def operator_table(operators, peaks):
    copy = next((each["gb_per_s"] for each in operators if each["operator"] == "copy"), None)
    print("\n| operator | ms | GB/s | share of a copy | TFLOP/s | share of matrix peak | |")
    print("|---|---|---|---|---|---|---|")
    for each in operators:
        bandwidth = each["gb_per_s"] / copy if copy else 0
        matrix = each["tflops"] / peaks["matrix_tflops"] if peaks and "tflops" in each else None
        short = (matrix if matrix is not None else bandwidth) < WANTED_SHARE
        rate = f"{each['tflops']:.1f}" if "tflops" in each else "-"
        share = f"{matrix:.2f}" if matrix is not None else "-"
        cells = [each["operator"], f"{each['ms']:.4f}", f"{each['gb_per_s']:.0f}", f"{bandwidth:.2f}", rate, share,
                 "short of 80%" if short else ""]
        print("| " + " | ".join(cells) + " |")


def interpreter_with_torch(wanted):
    for python in [wanted] if wanted else [os.environ.get("MAESTRO_TORCH_PYTHON"), "python3"]:
        if python and subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            return python
    print("compare: no Python with torch; measured without the peer (--python names one)", file=sys.stderr)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=pathlib.Path, required=True, help="folder of train_bench and kernel_bench")
    parser.add_argument("--python", help="interpreter with torch (default: $MAESTRO_TORCH_PYTHON, then python3)")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--models", nargs="*", help="of " + "; ".join(WORKLOADS))
    for name, default in (("steps", 20), ("warmup", 5), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tiny", action="store_true", help="try the comparison itself: small models, any device")
    parser.add_argument("--log", type=pathlib.Path, default=pathlib.Path("gpu-bench.jsonl"), help="file of all lines")
    arguments = parser.parse_args()
    arguments.python = interpreter_with_torch(arguments.python)
    with arguments.log.open("w", encoding="utf-8", buffering=1) as log:  # lines survive a Ctrl-C
        peaks = None
        if arguments.python:
            measure = [arguments.python, HERE / "torch_train.py", "--device", arguments.device, "--peaks"]
            peaks = next(iter(run(measure, log)), None)
        best = train_all(arguments, log)
        operators = run([arguments.binaries / "kernel_bench", "--device", arguments.device, "--sizes",
                         "tiny" if arguments.tiny else "gpt2-124m"], log)
    print(f"\n{datetime.date.today()}, {arguments.device}; peaks: {json.dumps(peaks)}")
    training_table(best, peaks)
    operator_table(operators, peaks)
    missing = [f"{name} of {workload}" for workload, runs in best.items()
               for name, _ in programs(arguments, *{**WORKLOADS, **TINY}[workload]) if name not in runs]
    if not operators:
        missing.append("the operators")
    for what in missing:
        print(f"compare: there are no figures of {what}; see above", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
