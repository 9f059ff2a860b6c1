// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/fleet_jobs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "runtime/core/input_file.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/random.hpp"
#include "runtime/job/job_document.hpp"

namespace maestro {

namespace {

constexpr std::int64_t most_jobs = 100'000;
constexpr std::int64_t most_steps = 1'000'000'000;
constexpr double most_seconds = 1e9;

void require(const JobTable& table, std::string_view key) {
  if (!table.has(key)) table.fail(key, "missing");
}

/// Throws JobError for a fixed layout without a cell; FJ-1.
void check_fixed_layout(const JobTable& table, const FleetJobKind& job, const std::string& file) {
  std::vector<std::string> kinds;
  std::int64_t nearest = 0;
  for (const Cell& cell : job.cells.cells) {
    if (std::ranges::find(kinds, cell.kind) == kinds.end()) kinds.push_back(cell.kind);
    if (cell.kind != job.kind) continue;
    if (cell.devices == job.devices) return;
    const bool nearer = std::llabs(cell.devices - job.devices) < std::llabs(nearest - job.devices);
    if (nearest == 0 || nearer) nearest = cell.devices;
  }
  if (nearest == 0) {
    table.fail("kind",
               printable(file) + " lacks a cell of kind " + printable(job.kind) + nearest_text(job.kind, kinds));
  }
  table.fail("devices", printable(file) + " lacks a cell of " + std::to_string(job.devices) + " devices of " +
                            printable(job.kind) + "; the nearest has " + std::to_string(nearest));
}

FleetJobKind read_kind(const JobTable& table, const CellsReader& read) {
  for (const char* key : {"name", "cells", "steps", "kind", "devices"}) require(table, key);
  FleetJobKind job;
  job.name = table.text("name", "");
  if (job.name.empty()) table.fail("name", "expected a name");
  job.share = table.number("share", 1, {.min = 0, .max = 1e9, .min_open = true});
  const std::vector<std::int64_t> steps = table.integers("steps", {1, most_steps});
  if (steps.size() != 2 || steps[0] > steps[1]) table.fail("steps", "expected [least, most], such as [500, 2000]");
  job.least_steps = steps[0];
  job.most_steps = steps[1];
  job.kind = table.text("kind", "");
  job.devices = table.integer("devices", 1, {1, 100'000'000});
  const std::string file = table.text("cells", "");
  job.cells = read(file);
  check_fixed_layout(table, job, file);
  return job;
}

}  // namespace

FleetJobs parse_fleet_jobs(std::string text, const std::string& name, const CellsReader& cells) {
  const JobDocument document = JobDocument::parse(std::move(text), name);
  const JobTable root = document.root();
  for (const char* key : {"jobs", "mean_between_s", "move_s", "job"}) require(root, key);
  FleetJobs read;
  read.seed = static_cast<std::uint64_t>(root.integer("seed", 1, {.min = 0}));
  read.jobs = root.integer("jobs", 1, {1, most_jobs});
  read.mean_between_s = root.number("mean_between_s", 0, {.min = 0, .max = most_seconds});
  read.move_s = root.number("move_s", 0, {.min = 0, .max = most_seconds});
  for (const JobTable& table : root.tables("job")) {
    FleetJobKind kind = read_kind(table, cells);
    const bool there = std::ranges::find(read.kinds, kind.name, &FleetJobKind::name) != read.kinds.end();
    if (there) table.fail("name", "an earlier job is also called " + printable(kind.name));
    read.kinds.push_back(std::move(kind));
  }
  if (read.kinds.empty()) root.fail("job", "expected a table [[job]]");
  document.finish();
  return read;
}

FleetJobs read_fleet_jobs(const std::filesystem::path& path) {
  return parse_fleet_jobs(read_text(path).value_or_throw(), path.string(),
                          [&](const std::string& file) { return read_cells(path.parent_path() / file); });
}

std::vector<FleetJob> drawn_jobs(const FleetJobs& from, std::uint64_t seed) {
  Random random(seed);
  double shares = 0;
  for (const FleetJobKind& kind : from.kinds) shares += kind.share;
  std::vector<FleetJob> jobs;
  double arrival_s = 0;
  for (std::int64_t drawn = 0; drawn < from.jobs; ++drawn) {
    arrival_s -= from.mean_between_s * std::log(1 - random.uniform());
    double at = shares * random.uniform();
    std::size_t kind = 0;
    while (kind + 1 < from.kinds.size() && at >= from.kinds[kind].share) at -= from.kinds[kind++].share;
    const auto range = static_cast<std::uint64_t>(from.kinds[kind].most_steps - from.kinds[kind].least_steps + 1);
    jobs.push_back({.kind = kind,
                    .arrival_s = arrival_s,
                    .steps = from.kinds[kind].least_steps + static_cast<std::int64_t>(random.below(range))});
  }
  return jobs;
}

}  // namespace maestro
