// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/cells_file.hpp"

#include <gmock/gmock.h>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;

std::string cell(const std::string& kind, const std::string& devices, const std::string& more = R"("busy": 0.87)") {
  return R"({"kind": ")" + kind + R"(", "devices": )" + devices + R"(, "step_ms": 812.1, )" + more +
         R"(, "bytes": 2.1e10, "price_per_million_samples": null, "layout": {"teacher": "26 x m2"}, "settings": ["teacher.replicas=26"]})";
}

std::string file(const std::string& cells, const std::string& format = "maestro-cells-1") {
  return R"({"format": ")" + format +
         R"(", "job": "distill", "cluster": "two pools", "global_batch": 256, "cells": [)" + cells + "]}";
}

std::string error_of(const std::string& text) {
  try {
    (void)parse_cells(text, "cells.json");
    return "(no error)";
  } catch (const JobError& error) {
    return error.what();
  }
}

TEST(CellsFile, has_the_cells_of_every_kind_of_devices) {  // CX-2
  const std::string priced = R"({"kind": "a100", "devices": 4, "step_ms": 2000, "busy": 1, "bytes": 0,
    "price_per_million_samples": 12.5, "layout": {}, "settings": []})";
  const JobCells read = parse_cells(file(cell("h100", "8") + "," + priced + "," + cell("h100", "16")), "cells.json");
  EXPECT_EQ(read.job, "distill");
  EXPECT_EQ(read.global_batch, 256);
  ASSERT_EQ(read.cells.size(), 3U);
  EXPECT_EQ(read.cells[0].kind, "h100");
  EXPECT_EQ(read.cells[0].devices, 8);
  EXPECT_EQ(read.cells[0].step_ms, 812.1);
  EXPECT_EQ(read.cells[0].busy, 0.87);
  EXPECT_EQ(read.cells[0].bytes, 2.1e10);
  EXPECT_FALSE(read.cells[0].price_per_million_samples);
  EXPECT_EQ(read.cells[1].price_per_million_samples, 12.5);
}

TEST(CellsFile, errors_name_the_file_the_cell_and_the_key) {  // CX-1
  const std::string good = cell("h100", "8") + ",";
  EXPECT_THAT(error_of(file(good + cell("h100", "16", R"("bussy": 0.5)"))),
              HasSubstr("cells.json: cells[1].bussy: unknown key; did you mean 'busy'?"));
  EXPECT_THAT(error_of(file(good + cell("h100", "16", R"("busy": 0)"))), HasSubstr("cells[1].busy: expected a number"));
  EXPECT_THAT(error_of(file(good + cell("h100", "16", R"("busy": 1.5)"))), HasSubstr("cells[1].busy"));
  EXPECT_THAT(error_of(file(good + cell("h100", "0"))), HasSubstr("cells[1].devices"));
  EXPECT_THAT(error_of(file(good + cell("", "9"))), HasSubstr("cells[1].kind: expected a name"));
  EXPECT_THAT(error_of(file(good + R"({"kind": "h100"})")), HasSubstr("cells[1].devices is missing"));
  EXPECT_THAT(
      error_of(file(good + cell("h100", "8"))),
      HasSubstr("cells[1].devices: the devices of a kind must rise from cell to cell, but 8 comes after 8 of h100"));
  EXPECT_THAT(error_of(file("", "maestro-cells-2")), HasSubstr("format: expected \"maestro-cells-1\""));
  EXPECT_THAT(error_of(file("")), HasSubstr("cells: no cell"));
  EXPECT_THAT(error_of(R"({"format": "maestro-cells-1", "jobs": 1})"),
              HasSubstr("jobs: unknown key; did you mean 'job'?"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of("{"), HasSubstr("cells.json"));
}

}  // namespace
}  // namespace maestro
