#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The step of distill.toml in PyTorch, on CPUs: a frozen teacher, a student, KL divergence at temperature 2, AdamW.

Prints a line of JSON. `--role both` has the models in one process that uses all threads; `--role actors` has each
model in a process on a separate core, with two batches in flight.
"""
import os
import pathlib
import resource
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_blocks import (VOCABULARY, Decoder, adamw, autocast, draw_weights, print_line, read_options,  # noqa: E402
                          token_rows, tune, update)

TEACHER = {"layers": 12, "width": 768, "heads": 12}
STUDENT = {"layers": 6, "width": 384, "heads": 6}
BATCH, SEQUENCE, TEMPERATURE, DEPTH = 8, 128, 2.0, 2


def make_model(shape, seed, options):
    torch.manual_seed(seed)
    return draw_weights(Decoder(**shape, positions=SEQUENCE, attention=options.attention))


def make_teacher(options):
    """Returns a function from tokens to the teacher's logits."""
    model = make_model(TEACHER, options.seed, options).requires_grad_(False)
    run = torch.compile(model) if options.compile else model

    def logits(ids):
        with torch.no_grad(), autocast(options):
            return run(ids).float()
    return logits


def make_student(options):
    """Returns a function that trains the student for a step and returns the loss."""
    model = make_model(STUDENT, options.seed + 1, options)
    run = torch.compile(model) if options.compile else model
    optimizer = adamw(model)

    def step(ids, expected):
        with autocast(options):
            logits = run(ids)
        wanted = F.softmax(expected.view(-1, VOCABULARY) / TEMPERATURE, -1)
        found = F.log_softmax(logits.float().view(-1, VOCABULARY) / TEMPERATURE, -1)
        return update(optimizer, F.kl_div(found, wanted, reduction="batchmean") * TEMPERATURE**2)
    return step


def batches(options):
    generator = torch.Generator().manual_seed(options.seed)
    for _ in range(options.warmup + options.steps):
        yield token_rows(BATCH, SEQUENCE, generator)


def train_in_one_process(options):
    teacher, student = make_teacher(options), make_student(options)
    seconds, losses = [], []
    for ids in batches(options):
        begin = time.perf_counter()
        losses.append(student(ids, teacher(ids)))
        seconds.append(time.perf_counter() - begin)
    return seconds[options.warmup:], losses


def use_core(core):
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)


def run_teacher(options, core, slots, free, full):
    """Fills free slots with tokens and logits."""
    use_core(core)
    teacher = make_teacher(options)
    for ids in batches(options):
        at = free.get()
        slots[at][0].copy_(ids)
        slots[at][1].copy_(teacher(ids))
        full.put(at)


def train_in_two_processes(options):
    first, second, *_ = sorted(os.sched_getaffinity(0))
    processes = torch.multiprocessing.get_context("fork")
    slots = [(torch.zeros(BATCH, SEQUENCE, dtype=torch.int64).share_memory_(),
              torch.zeros(BATCH, SEQUENCE, VOCABULARY).share_memory_()) for _ in range(DEPTH)]
    free, full = processes.SimpleQueue(), processes.SimpleQueue()
    for at in range(DEPTH):
        free.put(at)
    teacher = processes.Process(target=run_teacher, args=(options, first, slots, free, full), daemon=True)
    teacher.start()
    use_core(second)
    student = make_student(options)
    ends, losses = [], []
    for _ in range(options.warmup + options.steps):
        at = full.get()
        losses.append(student(*slots[at]))
        free.put(at)
        ends.append(time.perf_counter())
    teacher.join()
    timed = ends[options.warmup - 1:]
    return [end - begin for begin, end in zip(timed, timed[1:])], losses


def main():
    parser = read_options(__doc__)
    parser.add_argument("--role", choices=("both", "actors"), default="both")
    options = parser.parse_args()
    if options.role == "actors" and options.warmup < 1:
        parser.error("--role actors needs a step of warmup")
    tune(options)
    if options.role == "actors":
        seconds, losses = train_in_two_processes(options)
        counted = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    else:
        seconds, losses = train_in_one_process(options)
        counted = (resource.RUSAGE_SELF,)
    memory = sum(resource.getrusage(who).ru_maxrss for who in counted)
    print_line("distill", options, seconds, losses, BATCH, memory)


if __name__ == "__main__":
    main()
