#!/usr/bin/env python3
"""Whole jobs on CUDA devices train as on processors, and what devices cannot do is told in one line.

MAESTRO_CUDA_DOUBLE names the backend over doubles of CUDA's runtime and of cuBLASLt: it has four devices, and runs every
kernel on the processor, thread by thread. So models and runs are tiny.
"""

import ctypes
import math
import os
import signal
import unittest
from unittest import mock

import bad_input_test
import failure_test
import interrupt_test
import vlm_test
from layouts_test import figures_of
from maestro_program import SystemTest

DOUBLE = os.environ.get("MAESTRO_CUDA_DOUBLE", "")
STEPS = 10  # of a language model on one device
FEW, HALF = 6, 3  # of everything else
VOCABULARY = 61
# Kernels add fp32 products in another order, 6e-8 each; some steps of a distillation amplify it to 3e-6.
FP32_TOLERANCE = 2e-5
BF16_TOLERANCE = 2e-2  # of 8 significant bits, which both round at places of their own
DEVICES = [f"cuda:{index}" for index in range(4)]
ONE, OTHER = DEVICES[:2]


def gpt2(**changes):
    return {"family": "gpt2", "layers": 2, "width": 32, "heads": 2, "positions": 16, "vocabulary": VOCABULARY,
            "micro_batch": 2, "replicas": 1, **changes}


def llama(**changes):
    """With grouped-query attention and untied embeddings."""
    return gpt2(**{"family": "llama", "kv_heads": 1, "ffn": 40, "tied": False, **changes})


def job_of(app, train=None, **sections):
    return {
        "name": "cuda",
        "app": app,
        "train": {"steps": FEW, "global_batch": 4, "validation_samples": 4, "checkpoint_at_end": False, "out": "out",
                  **(train or {})},
        "data": {"kind": "synthetic", "sequence": 13, "vocabulary": VOCABULARY},
        **sections,
    }


FAMILIES = {"gpt2": gpt2, "llama": llama}
LEARNS = {"lr": 1e-3}


def language_model(family="gpt2", train=None, **changes):
    return job_of("language_model", train, teacher=FAMILIES[family](**{**LEARNS, **changes}))


def distillation(train=None, teacher=None, student=None):
    return job_of("distillation", train, teacher=llama(**(teacher or {})), student=gpt2(**LEARNS, **(student or {})))


def split(section):
    """The settings of a job's section by their --set names: {"teacher": {"share": 1}} is {"teacher.share": 1}."""
    return {f"{name}.{key}": value for name, values in section.items() for key, value in values.items()}


def has_driver():
    try:
        return bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return False


def setUpModule():
    if not DOUBLE:
        raise unittest.SkipTest("MAESTRO_CUDA_DOUBLE is not set: the build lacks the headers of CUDA, cuBLASLt or NCCL")


class WithDevices:
    """The program finds the backend over the doubles."""

    def setUp(self):
        super().setUp()
        self.use_library(DOUBLE)

    def use_library(self, path):
        change = mock.patch.dict(os.environ, MAESTRO_CUDA_LIBRARY=path)
        change.start()
        self.addCleanup(change.stop)


class OnDevices(WithDevices, SystemTest):
    def train_on(self, job, devices, *options, settings=None):
        """`devices` of the sections by name."""
        placed = {f"{section}.devices": named for section, named in devices.items()}
        finished = self.train(job, *options, settings={**placed, **(settings or {})})
        used = {device for lane in finished.report["plan"]["lanes"] for device in lane["devices"]}
        self.assertEqual(used - {"host"}, {device for named in devices.values() for device in named})
        return finished

    def assert_same(self, expected, finished, tolerance=FP32_TOLERANCE):
        self.assert_close(figures_of(expected), figures_of(finished), tolerance)

    def check_graphs(self, job, settings):
        """That CUDA graphs change no bit of what a job finds."""
        curves = [figures_of(self.train(job, settings={**settings, "train.cuda_graphs": choice}))
                  for choice in ("never", "always", "auto")]
        self.assertEqual(curves[0], curves[1])
        self.assertEqual(curves[0], curves[2])

    def check(self, job, devices, *options, settings=None, tolerance=FP32_TOLERANCE):
        """`settings` are of the run on devices only."""
        expected = self.train(job)
        self.assertEqual({row["step"] for row in expected.report["steps"]}, set(range(1, job["train"]["steps"] + 1)))
        self.assert_same(expected, self.train_on(job, devices, *options, settings=settings), tolerance)


class ALanguageModel(OnDevices):
    def test_trains_as_on_a_processor(self):
        for family in FAMILIES:
            for precision, tolerance in (("fp32", FP32_TOLERANCE), ("bf16", BF16_TOLERANCE)):
                with self.subTest(family, precision=precision):
                    job = language_model(family, {"steps": STEPS}, precision=precision)
                    self.check(job, {"teacher": [ONE]}, tolerance=tolerance)

    def test_whose_passes_are_replayed_as_graphs_trains_to_the_same_bits(self):
        one, two = {"teacher.devices": [ONE]}, {"teacher.devices": [ONE, OTHER], "teacher.pipeline": 2}
        for settings in (one, two):
            with self.subTest(**settings):
                self.check_graphs(language_model(tied=True, micro_batch=1), settings)

    def test_of_two_stages_with_one_tied_embedding_trains_as_on_one_processor(self):
        for family in FAMILIES:
            with self.subTest(family):
                self.check(language_model(family, tied=True), {"teacher": [ONE, OTHER]},
                           settings={"teacher.pipeline": 2})

    def test_cut_into_two_sections_returns_its_gradient(self):
        part = gpt2(tied=False, **LEARNS)
        job = job_of("split_language_model", {"clip": "global"}, trunk=part, head=part)
        self.check(job, {"trunk": [ONE], "head": [ONE]})
        self.check(job, {"trunk": [ONE], "head": [OTHER]}, "--processes", 2)
        self.check(job, {"trunk": ["cpu:0"], "head": [ONE]})


class ADistillation(OnDevices):
    SHARES = split({"teacher": {"share": 0.25}, "student": {"share": 0.5}})

    def test_of_two_sections_that_share_a_device_trains_as_on_processors(self):
        for boundary in ({"boundary": "hidden"}, {"boundary": "logits"}, {"boundary": "top_k", "top_k": 7}):
            with self.subTest(**boundary):
                self.check(distillation(teacher=boundary, student=boundary), {"teacher": [ONE], "student": [ONE]},
                           settings=self.SHARES)

    def test_whose_passes_are_replayed_as_graphs_trains_to_the_same_bits(self):
        placed = {"teacher.devices": [ONE], "student.devices": [ONE]}
        self.check_graphs(distillation(), {**placed, **self.SHARES})

    def test_of_a_bf16_student_with_logits_of_either_precision_trains_as_on_processors(self):
        """An odd vocabulary: rows of 122 bytes beside rows of 244."""
        bf16 = {"boundary": "logits", "precision": "bf16"}
        for teacher in ("fp32", "bf16"):
            with self.subTest(teacher=teacher):
                job = distillation(teacher={**bf16, "precision": teacher}, student=bf16)
                self.check(job, {"teacher": [ONE], "student": [ONE]}, tolerance=BF16_TOLERANCE)

    def test_between_a_device_and_a_processor_trains_as_on_processors(self):
        self.check(distillation(), {"teacher": ["cpu:0"], "student": [ONE]})
        self.check(distillation(), {"teacher": [ONE], "student": ["cpu:0"]})
        self.check(distillation(), {"teacher": [ONE], "student": ["cpu:0"]}, "--processes", 2)


class OneReplica(OnDevices):
    """Cut over devices: heads and rows are exchanged by the group's own calls."""

    CUT = {"width": 64, "heads": 4}
    LAYOUTS = ({"context": 2}, {"tensor": 2}, {"context": 2, "tensor": 2})

    def check_cut(self, job, section, layout, **settings):
        devices = DEVICES[:math.prod(layout.values())]
        wanted = {f"{section}.{key}": degree for key, degree in layout.items()}
        self.check(job, {section: devices}, settings={**wanted, **settings})

    def test_cut_over_devices_trains_as_on_one_processor(self):
        for layout in self.LAYOUTS:
            for family, changes in (("gpt2", {}), ("llama", {"kv_heads": 4})):
                with self.subTest(family, **layout):
                    self.check_cut(language_model(family, **self.CUT, **changes), "teacher", layout)

    def test_of_each_section_of_a_distillation_is_cut_in_its_own_way(self):
        for boundary in ({"boundary": "hidden"}, {"boundary": "logits"}, {"boundary": "top_k", "top_k": 7}):
            cuts = [{"teacher.tensor": 2, "student.tensor": 2}]
            if boundary["boundary"] != "logits":  # that one wants the same degree on both sides
                cuts.append({"teacher.tensor": 2, "student.context": 2})
            sections = {"teacher": {**boundary, **self.CUT, "kv_heads": 2}, "student": {**boundary, **self.CUT}}
            for cut in cuts:
                with self.subTest(**boundary, **cut):
                    self.check(distillation(**sections), {"teacher": DEVICES[:2], "student": DEVICES[2:]}, settings=cut)


class BetweenProcesses(OnDevices):
    """Teacher and student in processes of their own."""

    APART = ("--processes", 2)
    EDGE = "teacher.hidden to student.teacher_hidden: "
    BY_IPC = EDGE + "by CUDA IPC"
    IN_CHUNKS = EDGE + "by page-locked memory in chunks"
    OPEN = EDGE + "from device to device by RMA where it registers, else by page-locked memory in chunks"
    PROVIDERS = ("shm", "tcp")
    CHUNK = {"transport.chunk_kib": 1}

    def check_path(self, expected, teacher, student, *lines, **settings):
        """Returns the run, which has printed one line that begins with each of `lines`."""
        settings = {f"transport.{name}": value for name, value in {"chunk_kib": 1, **settings}.items()}
        finished = self.train_on(distillation(), {"teacher": [teacher], "student": [student]}, *self.APART,
                                 settings=settings)
        self.assert_same(expected, finished)
        printed = [line.strip() for line in finished.out.splitlines()]
        for line in lines:
            self.assertEqual(sum(each.startswith(line) for each in printed), 1, finished.describe())
        return finished

    def test_devices_of_one_host_share_memory_and_write_a_header_a_piece(self):
        expected = self.train(distillation())
        for provider in self.PROVIDERS:
            with self.subTest(provider):
                shared = self.check_path(expected, ONE, OTHER, self.BY_IPC, provider=provider)
                self.assertNotIn("not by CUDA IPC", shared.out)
                staged = self.check_path(expected, ONE, OTHER, self.OPEN, provider=provider, force_rma=True)
                writes = [run.report["transfers"]["writes"] for run in (shared, staged)]
                self.assertLess(writes[0], writes[1])

    def test_one_device_in_two_processes_shares_memory_with_itself(self):
        self.assertNotIn("not by CUDA IPC", self.check_path(self.train(distillation()), ONE, ONE, self.BY_IPC).out)

    def test_what_cannot_be_shared_is_staged_in_chunks_and_the_reason_told(self):
        """`MAESTRO_CUDA_DOUBLE_IPC` is how far the double goes."""
        expected = self.train(distillation())
        reasons = {"none": "the receiver does not share its memory",
                   "export": "the driver does not open it: an error of the double"}
        for far, reason in reasons.items():
            with self.subTest(far), mock.patch.dict(os.environ, MAESTRO_CUDA_DOUBLE_IPC=far):
                told = f"note: {self.EDGE}not by CUDA IPC ({reason}), by page-locked memory in chunks"
                self.check_path(expected, ONE, OTHER, self.BY_IPC, told)

    def test_what_the_network_does_not_reach_is_staged_in_chunks_and_the_reason_told(self):
        expected = self.train(distillation())
        reasons = {"shm": "cannot register", "tcp": "provider tcp has no FI_HMEM)"}
        for provider, reason in reasons.items():
            with self.subTest(provider):
                told = f"note: {self.IN_CHUNKS} ({reason}"
                self.check_path(expected, ONE, OTHER, self.OPEN, told, provider=provider, force_rma=True)

    def test_forced_rma_within_one_process_is_staged_too(self):
        self.check(distillation(), {"teacher": [ONE], "student": [OTHER]},
                   settings={**self.CHUNK, "transport.force_rma": True, "transport.provider": "tcp"})

    def test_a_device_and_a_processor_meet_in_page_locked_memory(self):
        expected = self.train(distillation())
        for provider in self.PROVIDERS:
            with self.subTest(provider):
                self.check_path(expected, ONE, "cpu:0", self.IN_CHUNKS, provider=provider)
                self.check_path(expected, "cpu:0", ONE, self.EDGE + "by page-locked memory and RMA", provider=provider)

    def test_gradients_go_back_the_same_ways(self):
        part = gpt2(tied=False, **LEARNS)
        job = job_of("split_language_model", {"clip": "global"}, trunk=part, head=part)
        expected = self.train(job)
        for far, told in (("all", 0), ("none", 1)):
            with self.subTest(far), mock.patch.dict(os.environ, MAESTRO_CUDA_DOUBLE_IPC=far):
                finished = self.train_on(job, {"trunk": [ONE], "head": [OTHER]}, *self.APART, settings=self.CHUNK)
                self.assert_same(expected, finished)
                self.assertEqual(finished.out.count("the gradient of head.hidden to trunk.hidden: not by CUDA IPC"),
                                 told, finished.describe())

    def test_pieces_of_several_ways_meet_in_one_micro_batch(self):
        """Two teachers, one beside the student and one apart, send halves of its micro-batches."""
        job = distillation({"global_batch": 8}, teacher={"micro_batch": 2}, student={"micro_batch": 4})
        expected = self.train(job)
        for devices in ([ONE, OTHER], [ONE, "cpu:0"], ["cpu:0", ONE]):
            with self.subTest(devices=devices):
                placed = {"teacher": devices, "student": [ONE]}
                self.assert_same(expected, self.train_on(job, placed, *self.APART,
                                                         settings={**self.CHUNK, "teacher.replicas": 2}))


class ALostEndOfAnEdge(WithDevices, failure_test.LosesProcesses):
    def lose_one(self, rank):
        """With copies into its memory, or out of the other's, under way at any time."""
        for forced in (False, True):
            with self.subTest(forced=forced):
                job = distillation({"steps": 1_000_000}, teacher={"devices": [ONE]}, student={"devices": [OTHER]})
                run = self.start(job, *BetweenProcesses.APART,
                                 settings={**BetweenProcesses.CHUNK, "transport.force_rma": forced})
                self.lose(run, 2, rank, signal.SIGKILL)

    def test_that_receives_ends_the_other_with_one_error(self):
        self.lose_one(1)

    def test_that_sends_ends_the_other_with_one_error(self):
        self.lose_one(0)


BY_NCCL = "gradients of 2 replicas by NCCL"
BY_HOST = "gradients of 2 replicas in memory of the processor"


class Replicas(OnDevices):
    PLACES = {"one process": (1, "auto"), "two processes over shm": (2, "shm"), "two processes over tcp": (2, "tcp")}

    def check_way(self, finished, way):
        self.assertIn(f"teacher: {way}", finished.out, finished.describe())


class TwoReplicas(Replicas):
    PAIR = {"teacher.replicas": 2}

    def check_everywhere(self, zero):
        job = language_model()
        expected = self.train(job)
        for name, (processes, provider) in self.PLACES.items():
            with self.subTest(name):
                settings = {**self.PAIR, "teacher.zero": zero, "transport.provider": provider}
                finished = self.train_on(job, {"teacher": [ONE, OTHER]}, "--processes", processes, settings=settings)
                self.assert_same(expected, finished)
                self.check_way(finished, BY_NCCL)

    def test_train_as_one(self):
        self.check_everywhere(False)

    def test_that_share_the_optimizer_state_train_as_one(self):
        self.check_everywhere(True)

    def test_of_which_one_is_on_a_processor_train_as_one(self):
        job = language_model()
        expected = self.train(job)
        finished = self.train_on(job, {"teacher": ["cpu:0", ONE]}, settings=self.PAIR)
        self.assert_same(expected, finished)
        self.check_way(finished, BY_HOST)

    def test_give_the_bits_of_a_reduction_in_memory_of_the_processor(self):
        job = language_model()
        for zero in (False, True):
            with self.subTest(zero=zero):
                settings = {**self.PAIR, "teacher.zero": zero}
                places = {"teacher": [ONE, OTHER]}
                by_nccl = self.train_on(job, places, settings=settings)
                by_host = self.train_on(job, places, settings={**settings, "transport.force_rma": True})
                self.check_way(by_nccl, BY_NCCL)
                self.check_way(by_host, BY_HOST)
                self.assertEqual(by_nccl.curve(), by_host.curve())

    def test_that_share_the_optimizer_state_are_resumed_bitwise(self):
        for processes in (1, 2):
            with self.subTest(processes=processes):
                out = f"of{processes}"
                job = language_model(train={"checkpoint_every": HALF, "keep_checkpoints": 3, "out": out})
                settings = {**self.PAIR, "teacher.zero": True}
                places = {"teacher": [ONE, OTHER]}
                options = ("--processes", processes)
                whole = self.train_on(job, places, *options, settings=settings).curve(after=HALF)
                self.assertEqual(len(whole), FEW - HALF)
                half = f"{out}/checkpoints/step-{HALF:08}"
                more = {**settings, "train.out": f"more{processes}"}
                resumed = self.train_on(job, places, *options, "--resume", half, settings=more)
                self.assertEqual(resumed.curve(), whole)

    def test_of_two_sections_that_share_their_devices_train_as_one(self):
        """Each section has a group of its own on each device."""
        part = gpt2(tied=False, **LEARNS)
        job = job_of("split_language_model", {"clip": "global"}, trunk=part, head=part)
        both = {"trunk": [ONE, OTHER], "head": [ONE, OTHER]}
        settings = {"trunk.replicas": 2, "head.replicas": 2, "head.zero": True}
        expected = self.train(job)
        for processes in (1, 2):
            with self.subTest(processes=processes):
                self.assert_same(expected, self.train_on(job, both, "--processes", processes, settings=settings))


class FourDevices(Replicas):
    def test_of_two_stages_with_one_tied_embedding_and_two_replicas_train_as_one(self):
        job = language_model(tied=True)
        expected = self.train(job)
        for processes, zero in ((1, False), (1, True), (2, False), (2, True)):
            with self.subTest(processes=processes, zero=zero):
                settings = {"teacher.pipeline": 2, "teacher.replicas": 2, "teacher.zero": zero}
                finished = self.train_on(job, {"teacher": DEVICES}, "--processes", processes, settings=settings)
                self.assert_same(expected, finished)
                for stage in ("stage0", "stage1"):
                    self.assertIn(f"teacher.{stage}: {BY_NCCL}", finished.out)

    def test_of_two_replicas_cut_over_two_devices_each_train_as_one(self):
        """Each rank has a group with the same rank of the other replica, beside that of its own."""
        job = language_model(**OneReplica.CUT)
        expected = self.train(job)
        for processes, zero in ((1, False), (2, True)):
            with self.subTest(processes=processes, zero=zero):
                settings = {"teacher.context": 2, "teacher.replicas": 2, "teacher.zero": zero}
                finished = self.train_on(job, {"teacher": DEVICES}, "--processes", processes, settings=settings)
                self.assert_same(expected, finished)
                self.check_way(finished, BY_NCCL)

    def test_of_as_many_replicas_train_as_one(self):
        """More than two: sums in an order of the group's own."""
        job = language_model()
        job["teacher"]["micro_batch"] = 1
        for zero in (False, True):
            with self.subTest(zero=zero):
                self.check(job, {"teacher": DEVICES}, settings={"teacher.replicas": 4, "teacher.zero": zero})


class ALostProcess(WithDevices, failure_test.LosesProcesses):
    """The other one may wait for it in a group."""

    def lose_one(self, rank, how):
        job = language_model(train={"steps": interrupt_test.LONG})
        job["teacher"] |= {"replicas": 2, "devices": [ONE, OTHER]}
        self.lose(self.start(job, "--processes", 2), 2, rank, how)

    def test_rank_0_killed_ends_the_other_with_one_error(self):
        self.lose_one(0, signal.SIGKILL)

    def test_rank_1_killed_ends_the_other_with_one_error(self):
        self.lose_one(1, signal.SIGKILL)

    def test_rank_1_stopped_ends_the_other_with_one_error(self):
        self.lose_one(1, signal.SIGSTOP)


class AReplicaThatFails(WithDevices, failure_test.ARankFails):
    def test_by_divergence_ends_the_run_with_one_error(self):
        for processes in (1, 2):
            with self.subTest(processes=processes):
                job = language_model(train={"steps": interrupt_test.LONG}, lr=1e30, clip_norm=0)
                job["teacher"] |= {"replicas": 2, "devices": [ONE, OTHER]}
                self.fail(self.start(job, "--processes", processes), "section 'teacher", "training diverged")


class ACheckpoint(OnDevices):
    PLACES = {"device": {"student": [ONE], "teacher": [ONE]}, "processor": {"student": ["cpu:0"], "teacher": ["cpu:0"]}}

    def run_of(self, place, out, *options):
        job = distillation({"out": out, "checkpoint_every": HALF, "keep_checkpoints": 3})
        return self.train_on(job, self.PLACES[place], *options)

    def test_of_a_device_is_resumed_there_bitwise_and_elsewhere_nearly(self):
        wholes = {place: self.run_of(place, place).curve(after=HALF) for place in self.PLACES}
        self.assertEqual(len(wholes["device"]), FEW - HALF)
        for made in self.PLACES:
            for resumed in self.PLACES:
                with self.subTest(made=made, resumed=resumed):
                    half = f"{made}/checkpoints/step-{HALF:08}"
                    finished = self.run_of(resumed, f"{made} to {resumed}", "--resume", half)
                    self.assertEqual(finished.report["resumed_from"], HALF)
                    tolerance = 0.0 if made == resumed else FP32_TOLERANCE
                    self.assert_close(wholes[made], finished.curve(), tolerance)


class CtrlC(WithDevices, interrupt_test.Interrupted):
    def job(self):
        job = language_model(train={"steps": interrupt_test.LONG, "checkpoint_at_end": True}, schedule="constant")
        job["teacher"] |= {"replicas": 2, "devices": [ONE, OTHER]}
        return job

    def test_writes_a_checkpoint_from_which_one_process_goes_on_bitwise(self):
        self.check_resumable(1)

    def test_writes_a_checkpoint_from_which_two_processes_go_on_bitwise(self):
        self.check_resumable(2)

    def test_twice_leaves_two_processes_at_once(self):
        self.assertEqual(self.leave_at_once(2, "shm").status, 130)

    def test_twice_leaves_one_process_at_once(self):
        self.assertIn(self.leave_at_once(1, "auto").status, (130, 0))


class AVisionLanguageModel(WithDevices, vlm_test.VisionLanguageTest):
    def job(self):
        job = vlm_test.vision_language(steps=FEW, validation_samples=8)
        job["vision"]["heads"] = 1  # of 16: the least size of a head
        for section in vlm_test.SECTIONS:
            job[section]["lr"] = 3e-3
        return job

    def write_questions(self):
        """With pictures and without; three of four answers are the same, which is learnt first."""
        answers = "rrrb"
        pictures = [vlm_test.sample(f"picture{i}", "Which?", answers[i % 4], ("red.png", "blue.png")[i % 4 == 3])
                    for i in range(16)]
        text = [vlm_test.sample(f"text{i}", "Which?", answers[i % 4]) for i in range(8)]
        self.write_data("mixed.json", pictures + text)

    def test_learns_and_answers_as_on_processors(self):
        self.write_questions()
        curves = []
        for devices, cut in ((["cpu:0"], {}), ([ONE], {}), ([ONE, OTHER], {"tensor": 2}), ([ONE, OTHER], {"context": 2})):
            settings = {f"{section}.devices": devices[:1] for section in vlm_test.SECTIONS}
            settings |= {"llm.devices": devices, **{f"llm.{key}": degree for key, degree in cut.items()}}
            # Sections that look at their inputs make other calls for others: what is replayed must be the right one.
            finished = self.train(self.job(), settings={**settings, "train.cuda_graphs": "always"})
            used = {device for lane in finished.report["plan"]["lanes"] for device in lane["devices"]}
            self.assertEqual(used, {"host", *devices})
            self.assertEqual(self.sections_with_steps(finished), set(vlm_test.SECTIONS))
            validation = finished.report["validation"]
            curves.append({**figures_of(finished), "answers": [validation["exact_match"]]})
        self.assertGreater(curves[0]["answers"][0], 0.0)
        for curve in curves[1:]:
            self.assert_close(curves[0], curve, FP32_TOLERANCE)


class WrongInput(WithDevices, bad_input_test.Refusals):
    def refuse_model(self, *wanted, **changes):
        with self.subTest(**changes):
            self.refuse_job(language_model(**changes), "teacher", *wanted)

    def test_a_device_that_is_not_there_is_refused(self):
        self.refuse_model('"cuda:9"', "cuda:0 to cuda:3", devices=["cuda:9"])
        for name in ("cuda:", "cuda:x", "cuda:-1", f"cuda:{2 ** 64}"):
            self.refuse_model(f'"{name}"', "cuda:K", devices=[name])

    def test_a_device_of_two_replicas_is_refused_as_a_core_is(self):
        self.refuse_model("teacher.devices", f'"{ONE}"', "twice", devices=[ONE, ONE], replicas=2)

    def test_shares_that_cannot_be_had_are_refused(self):
        for share in (0, -1, 1.5):
            self.refuse_model("teacher.share", "greater than 0 and at most 1", devices=[ONE], share=share)
        self.refuse_model("teacher.share", "CUDA device", devices=["cpu:0"], share=0.5)
        self.refuse_model("teacher.share", "CUDA device", share=0.5)
        both = {"teacher": {"devices": [ONE], "share": 0.75}, "student": {"devices": [ONE], "share": 0.5}}
        self.refuse_job(distillation(), "teacher.share + student.share = 1.25", ONE, "at most 1", settings=split(both))
        apart = {**both, "student": {"devices": [OTHER], "share": 0.5}}
        name = self.write_job(distillation())
        checked = self.call("check", name, *bad_input_test.options_of(split(apart)))
        self.assertEqual(checked.status, 0, checked.describe())

    def test_a_replica_cut_over_a_device_and_a_core_is_refused(self):
        for degree in ("tensor", "context"):
            self.refuse_model("teacher.devices: the ranks of replica 0", f"{ONE} and cpu:0", "GPUs for all",
                              devices=[ONE, "cpu:0"], **{degree: 2})

    def test_a_size_of_heads_that_no_kernel_has_is_refused(self):
        self.refuse_model("teacher: ", "head size 8", "the nearest is 16", devices=[ONE], heads=4)

    def test_a_library_that_is_not_there_is_named(self):
        self.use_library("/nowhere")
        self.refuse_model(f'"{ONE}"', "/nowhere: cannot open", devices=[ONE])

    def test_without_a_driver_the_reason_is_told(self):
        if has_driver():
            self.skipTest("this machine has a driver")
        self.use_library("")
        self.refuse_model(f'"{ONE}"', "no NVIDIA driver: libcuda.so.1 cannot be opened", devices=[ONE])

    def test_jobs_of_processors_need_no_library(self):
        self.use_library("/nowhere")
        self.train(language_model(train={"steps": 1}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
