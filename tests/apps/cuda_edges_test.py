#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors between CUDA devices and other processes, by every path."""

import os
import signal
import unittest
from unittest import mock

import failure_test
from fake_cuda import IS_FAKE, LEARNS, ONE, OTHER, OnDevices, WithDevices, distillation, gpt2, job_of, setUpModule
from maestro_program import ENDLESS


class BetweenProcesses(OnDevices):
    APART = ("--processes", 2)
    EDGE = "teacher.hidden -> student.teacher_hidden: "
    BY_IPC = EDGE + "by CUDA IPC"
    IN_CHUNKS = EDGE + "by pinned memory in chunks"
    OPEN = EDGE + "from device to device by RMA if it registers, else by pinned memory in chunks"
    PROVIDERS = ("shm", "tcp")
    CHUNK = {"transport.chunk_kib": 1}

    def check_path(self, expected, teacher, student, *lines, **settings):
        """Returns a run that has printed exactly one line beginning with each of `lines`."""
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

    @unittest.skipUnless(IS_FAKE, "a driver shares what it can")
    def test_what_cannot_be_shared_is_staged_in_chunks_and_the_reason_told(self):
        """`MAESTRO_FAKE_CUDA_IPC` is the extent to which the fake shares memory."""
        expected = self.train(distillation())
        reasons = {"none": "the receiver does not share its memory",
                   "export": "the driver does not open it: an error of the fake"}
        for far, reason in reasons.items():
            with self.subTest(far), mock.patch.dict(os.environ, MAESTRO_FAKE_CUDA_IPC=far):
                told = f"note: {self.EDGE}not by CUDA IPC ({reason}), by pinned memory in chunks"
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
                self.check_path(expected, "cpu:0", ONE, self.EDGE + "by pinned memory and RMA", provider=provider)

    def test_gradients_go_back_the_same_ways(self):
        part = gpt2(tied=False, **LEARNS)
        job = job_of("split_language_model", {"clip": "global"}, trunk=part, head=part)
        expected = self.train(job)
        for far, told in (("all", 0), ("none", 1))[:1 + IS_FAKE]:
            with self.subTest(far), mock.patch.dict(os.environ, MAESTRO_FAKE_CUDA_IPC=far):
                finished = self.train_on(job, {"trunk": [ONE], "head": [OTHER]}, *self.APART, settings=self.CHUNK)
                self.assert_same(expected, finished)
                self.assertEqual(finished.out.count("gradient of head.hidden -> trunk.hidden: not by CUDA IPC"),
                                 told, finished.describe())

    def test_pieces_of_several_ways_meet_in_one_micro_batch(self):
        """Two teachers, one in the student's process and one in another, send halves of its micro-batches."""
        job = distillation({"global_batch": 8}, teacher={"micro_batch": 2}, student={"micro_batch": 4})
        expected = self.train(job)
        for devices in ([ONE, OTHER], [ONE, "cpu:0"], ["cpu:0", ONE]):
            if len(set(devices)) == 1:
                continue
            with self.subTest(devices=devices):
                placed = {"teacher": devices, "student": [ONE]}
                self.assert_same(expected, self.train_on(job, placed, *self.APART,
                                                         settings={**self.CHUNK, "teacher.replicas": 2}))


class ALostEndOfAnEdge(WithDevices, failure_test.LosesProcesses):
    def lose_one(self, rank):
        """Copies into this process's memory, or out of the other's, may be under way."""
        for forced in (False, True):
            with self.subTest(forced=forced):
                job = distillation({"steps": ENDLESS}, teacher={"devices": [ONE]}, student={"devices": [OTHER]})
                run = self.start(job, *BetweenProcesses.APART,
                                 settings={**BetweenProcesses.CHUNK, "transport.force_rma": forced})
                self.lose(run, 2, rank, signal.SIGKILL)

    def test_that_receives_ends_the_other_with_one_error(self):
        self.lose_one(1)

    def test_that_sends_ends_the_other_with_one_error(self):
        self.lose_one(0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
