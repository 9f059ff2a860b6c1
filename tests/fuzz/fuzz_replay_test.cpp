// SPDX-License-Identifier: Apache-2.0
// Replays the seeds and regressions of every fuzz target. A finding ends the program with the input's name.
#include <glob.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;

// The targets' entry points, which a fuzzer names LLVMFuzzerTestOneInput.
#define MAESTRO_FUZZ_TARGETS(TARGET) \
  TARGET(job)                        \
  TARGET(safetensors)                \
  TARGET(config)                     \
  TARGET(tokenizer)                  \
  TARGET(chat_template)              \
  TARGET(workload)                   \
  TARGET(checkpoint)                 \
  TARGET(image)                      \
  TARGET(conversation)               \
  TARGET(rows)                       \
  TARGET(parquet)                    \
  TARGET(teacher)                    \
  TARGET(rpc)                        \
  TARGET(plan_files)                 \
  TARGET(fleet)                      \
  TARGET(trace)                      \
  TARGET(record)                     \
  TARGET(sound)
#define DECLARED(name) extern "C" int fuzz_##name(const std::uint8_t* data, std::size_t size);
MAESTRO_FUZZ_TARGETS(DECLARED)

namespace {

struct Target {
  std::string_view name;
  int (*run)(const std::uint8_t*, std::size_t);
};
void PrintTo(const Target& target, std::ostream* out) {  // name required by GoogleTest
  *out << target.name;
}
#define LISTED(name) Target{#name, fuzz_##name},
constexpr std::array targets{MAESTRO_FUZZ_TARGETS(LISTED)};

const fs::path folder = fs::path(MAESTRO_SOURCE_DIR) / "tests" / "fuzz";

void add_files_of(const fs::path& inputs, std::vector<fs::path>& files) {
  if (!fs::exists(inputs)) return;
  for (const auto& entry : fs::directory_iterator(inputs)) files.push_back(entry.path());
}

/// Adds files of other tests that references.txt names for the target, one pattern per line.
void add_references_of(std::string_view name, std::vector<fs::path>& files) {
  std::ifstream lines(folder / "references.txt");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string target, pattern;
    words >> target >> pattern;
    if (target != name) continue;
    glob_t found{};
    ASSERT_EQ(glob((fs::path(MAESTRO_SOURCE_DIR) / pattern).c_str(), 0, nullptr, &found), 0) << line;
    for (std::size_t at = 0; at < found.gl_pathc; ++at) files.emplace_back(found.gl_pathv[at]);
    globfree(&found);
  }
}

class FuzzReplay : public testing::TestWithParam<Target> {};

TEST_P(FuzzReplay, every_seed_and_regression_passes) {
  std::vector<fs::path> files;
  add_files_of(folder / "corpus" / GetParam().name, files);
  add_files_of(folder / "regressions" / GetParam().name, files);
  add_references_of(GetParam().name, files);
  ASSERT_FALSE(files.empty());
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    ASSERT_TRUE(in.good() || in.eof()) << file;
    const testing::ScopedTrace trace(__FILE__, __LINE__, file.string());
    EXPECT_EQ(GetParam().run(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzReplay, testing::ValuesIn(targets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
