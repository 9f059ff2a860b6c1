// SPDX-License-Identifier: Apache-2.0
#include "sections/weights_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "sections/decoder/decoder_lm.hpp"
#include "sections/state_io.hpp"
#include "tests/sections/section_bench.hpp"
#include "tests/sections/stored_model.hpp"

namespace maestro::testing {
namespace {

TEST(WeightsFolder, an_index_names_the_files_of_weights) {
  Bench bench;
  const StoredModel stored("llama_untied");
  const TemporaryFolder out;
  const auto middle = stored.tensors.begin() + 5;
  ASSERT_TRUE(write_safetensors(out.path() / "first.safetensors", {stored.tensors.begin(), middle}).ok());
  ASSERT_TRUE(write_safetensors(out.path() / "second.safetensors", {middle, stored.tensors.end()}).ok());
  std::filesystem::copy_file(stored.folder / "config.json", out.path() / "config.json");
  const auto index = [&](const std::string& text) {
    std::ofstream(out.path() / "model.safetensors.index.json") << R"({"weight_map": {)" << text << "}}";
    DecoderLm section(bench.context("lm", true), {stored.config, {}});
    const Status loaded = load_weights(section, out.path());
    DecoderLm whole(bench.context("lm", true), {stored.config, {}});
    load_weights(whole, stored.folder).or_throw();
    if (loaded.ok()) {
      EXPECT_EQ(values_of(section), values_of(whole));
    }
    return loaded.ok() ? "loaded" : loaded.error().message;
  };
  const std::string first = '"' + stored.tensors.front().name + '"', last = '"' + stored.tensors.back().name + '"';
  const std::string both = first + R"(: "first.safetensors", )" + last + R"(: "second.safetensors")";
  EXPECT_EQ(index(both), "loaded");
  EXPECT_EQ(index(both + R"(, "b": "third.safetensors")"),
            (out.path() / "third.safetensors").string() + " is missing; model.safetensors.index.json names it");
  EXPECT_EQ(index(both + R"(, "b": "second.safetensors")"), (out.path() / "second.safetensors").string() +
                                                                " has no tensor 'b'; model.safetensors.index.json "
                                                                "names it there");
  EXPECT_NE(index(R"("a": "../x/first.safetensors")")
                .find("model.safetensors.index.json: weight_map.a: expected the name of a file"),
            std::string::npos);
}

TEST(WeightsFolder, of_a_tensor_in_two_files_the_index_decides) {
  Bench bench;
  const StoredModel stored("llama_untied");
  const TemporaryFolder out;
  std::filesystem::copy_file(stored.folder / "config.json", out.path() / "config.json");
  // The second file also has the first's last tensor, with other values.
  const auto middle = stored.tensors.begin() + 5;
  std::vector<NamedTensor> second(middle, stored.tensors.end());
  const NamedTensor& twice = *(middle - 1);
  std::vector<float> zeros(static_cast<std::size_t>(twice.tensor.elements()));
  second.push_back({twice.name, Tensor(zeros.data(), DType::f32, twice.tensor.shape())});
  ASSERT_TRUE(
      write_safetensors(out.path() / "model-00001-of-00002.safetensors", {stored.tensors.begin(), middle}).ok());
  ASSERT_TRUE(write_safetensors(out.path() / "model-00002-of-00002.safetensors", second).ok());
  const auto loaded = [&](DecoderLm& section) {
    const Status status = load_weights(section, out.path());
    return status.ok() ? "loaded" : status.error().message;
  };
  DecoderLm section(bench.context("lm", true), {stored.config, {}}),
      whole(bench.context("lm", true), {stored.config, {}});
  EXPECT_NE(loaded(section).find("tensor '" + twice.name + "' is stored twice"), std::string::npos);
  std::string map;
  for (auto each = stored.tensors.begin(); each != stored.tensors.end(); ++each) {
    map += (map.empty() ? "\"" : ", \"") + each->name +
           (each < middle ? R"(": "model-00001-of-00002.safetensors")" : R"(": "model-00002-of-00002.safetensors")");
  }
  std::ofstream(out.path() / "model.safetensors.index.json") << R"({"weight_map": {)" << map << "}}";
  EXPECT_EQ(loaded(section), "loaded");
  load_weights(whole, stored.folder).or_throw();
  EXPECT_EQ(values_of(section), values_of(whole));
}

TEST(WeightsFolder, a_model_safetensors_next_to_other_weights_is_refused) {
  const StoredModel stored("llama_untied");
  const TemporaryFolder out;
  std::filesystem::copy_file(stored.folder / "config.json", out.path() / "config.json");
  ASSERT_TRUE(write_safetensors(out.path() / "model.safetensors", stored.tensors).ok());
  const auto opened = [&] {
    const auto folder = WeightsFolder::open(out.path());
    return folder.ok() ? "opened" : folder.error().message;
  };
  const auto index = [&](const char* file) {
    std::ofstream(out.path() / "model.safetensors.index.json")
        << R"({"weight_map": {")" << stored.tensors.front().name << R"(": ")" << file << "\"}}";
  };
  EXPECT_EQ(opened(), "opened");
  index("model.safetensors");
  EXPECT_EQ(opened(), "opened");
  index("gone-00001-of-00001.safetensors");
  EXPECT_EQ(opened(), "opened") << "an index of files that are not there decides nothing";
  index("part.safetensors");
  ASSERT_TRUE(write_safetensors(out.path() / "part.safetensors", stored.tensors).ok());
  const std::string whole = (out.path() / "model.safetensors").string();
  EXPECT_EQ(opened(), whole +
                          " stands next to part.safetensors, another file of weights: one of the two is stale; "
                          "remove it (transformers reads model.safetensors)");
  std::filesystem::remove(out.path() / "model.safetensors.index.json");
  EXPECT_EQ(opened(), "opened") << "nothing names the other file as weights";
  std::filesystem::rename(out.path() / "part.safetensors", out.path() / "model-00001-of-00001.safetensors");
  EXPECT_NE(opened().find(whole + " stands next to model-00001-of-00001.safetensors"), std::string::npos);
}

TEST(WeightsFolder, shards_load_as_one_model) {
  Bench bench;
  const StoredModel stored("llama_untied");
  const TemporaryFolder out;
  const auto middle = stored.tensors.begin() + 5;
  ASSERT_TRUE(
      write_safetensors(out.path() / "model-00001-of-00002.safetensors", {stored.tensors.begin(), middle}).ok());
  ASSERT_TRUE(write_safetensors(out.path() / "model-00002-of-00002.safetensors", {middle, stored.tensors.end()}).ok());
  std::filesystem::copy_file(stored.folder / "config.json", out.path() / "config.json");
  DecoderLm whole(bench.context("lm", true), {stored.config, {}}),
      sharded(bench.context("lm", true), {stored.config, {}});
  load_weights(whole, stored.folder).or_throw();
  load_weights(sharded, out.path()).or_throw();
  EXPECT_EQ(values_of(whole), values_of(sharded));
}

}  // namespace
}  // namespace maestro::testing
