#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs whose ranks and replicas communicate in groups of CUDA devices."""

import itertools
import math
import signal
import unittest

import failure_test
from fake_cuda import (DEVICES, FEW, HALF, LEARNS, ONE, OTHER, OnDevices, WithDevices, distillation, gpt2, job_of,
                         language_model, setUpModule)
from maestro_program import ENDLESS

BY_NCCL = "gradients of 2 replicas by NCCL"
BY_HOST = "gradients of 2 replicas in host memory"


class OneReplica(OnDevices):
    """A replica on several devices: heads and rows are exchanged by the group's calls."""

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

    def test_whose_devices_divide_the_queries_of_heads_trains_as_on_one_processor(self):
        for family, changes in (("gpt2", {}), ("llama", {"kv_heads": 1})):
            with self.subTest(family):
                job = language_model(family, {"steps": FEW}, width=48, heads=3, positions=100, **changes)
                job["data"]["sequence"] = 100  # two tiles of a sample's rows
                self.check_cut(job, "teacher", {"context": 2})

    def test_of_each_section_of_a_distillation_is_cut_in_its_own_way(self):
        for boundary in ({"boundary": "hidden"}, {"boundary": "logits"}, {"boundary": "top_k", "top_k": 7}):
            cuts = [{"teacher.tensor": 2, "student.tensor": 2}]
            if boundary["boundary"] != "logits":  # logits require the same degree on both sides
                cuts.append({"teacher.tensor": 2, "student.context": 2})
            sections = {"teacher": {**boundary, **self.CUT, "kv_heads": 2}, "student": {**boundary, **self.CUT}}
            for cut in cuts:
                with self.subTest(**boundary, **cut):
                    self.check(distillation(**sections), {"teacher": DEVICES[:2], "student": DEVICES[2:]}, settings=cut)


class Replicas(OnDevices):
    PLACES = {"one process": (1, "auto"), "two processes over shm": (2, "shm"), "two processes over tcp": (2, "tcp")}

    def check_way(self, finished, way):
        self.assertIn(f"teacher: {way}", finished.out, finished.describe())


class UnlikeReplicas(Replicas):
    """Only the first devices of the replicas form a group."""

    def test_of_two_contexts_train_as_one_and_give_the_bits_of_a_reduction_in_memory_of_the_processor(self):
        job = language_model(width=64, heads=4)
        expected = self.train(job)
        for zero, (name, (processes, provider)) in itertools.product((False, True), self.PLACES.items()):
            with self.subTest(name, zero=zero):
                settings = {"teacher.replicas": [{"context": 2}, {"context": 1}], "teacher.zero": zero,
                            "transport.provider": provider}
                places = {"teacher": DEVICES[:3]}
                by_nccl = self.train_on(job, places, "--processes", processes, settings=settings)
                self.assert_same(expected, by_nccl)
                self.check_way(by_nccl, BY_NCCL)
                by_host = self.train_on(job, places, settings={**settings, "transport.force_rma": True})
                self.check_way(by_host, BY_HOST)
                self.assertEqual(by_nccl.curve(), by_host.curve())


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
        """Each section has a separate group on each device."""
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
        """Each rank is in two groups: its replica's, and one with the same rank of the other replica."""
        job = language_model(**OneReplica.CUT)
        expected = self.train(job)
        for processes, zero in ((1, False), (2, True)):
            with self.subTest(processes=processes, zero=zero):
                settings = {"teacher.context": 2, "teacher.replicas": 2, "teacher.zero": zero}
                finished = self.train_on(job, {"teacher": DEVICES}, "--processes", processes, settings=settings)
                self.assert_same(expected, finished)
                self.check_way(finished, BY_NCCL)

    def test_of_as_many_replicas_train_as_one(self):
        """More than two replicas: the group chooses the order of its sums."""
        job = language_model()
        job["teacher"]["micro_batch"] = 1
        for zero in (False, True):
            with self.subTest(zero=zero):
                self.check(job, {"teacher": DEVICES}, settings={"teacher.replicas": 4, "teacher.zero": zero})


class ALostProcess(WithDevices, failure_test.LosesProcesses):
    """The other rank may be waiting for the lost process in a group."""

    def lose_one(self, rank, how):
        job = language_model(train={"steps": ENDLESS})
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
                job = language_model(train={"steps": ENDLESS}, lr=1e30, clip_norm=0)
                job["teacher"] |= {"replicas": 2, "devices": [ONE, OTHER]}
                self.fail(self.start(job, "--processes", processes), "section 'teacher", "training diverged")


if __name__ == "__main__":
    unittest.main(verbosity=2)
