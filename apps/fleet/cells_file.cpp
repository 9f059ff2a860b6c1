// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/cells_file.hpp"

#include <map>

#include "runtime/core/input_file.hpp"
#include "runtime/core/json_value.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

constexpr std::string_view format_name = "maestro-cells-1";
constexpr std::int64_t most_devices = 100'000'000;
constexpr std::int64_t most_samples = 1'000'000'000;
constexpr double least_share = 1e-6;
constexpr double least_ms = 1e-6;
constexpr double most_ms = 1e9;  // 11 days
constexpr double most_figure = 1e18;

std::string name_at(const JsonValue& place) {
  std::string name = place.text();
  if (name.empty()) place.expected("a name");
  return name;
}

Cell read_cell(const JsonValue& place) {
  place.allow_keys({"kind", "devices", "step_ms", "busy", "bytes", "price_per_million_samples", "layout", "settings"});
  Cell cell;
  cell.kind = name_at(place.at("kind"));
  cell.devices = place.at("devices").whole_number(1, most_devices);
  cell.step_ms = place.at("step_ms").number(least_ms, most_ms);
  cell.busy = place.at("busy").number(least_share, 1);
  cell.bytes = place.at("bytes").number(0, most_figure);
  const JsonValue price = place.at("price_per_million_samples");
  if (!price || !price.null()) cell.price_per_million_samples = price.number(0, most_figure);
  (void)place.at("layout").texts_by_key();
  (void)place.at("settings").texts();
  return cell;
}

}  // namespace

JobCells parse_cells(std::string_view text, const std::string& name) {
  const nlohmann::json document = parse_json(text, name).value_or_throw();
  const JsonValue root(document, name);
  root.allow_keys({"format", "job", "cluster", "global_batch", "cells"});
  const JsonValue format = root.at("format");
  if (format.text() != format_name) format.expected("\"" + std::string(format_name) + "\"");
  JobCells read;
  read.job = name_at(root.at("job"));
  read.cluster = root.at("cluster").text();
  read.global_batch = root.at("global_batch").whole_number(1, most_samples);
  const JsonValue cells = root.at("cells");
  std::map<std::string, std::int64_t> devices_so_far;
  for (const JsonValue& place : cells.items()) {
    const Cell& cell = read.cells.emplace_back(read_cell(place));
    std::int64_t& so_far = devices_so_far[cell.kind];
    if (cell.devices <= so_far) {
      place.at("devices").fail("the devices of a kind must rise from cell to cell, but " +
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
