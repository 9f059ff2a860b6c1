// SPDX-License-Identifier: Apache-2.0
// Links one room only: its headers and library must not need the others.
#include <maestro/job_table.hpp>

int main() {
  const auto job = maestro::JobDocument::parse("[train]\nsteps = 3\n", "job.toml");
  return job.root().table("train").integer("steps", 1, {.min = 1, .max = 10}) == 3 ? 0 : 1;
}
