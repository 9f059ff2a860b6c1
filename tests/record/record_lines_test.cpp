// SPDX-License-Identifier: Apache-2.0
#include "runtime/record/record_lines.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

class RecordLines : public TemporaryFolder {
 protected:
  /// Returns lines with very different lengths.
  static std::string line(std::uint64_t step) {
    return "{\"step\":" + std::to_string(step) + ",\"text\":\"" + std::string(step * step % 9001, 'x') + "\"}\n";
  }
  std::string write(const std::vector<std::uint64_t>& steps, const std::string& tail = {}) {
    std::string text;
    for (const std::uint64_t step : steps) text += line(step);
    std::ofstream(file_) << text << tail;
    return text;
  }
  [[nodiscard]] std::string from(std::uint64_t step, PageLimits limits = {}) const {
    return lines_from_step(file_, step, limits).value_or_throw();
  }

  std::filesystem::path file_ = folder_ / "steps.jsonl";
};

TEST_F(RecordLines, begin_at_any_step) {
  std::vector<std::uint64_t> steps;
  for (std::uint64_t step = 3; step <= 300; step += 1 + step % 3) steps.push_back(step);
  write(steps, "{\"step\":400,\"cut");
  for (std::uint64_t first = 0; first <= 401; ++first) {
    const auto next = std::ranges::lower_bound(steps, first);
    EXPECT_EQ(from(first, {1, 1}), next == steps.end() ? "" : line(*next)) << first;
  }
}

TEST_F(RecordLines, are_whole_and_bounded_in_number_and_bytes) {  // RG-2
  const std::string all = write({1, 2, 3, 4, 5}, "{\"step\":6");
  EXPECT_EQ(from(1), all);
  EXPECT_EQ(from(2, {2, 1 << 20}), line(2) + line(3));
  EXPECT_EQ(from(1, {10, line(1).size() + line(2).size() + 3}), line(1) + line(2));
  EXPECT_EQ(from(90, {10, 10}), "");
  write({90});
  EXPECT_EQ(from(1, {10, 10}), line(90)) << "a line longer than the page";
}

TEST_F(RecordLines, of_an_empty_or_missing_file) {
  EXPECT_FALSE(lines_from_step(file_, 1).ok());
  write({});
  EXPECT_EQ(from(1), "");
  write({}, "{\"st");
  EXPECT_EQ(from(1), "");
}

TEST_F(RecordLines, of_a_large_file_cost_as_much_as_of_a_small_one) {  // RG-1
  std::vector<std::uint64_t> steps(20000);
  for (std::size_t at = 0; at < steps.size(); ++at) steps[at] = at + 1;
  const std::string all = write(steps);
  constexpr std::uint64_t pages = 200;
  const auto read_bytes = [] {
    std::ifstream io("/proc/self/io");
    std::string name;
    std::uint64_t bytes = 0;
    io >> name >> bytes;  // rchar
    return bytes;
  };
  const std::uint64_t begin = read_bytes();
  for (std::uint64_t page = 1; page <= pages; ++page) {
    EXPECT_EQ(from(page * 99, {1, 1}), line(page * 99));
  }
  EXPECT_LT((read_bytes() - begin) / pages, all.size() / 100);
}

}  // namespace
}  // namespace maestro
