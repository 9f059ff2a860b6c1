// SPDX-License-Identifier: Apache-2.0
// A job's cells: the time of its steps by number and kind of devices. `maestro plan JOB --cluster C --curve cells.json`
// writes them.
//
// CX-1 (strict): a key that is unknown, missing, of another type or out of range is an error that names the file and
//       the key's path, such as cells[3].busy.
// CX-2 (curves): within a kind, the devices rise from cell to cell; there is at least one cell.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

/// A layout that the job can have.
struct Cell {
  std::string kind;  ///< kind of its devices
  std::int64_t devices = 0;
  double step_ms = 0;
  double busy = 1;                                    ///< share of device time in passes and step ends
  double bytes = 0;                                   ///< memory of the fullest device
  std::optional<double> price_per_million_samples{};  ///< set if the hosts have a price
};

struct JobCells {
  std::string job;
  std::string cluster;
  std::int64_t global_batch = 0;
  std::vector<Cell> cells;  ///< in the order of the file
};

/// Parses a file's text; messages call the file `name`. Throws JobError; CX-1.
[[nodiscard]] JobCells parse_cells(std::string_view text, const std::string& name);
/// Reads a JSON file of at most 64 MiB. Throws JobError; CX-1.
[[nodiscard]] JobCells read_cells(const std::filesystem::path& path);

}  // namespace maestro
