// SPDX-License-Identifier: Apache-2.0
#include "runtime/fleet/cells_file.hpp"

#include <map>

#include "runtime/core/input_file.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/wavefront/json_path.hpp"

namespace maestro {

namespace {

constexpr std::string_view format_name = "maestro-cells-1";
constexpr std::int64_t most_devices = 100'000'000;
constexpr std::int64_t most_samples = 1'000'000'000;
constexpr double least_share = 1e-6;
constexpr double least_ms = 1e-6;
constexpr double most_ms = 1e9;  // 11 days
constexpr double most_figure = 1e18;

std::string name_at(const JsonPath& place) {
  std::string name = place.text();
  if (name.empty()) place.fail("expected a name, got \"\"");
  return name;
}

Cell read_cell(const JsonPath& place) {
  place.allow_keys({"kind", "devices", "step_ms", "busy", "bytes", "price_per_million_samples", "layout", "settings"});
  Cell cell;
  cell.kind = name_at(place.required("kind"));
  cell.devices = place.required("devices").whole_number(1, most_devices);
  cell.step_ms = place.required("step_ms").number(least_ms, most_ms);
  cell.busy = place.required("busy").number(least_share, 1);
  cell.bytes = place.required("bytes").number(0, most_figure);
  const JsonPath price = place.required("price_per_million_samples");
  if (!price.is_null()) cell.price_per_million_samples = price.number(0, most_figure);
  for (const auto& [section, layout] : place.required("layout").members()) (void)layout.text();
  for (const JsonPath& setting : place.required("settings").items()) (void)setting.text();
  return cell;
}

}  // namespace

JobCells parse_cells(std::string_view text, const std::string& name) {
  const nlohmann::json document = parse_json(text, name).value_or_throw();
  const JsonPath root(document, name);
  root.allow_keys({"format", "job", "cluster", "global_batch", "cells"});
  const JsonPath format = root.required("format");
  if (format.text() != format_name) {
    format.fail("expected \"" + std::string(format_name) + "\", got \"" + printable(format.text()) + "\"");
  }
  JobCells read;
  read.job = name_at(root.required("job"));
  read.cluster = root.required("cluster").text();
  read.global_batch = root.required("global_batch").whole_number(1, most_samples);
  const JsonPath cells = root.required("cells");
  std::map<std::string, std::int64_t> devices_so_far;
  for (const JsonPath& place : cells.items()) {
    const Cell& cell = read.cells.emplace_back(read_cell(place));
    std::int64_t& so_far = devices_so_far[cell.kind];
    if (cell.devices <= so_far) {
      place.required("devices").fail("the devices of a kind rise from cell to cell, but " +
                                     std::to_string(cell.devices) + " comes after " + std::to_string(so_far) + " of " +
                                     printable(cell.kind));
    }
    so_far = cell.devices;
  }
  if (read.cells.empty()) cells.fail("no cell: the job fits no devices of the cluster");
  return read;
}

JobCells read_cells(const std::filesystem::path& path) {
  return parse_cells(read_text(path).value_or_throw(), path.string());
}

}  // namespace maestro
