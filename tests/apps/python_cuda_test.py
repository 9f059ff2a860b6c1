#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sections that Python computes on CUDA devices, over the fake of CUDA.

On a machine with a GPU, and a PyTorch for CUDA in MAESTRO_TORCH_PYTHON, TorchOnDevices uses the real backend with the
variables that fake_cuda.py describes."""

import unittest

from fake_cuda import DEVICES, DOUBLE, FP32_TOLERANCE, IS_FAKE, ONE, OTHER, WithDevices
from python_section_test import PURE, HeadTest, TorchTest

FAKE = "import fake_device\n"
PURE_ON_DEVICES = PURE + "from fake_device import PureHead as DeviceHead\n"
TORCH_ON_DEVICES = "from torch_head import TorchHead as Head, TorchHead as DeviceHead\n"
INSTALLED = "fake = fake_device.install()\n" if IS_FAKE else ""
on_the_fake = unittest.skipUnless(IS_FAKE, "MAESTRO_FAKE_CUDA does not name the backend with the fakes")


@unittest.skipUnless(DOUBLE, "MAESTRO_FAKE_CUDA is not set: the build lacks the headers of CUDA, cuBLASLt or NCCL")
class OnDevices(WithDevices, HeadTest):
    HEAD = FAKE + PURE_ON_DEVICES

    def losses_of(self, *runs, processes=1):
        """Returns losses of runs with (class, replicas, devices)."""
        return self.answer(f"""
            found = []
            for head, replicas, devices in {runs}:
                result = head_app(Numbers(), globals()[head], replicas, processes={processes}, fresh=True,
                                  settings={{"devices": devices}} if devices else {{}}).run()
                found.append([*losses(result), result.validation["head"]["loss"]])
            print(json.dumps(found))
        """)


class Training:
    """Tests of a section on devices, with and without PyTorch."""

    def test_trains_as_on_a_processor(self):  # YS-4
        expected, *found = self.losses_of(("Head", 1, []), ("DeviceHead", 1, [ONE]))
        if ONE != OTHER:
            both = "DeviceHead", 2, [OTHER, DEVICES[-1] if len(DEVICES) > 2 else ONE]
            found += self.losses_of(both) + self.losses_of(both, processes=2)
        self.assertEqual(len(expected), 9)
        self.assertLess(expected[7], expected[0] - 0.1)
        for losses in found:
            for one, other in zip(expected, losses, strict=True):
                self.assertAlmostEqual(one, other, delta=FP32_TOLERANCE)

    def test_goes_on_from_a_checkpoint_with_equal_losses(self):  # YS-1
        whole, resumed = self.answer(f"settings = {{'micro_batch': 4, 'devices': ['{OTHER}']}}", """
            whole = losses(head_app(Numbers(), DeviceHead, fresh=True, settings=settings).run())
            head_app(Numbers(), DeviceHead, fresh=True, settings=settings, steps=4).run()
            print(json.dumps([whole, losses(head_app(Numbers(), DeviceHead, resume="out", settings=settings).run())]))
        """)
        self.assertEqual(whole, resumed)


@on_the_fake
class SectionOnDevices(Training, OnDevices):
    pass


@on_the_fake
class Refusals(OnDevices):
    def test_of_a_replica_that_cannot_be_placed_names_the_key(self):
        err = self.refusal("head_app(Numbers(), Head, settings={'devices': ['cuda:0']}).run()")
        self.assertRegex(err.splitlines()[-1], r"JobError: head\.devices: this section in Python computes on CPUs.*place\(\)")

    def test_of_an_output_on_the_processor_names_both_places(self):  # YS-2
        err = self.refusal("""
            class Wrong(fake_device.PureReplica):
                def __init__(self, *given):
                    super().__init__(*given)
                    self.outputs = [("logits", "fp32", 1, True, "tokens")]
                def forward(self, number, inputs, batch, keep):
                    super().forward(number, inputs, batch, keep)
                    return {"logits": memoryview(bytearray(4 * self.rows)).cast("f")}, [("loss", 1.0, 1.0)]
            class Head:
                def __init__(self, width: int): pass
                @staticmethod
                def maestro_open(settings):
                    return lambda name, seed, trained: Wrong(settings["width"], 32)
            head_app(Numbers(), Head, fresh=True, settings={"devices": ["cuda:2"]}).run()
        """)
        self.assertIn("forward() returns the output 'logits' in memory of the CPU, but the section computes on cuda:2", err)

    def test_of_a_pass_without_a_loss_stays(self):
        err = self.refusal("""
            class Wrong(fake_device.PureReplica):
                def forward(self, *given):
                    return {}, [(name + "es", read) for name, read in super().forward(*given)[1]]
            class Head:
                def __init__(self, width: int): pass
                @staticmethod
                def maestro_open(settings):
                    return lambda name, seed, trained: Wrong(settings["width"], 32)
            head_app(Numbers(), Head, fresh=True, settings={"devices": ["cuda:0"]}).run()
        """)
        self.assertIn("the section is trained, but its pass reports no loss", err)


class TorchOnDevices(TorchTest, Training, OnDevices):
    HEAD = FAKE + TORCH_ON_DEVICES + INSTALLED

    MIX = """
        import torch
        class Mix(torch.nn.Module):
            def __init__(self, width: int, bias: float = 0.5):
                super().__init__()
                self.linear = torch.nn.Linear(width, width)
                self.frozen = torch.nn.Linear(width, width).requires_grad_(False)
                self.register_buffer("shift", torch.full((width,), bias))
                self.scratch = torch.nn.Parameter(torch.zeros(16 * 12 * width))  # for FakeTorch.to_dlpack()

            def ports(self):
                width = self.linear.in_features
                return {"hidden": maestro.Input(width), "tokens": maestro.Input(dtype="i32", host=True),
                        "mixed": maestro.Output(width)}

            def forward(self, hidden, tokens):
                mixed = hidden + torch.tanh(self.frozen(self.linear(hidden))) + self.shift
                mixed = mixed * (tokens >= 0)
                return {"mixed": mixed, "size": (mixed.square().sum(), len(tokens))}

        def mixed(Mix, Head, mix, head):
            job = {"name": "mixed", "train": {"steps": 8, "global_batch": 8, "validation_samples": 4, "out": "out"},
                   "trunk": {"layers": 1, "width": 8, "heads": 2, "positions": 16, "vocabulary": 32,
                             "micro_batch": 2, "lr": 1e-2},
                   "mix": {"width": 8, "lr": 1e-2, "micro_batch": 2, **mix},
                   "head": {"width": 8, "lr": 1e-2, "micro_batch": 2, **head}}
            app = maestro.App(job, fresh=True)
            data = app.source("corpus", Numbers())
            trunk = app.section("trunk", "decoder_trunk")
            middle = app.section("mix", Mix)
            tail = app.section("head", Head)
            app.connect(data.port("tokens"), trunk.port("tokens"))
            app.connect(trunk.port("hidden"), middle.port("hidden"))
            app.connect(data.port("tokens"), middle.port("tokens"))
            app.connect(middle.port("mixed"), tail.port("hidden"))
            app.connect(data.port("targets"), tail.port("targets"))
            result = app.run()
            rows = maestro.read_steps(result.record)
            return [row["sections"]["head"]["loss"] for row in rows] + [row["sections"]["mix"]["size"] for row in rows]
    """

    def test_of_outputs_inputs_buffers_and_frozen_parts_train_as_on_processors(self):
        pairs = [(ONE, "cpu:0"), ("cpu:0", OTHER)] + [(ONE, OTHER)] * (ONE != OTHER)
        found = self.answer(self.MIX, f"""
            found = [mixed(Mix, Head, {{}}, {{}})]
            for one, other in {pairs}:
                found.append(mixed(Mix, Head, {{"devices": [one]}}, {{"devices": [other]}}))
            found.append(mixed(Mix, Head, *[{{"devices": ["{ONE}"], "share": 0.5}}] * 2))
            print(json.dumps(found))
        """)
        for other in found[1:]:
            for one, two in zip(found[0], other, strict=True):
                self.assertAlmostEqual(one, two, delta=FP32_TOLERANCE * max(1, abs(one)))

    @on_the_fake
    def test_takes_inputs_of_the_host_as_they_arrive(self):
        places = self.answer(self.MIX, """
            taken = fake.from_dlpack
            seen = set()
            def from_dlpack(array):
                value = taken(array)
                if value.dtype == torch.int32:
                    seen.add(array.__dlpack_device__()[0])
                return value
            fake.from_dlpack = from_dlpack
            mixed(Mix, Head, {"devices": ["cuda:0"]}, {})
            print(json.dumps(sorted(seen)))
        """)
        self.assertEqual(places, [1], "tokens, and targets of the head on the CPU")

    def test_has_the_same_bits_with_and_without_graphs(self):
        never, always = self.answer(f"""
            print(json.dumps([losses(head_app(Numbers(), DeviceHead, fresh=True, settings={{"devices": ["{ONE}"]}},
                                              train={{"cuda_graphs": choice}}).run()) for choice in ("never", "always")]))
        """)
        self.assertEqual(never, always)

    @on_the_fake
    def test_that_cannot_come_to_the_device_is_refused_by_name(self):
        found = self.answer("""
            import torch

            class Meta(Head):
                def __init__(self, width: int):
                    super().__init__(width)
                    self.register_buffer("table", torch.empty(2, device="meta"))
                def to(self, device):
                    return self

            class Replaced(Head):
                def to(self, device):
                    self.weight = torch.nn.Parameter(self.weight.clone())

            found = []
            for head, changes in ((Head, {"built_for": None}), (Head, {"devices": 0}), (Head, {"devices": 1}), (Meta, {}),
                                  (Replaced, {})):
                for name, value in {"built_for": "13.0", "devices": 4, **changes}.items():
                    setattr(fake, name, value)
                try:
                    head_app(Numbers(), head, fresh=True, settings={"devices": ["cuda:1"]}).run()
                except (maestro.JobError, maestro.RunFailed) as error:
                    found.append([type(error).__name__, str(error)])
            print(json.dumps(found))
        """)
        for (kind, error), wanted in zip(found, (
                r"head\.devices: RuntimeError: PyTorch .* is built without CUDA",
                r"head\.devices: RuntimeError: PyTorch .* for CUDA 13.0 can use no CUDA device here",
                r"head\.devices: RuntimeError: PyTorch sees 1 CUDA devices, not cuda:1",
                r"section 'head' in Python: TypeError: 'table' is on meta after Meta.to\('cpu'\)",
                r"section 'head' in Python: TypeError: Replaced.to\('cpu'\) replaces the parameter 'weight'"), strict=True):
            self.assertRegex(error, "^" + wanted)
            self.assertEqual((kind, len(error.splitlines())), ("JobError", 1), error)


if __name__ == "__main__":
    unittest.main(verbosity=2)
