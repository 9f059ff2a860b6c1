// SPDX-License-Identifier: Apache-2.0
// The jobs for a described cluster, drawn from job kinds with their cells.
//
// FJ-1 (strict): a key that is unknown, missing or out of range is an error with file, line and key; the error for a
//       kind or number of devices without a cell names the nearest with a cell.
// FJ-2 (drawn): equal files and seeds draw equal jobs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "apps/fleet/cells_file.hpp"

namespace maestro {

struct FleetJobKind {
  std::string name;
  JobCells cells;
  double share = 1;  ///< share of the jobs, relative to the other kinds
  std::int64_t least_steps = 1;
  std::int64_t most_steps = 1;
  std::string kind;          ///< device kind of its fixed layout
  std::int64_t devices = 1;  ///< devices of its fixed layout
};

struct FleetJobs {
  std::uint64_t seed = 1;
  std::int64_t jobs = 1;
  double mean_between_s = 0;  ///< mean time from an arrival to the next
  double move_s = 0;          ///< time from a job's stop until it continues elsewhere
  std::vector<FleetJobKind> kinds;
};

struct FleetJob {
  std::size_t kind = 0;  ///< index into FleetJobs::kinds
  double arrival_s = 0;
  std::int64_t steps = 1;
};

/// Returns the cells in a file that a jobs file names.
using CellsReader = std::function<JobCells(const std::string& file)>;

/// Parses a TOML file's text; messages call the file `name`. Throws JobError; FJ-1.
[[nodiscard]] FleetJobs parse_fleet_jobs(std::string text, const std::string& name, const CellsReader& cells);
/// Reads a TOML file and the cells that it names, relative to its folder. Throws JobError; FJ-1.
[[nodiscard]] FleetJobs read_fleet_jobs(const std::filesystem::path& path);

/// Returns the jobs in the order of arrival. Draws Poisson arrivals, kinds by their shares, and uniform steps.
[[nodiscard]] std::vector<FleetJob> drawn_jobs(const FleetJobs& from, std::uint64_t seed);

}  // namespace maestro
