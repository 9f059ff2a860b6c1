// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/hf_generation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class HfGeneration : public testing::Test {
 protected:
  void write(const char* name, const std::string& text) const { folder.write(name, text); }
  [[nodiscard]] std::vector<std::int32_t> ids() const { return read_hf_stop_tokens(folder.path()).value_or_throw(); }
  [[nodiscard]] std::string refusal() const {
    const auto read = read_hf_stop_tokens(folder.path());
    return read.ok() ? "accepted" : read.error().message;
  }
  const TempFolder folder;
};

TEST_F(HfGeneration, stop_tokens_are_an_id_or_a_list) {
  write("generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_THAT(ids(), ElementsAre(7));
  write("generation_config.json", R"({"eos_token_id": [3, 1]})");
  EXPECT_THAT(ids(), ElementsAre(3, 1));
}

TEST_F(HfGeneration, config_json_counts_where_generation_config_json_has_none) {
  EXPECT_THAT(ids(), IsEmpty());
  write("config.json", R"({"eos_token_id": 5})");
  EXPECT_THAT(ids(), ElementsAre(5));
  write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_THAT(ids(), ElementsAre(5));
  write("generation_config.json", R"({"eos_token_id": 6})");
  EXPECT_THAT(ids(), ElementsAre(6));
}

TEST_F(HfGeneration, a_wrong_value_is_refused_by_file_and_key) {
  const std::string file = (folder.path() / "generation_config.json").string();
  for (const char* value : {"-1", "\"a\"", "1.5", "[1, null]", "4294967296"}) {
    write("generation_config.json", std::string(R"({"eos_token_id": )") + value + "}");
    EXPECT_THAT(refusal(), testing::StartsWith(file + ": eos_token_id is "));
  }
  write("generation_config.json", "{");
  EXPECT_THAT(refusal(), testing::HasSubstr(file));
}

}  // namespace
}  // namespace maestro
