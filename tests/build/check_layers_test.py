#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layer check refuses small wrong trees with the place and the cause."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).with_name("check_layers.py")


def check(files):
    """Runs the script on a tree of {path: text}. Returns its exit status and output."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in {"runtime/core/ids.hpp": "", **files}.items():
            file = Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        run = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr


class LayerCheck(unittest.TestCase):
    def refuses(self, files, *parts):
        status, output = check(files)
        self.assertEqual(status, 1, output)
        self.assertEqual(len(output.splitlines()), 1, output)
        for part in parts:
            self.assertIn(part, output)

    def accepts(self, files):
        status, output = check(files)
        self.assertEqual(status, 0, output)

    def test_includes_along_the_arrow_pass(self):
        self.accepts({
            "apps/distill/main.cpp": '#include "actors/replica/rank.hpp"\n#include "transport/slot.hpp"\n',
            "actors/replica/rank.hpp": '#include <caf/all.hpp>\n#include "sections/section.hpp"\n',
            "sections/section.hpp": '#include <vector>\n#include "runtime/ops/tape.hpp"\n',
            "transport/slot.hpp": '#include <rdma/fabric.h>\n#include "runtime/core/ids.hpp"\n',
            "runtime/ops/tape.hpp": '#include "runtime/core/ids.hpp"\n#include <oneapi/dnnl/dnnl.hpp>\n',
        })

    def test_L1_runtime_knows_no_layer_above_it(self):
        for layer in ("sections", "transport", "actors", "apps"):
            self.refuses({"runtime/core/a.cpp": f'\n#include "{layer}/b.hpp"\n'}, "runtime/core/a.cpp:2:", layer, "L-1")

    def test_L1_sections_and_transport_do_not_know_each_other(self):
        self.refuses({"sections/a.hpp": '#include "transport/b.hpp"\n'}, "sections/a.hpp:1:", "L-1")
        self.refuses({"transport/a.hpp": '#include "sections/b.hpp"\n'}, "transport/a.hpp:1:", "L-1")

    def test_L1_angle_brackets_and_spaces_do_not_hide_an_include(self):
        self.refuses({"sections/a.hpp": "  #  include  <actors/b.hpp>\n"}, "sections/a.hpp:1:", "L-1")

    def test_L2_a_room_does_not_include_a_room_above_it(self):
        self.refuses({"runtime/core/a.hpp": '#include "runtime/ops/tape.hpp"\n'}, "runtime/core/a.hpp:1:", "L-2")

    def test_L2_a_room_without_a_place_in_the_order_is_named(self):
        self.refuses({"runtime/attic/a.hpp": '#include "runtime/core/ids.hpp"\n'}, "runtime/attic is no room", "L-2")
        self.refuses({"runtime/core/a.hpp": '#include "runtime/b.hpp"\n'}, "runtime/b.hpp is no room", "L-2")

    def test_L2_a_room_of_actors_includes_the_rooms_of_its_list(self):
        self.accepts({"actors/process/a.hpp": '#include "actors/replica/reduction/b.hpp"\n'})
        self.refuses({"actors/replica/a.hpp": '#include "actors/run/b.hpp"\n'}, "actors/replica/a.hpp:1:", "job", "L-2")
        self.refuses({"actors/run/a.hpp": '#include "actors/process/b.hpp"\n'}, "L-2")

    def test_the_table_names_every_room(self):
        table = subprocess.run([sys.executable, SCRIPT, "--table"], capture_output=True, text=True, check=True).stdout
        rooms = {path.name for layer in ("runtime", "actors") for path in (SCRIPT.parents[2] / layer).iterdir() if path.is_dir()}
        self.assertEqual(rooms, set(re.findall(r"^\| \w+/(\w+) \|", table, re.M)))

    def test_L3_a_library_is_known_only_in_its_home(self):
        self.refuses({"transport/a.cpp": "#include <caf/all.hpp>\n"}, "CAF", "actors/", "L-3")
        self.refuses({"actors/job/a.cpp": "#include <caf/all.hpp>\n"}, "CAF", "actors/", "L-3")
        self.refuses({"actors/run/a.cpp": "#include <thrift/TProcessor.h>\n"}, "Thrift", "actors/control/", "L-3")
        self.refuses({"apps/a.cpp": "#include <openssl/ssl.h>\n"}, "OpenSSL", "actors/launch/", "L-3")
        self.refuses({"actors/run/a.cpp": "#include <rdma/fi_cm.h>\n"}, "libfabric", "transport/", "L-3")
        self.refuses({"runtime/ops/a.cpp": "#include <cuda_runtime.h>\n"}, "CUDA", "runtime/*/cuda/", "L-3")
        self.accepts({"runtime/ops/cuda/a.hpp": "#include <cuda_runtime.h>\n", "runtime/ops/a.cu": "#include <nccl.h>\n"})

    def test_L4_a_relative_include_cannot_slip_past_the_layers(self):
        self.refuses({"runtime/core/a.hpp": '#include "../../actors/b.hpp"\n', "actors/b.hpp": ""}, "relative", "L-4")

    def test_a_folder_that_is_no_repository_is_an_error_not_a_pass(self):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("has no folder runtime/", run.stderr)


if __name__ == "__main__":
    unittest.main()
