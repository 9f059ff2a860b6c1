# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of complete jobs on CUDA devices.

MAESTRO_FAKE_CUDA names the backend with the fakes of the CUDA runtime, cuBLASLt and NCCL: it has four devices, and
runs every kernel on the CPU, thread by thread. So models and runs are tiny.

On a machine with a GPU, MAESTRO_FAKE_CUDA=build/release/lib/maestro/libmaestro_cuda.so MAESTRO_TEST_DEVICES=cuda:0 (or
more, separated by spaces) selects the real backend. With a single device, all sections share it, and tests of replicas
or ranks on several devices are skipped.
"""

import os
import unittest
from unittest import mock

from layouts_test import figures_of
from maestro_program import SystemTest

DOUBLE = os.environ.get("MAESTRO_FAKE_CUDA", "")
STEPS = 10  # for a language model on a single device
FEW, HALF = 6, 3  # for all other jobs
VOCABULARY = 61
# Kernels add fp32 products in another order: differences of 6e-8, which a distillation amplifies to 3e-6.
FP32_TOLERANCE = 2e-5
BF16_TOLERANCE = 2e-2  # bf16 has 8 significant bits; the two sides round at different places
DEVICES = os.environ.get("MAESTRO_TEST_DEVICES", "cuda:0 cuda:1 cuda:2 cuda:3").split()
ONE, OTHER = DEVICES[0], DEVICES[1 % len(DEVICES)]
several_devices = unittest.skipIf(ONE == OTHER, "one device")
IS_FAKE = "fake" in os.path.basename(DOUBLE)


def gpt2(**changes):
    return {"family": "gpt2", "layers": 2, "width": 32, "heads": 2, "positions": 16, "vocabulary": VOCABULARY,
            "micro_batch": 2, "replicas": 1, **changes}


def llama(**changes):
    """Returns a llama with grouped-query attention and untied embeddings."""
    return gpt2(**{"family": "llama", "kv_heads": 1, "ffn": 40, "tied": False, **changes})


def job_of(app, train=None, **sections):
    return {
        "name": "cuda",
        "app": app,
        "train": {"steps": FEW, "global_batch": 4, "validation_samples": 4, "checkpoint_at_end": False, "out": "out",
                  "recover": "off", **(train or {})},
        "data": {"kind": "synthetic", "sequence": 13, "vocabulary": VOCABULARY},
        **sections,
    }


FAMILIES = {"gpt2": gpt2, "llama": llama}
LEARNS = {"lr": 1e-3}


def language_model(family="gpt2", train=None, **changes):
    return job_of("language_model", train, teacher=FAMILIES[family](**{**LEARNS, **changes}))


def distillation(train=None, teacher=None, student=None):
    return job_of("distillation", train, teacher=llama(**{"weights": "random", **(teacher or {})}),
                  student=gpt2(**LEARNS, **(student or {})))


def split(section):
    """Returns settings of a job's sections by their --set names: {"teacher": {"share": 1}} is {"teacher.share": 1}."""
    return {f"{name}.{key}": value for name, values in section.items() for key, value in values.items()}


def setUpModule():
    if not DOUBLE:
        raise unittest.SkipTest("MAESTRO_FAKE_CUDA is not set: the build lacks the headers of CUDA, cuBLASLt or NCCL")


class WithDevices:
    """Lets the program find the backend with the fakes."""

    def setUp(self):
        super().setUp()
        self.use_library(DOUBLE)

    def use_library(self, path):
        # Files of the fake NCCL are removed with the test, even if a process is killed.
        change = mock.patch.dict(os.environ, MAESTRO_CUDA_LIBRARY=path, TMPDIR=str(self.folder))
        change.start()
        self.addCleanup(change.stop)


class OnDevices(WithDevices, SystemTest):
    def train_on(self, job, devices, *options, settings=None):
        """Trains with the given `devices` by section name."""
        placed = {f"{section}.devices": named for section, named in devices.items()}
        finished = self.train(job, *options, settings={**placed, **(settings or {})})
        used = {device for lane in finished.report["plan"]["lanes"] for device in lane["devices"]}
        self.assertEqual(used - {"host"}, {device for named in devices.values() for device in named})
        return finished

    def assert_same(self, expected, finished, tolerance=FP32_TOLERANCE):
        self.assert_close(figures_of(expected), figures_of(finished), tolerance)

    def check_graphs(self, job, settings):
        """Checks that CUDA graphs change no bit of a job's results."""
        curves = [figures_of(self.train(job, settings={**settings, "train.cuda_graphs": choice}))
                  for choice in ("never", "always", "auto")]
        self.assertEqual(curves[0], curves[1])
        self.assertEqual(curves[0], curves[2])

    def check(self, job, devices, *options, settings=None, tolerance=FP32_TOLERANCE):
        """Checks that a run on devices trains as one on CPUs; `settings` apply only to the run on devices."""
        expected = self.train(job)
        self.assertEqual({row["step"] for row in expected.report["steps"]}, set(range(1, job["train"]["steps"] + 1)))
        self.assert_same(expected, self.train_on(job, devices, *options, settings=settings), tolerance)
