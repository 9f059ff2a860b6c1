// SPDX-License-Identifier: Apache-2.0
// A model's folder in checkpoints and exports: files next to the weights, dtypes, shards.
#include "runtime/checkpoint/model_export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/files/half.hpp"
#include "runtime/model/hf_export.hpp"
#include "runtime/model/model_files.hpp"
#include "tests/checkpoint/section_fixture.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/observe/temporary_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

TEST(Half, a_half_of_its_own_value_is_itself_and_between_two_the_nearest_even) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const auto half = static_cast<std::uint16_t>(bits | sign);
      ASSERT_EQ(half_of(value_of_half(half)), half);
      if (bits == 0x7bff) continue;
      const float value = value_of_half(half), next = value_of_half(static_cast<std::uint16_t>(half + 1));
      const float middle = (value + next) / 2;
      ASSERT_EQ(half_of(middle), half + (bits & 1U)) << middle;
      ASSERT_EQ(half_of(std::nextafter(middle, value)), half) << middle;
      ASSERT_EQ(half_of(std::nextafter(middle, next)), half + 1) << middle;
    }
  }
  EXPECT_EQ(half_of(65519.99F), 0x7bff);
  EXPECT_EQ(half_of(65520.0F), 0x7c00);
  EXPECT_EQ(half_of(-std::numeric_limits<float>::max()), 0xfc00);
  EXPECT_TRUE(std::isnan(value_of_half(half_of(std::numeric_limits<float>::quiet_NaN()))));
}

/// A checkpoint with "deep", in two parts and initialized from bf16 weights, and "student".
class ModelExport : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("files/deep/config.json", R"({"model_type": "x", "torch_dtype": "float32", "a": 1e-05, "B": null})");
    folder_.write("files/deep/tokenizer.json", "{\"tokens\": 1}");
    folder_.write("files/deep/generation_config.json", "{}");
    folder_.write("files/deep/notes.txt", "no file of a model");
    const fs::path staging = store_.begin(StepId(7)).value_or_throw();
    for (const std::uint32_t index : {0U, 1U}) write(staging, "deep", {index, 2});
    write(staging, "student", {});
    manifest_.step = 7;
    manifest_.dtypes = {{"deep", "bf16"}, {"student", "f32"}};
    ASSERT_TRUE(store_.commit(staging, manifest_).ok());
  }
  void write(const fs::path& staging, const char* name, StatePart part) {
    SmallSection section(7, part);
    const auto records = store_.write_section(staging, name, section.state()).value_or_throw();
    manifest_.files.insert(manifest_.files.end(), records.begin(), records.end());
  }
  [[nodiscard]] fs::path to(const char* name) const { return folder_.path() / name; }
  [[nodiscard]] std::string refusal(const fs::path& target, const ExportOptions& options = {}) const {
    const auto exported = export_section(checkpoint_, "deep", target, options);
    EXPECT_FALSE(exported.ok());
    EXPECT_THAT(exported.error().message, IsOneLine());
    return exported.error().message;
  }

  TempFolder folder_;
  CheckpointStore store_{folder_.path() / "checkpoints", {2, {}, folder_.path() / "files"}};
  Manifest manifest_;
  fs::path checkpoint_ = folder_.path() / "checkpoints" / "step-00000007";
};

TEST_F(ModelExport, a_checkpoint_holds_the_files_of_the_model_and_their_checksums) {
  EXPECT_EQ(contents_of(checkpoint_ / "deep/tokenizer.json"), "{\"tokens\": 1}");
  EXPECT_EQ(contents_of(checkpoint_ / "deep/config.json"), contents_of(to("files/deep/config.json")));
  EXPECT_THAT(names_in(checkpoint_ / "deep"),
              UnorderedElementsAre("config.json", "tokenizer.json", "generation_config.json",
                                   "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                   "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors",
                                   "model.safetensors.index.json"));
  EXPECT_EQ(contents_of(checkpoint_ / "student/config.json"), "{\"step\": 7}\n") << "no files were prepared for it";
  EXPECT_TRUE(verify_checkpoint(checkpoint_).ok());
  folder_.write("checkpoints/step-00000007/deep/tokenizer.json", "{\"tokens\": 2}");
  EXPECT_THAT(verify_checkpoint(checkpoint_).error().message, HasSubstr("deep/tokenizer.json was altered"));
}

TEST_F(ModelExport, an_export_is_of_the_dtype_that_the_section_began_from) {
  const ExportedModel model = export_section(checkpoint_, "deep", to("out/deep/")).value_or_throw();
  EXPECT_EQ(model.dtype, WeightDtype::bf16);
  EXPECT_EQ(model.files, 1U);
  EXPECT_EQ(model.bytes, 16U);
  EXPECT_THAT(names_in(to("out/deep")),
              UnorderedElementsAre("config.json", "tokenizer.json", "generation_config.json", "model.safetensors"));
  EXPECT_THAT(names_in(to("out")), ElementsAre("deep")) << "no staging folder";
  EXPECT_EQ(contents_of(to("out/deep/config.json")),
            "{\n  \"model_type\": \"x\",\n  \"torch_dtype\": \"bfloat16\",\n  \"a\": 1e-05,\n  \"B\": null\n}\n");
  const auto file = SafetensorsFile::open(to("out/deep/model.safetensors")).value_or_throw();
  EXPECT_EQ(file.tensor("h.1.weight").value_or_throw().dtype(), DType::bf16);
  EXPECT_EQ(float(file.tensor("h.1.weight").value_or_throw().span<bfloat16>()[1]), 108.0F);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST_F(ModelExport, a_large_model_becomes_shards_with_an_index) {
  ExportOptions options;
  options.dtype = WeightDtype::f16;
  options.shard_bytes = 8;
  EXPECT_EQ(export_section(checkpoint_, "deep", to("out"), options).value_or_throw().files, 2U);
  const json index = json::parse(contents_of(to("out/model.safetensors.index.json")));
  EXPECT_EQ(index, json({{"metadata", {{"total_size", 16}}},
                         {"weight_map",
                          {{"h.0.weight", "model-00001-of-00002.safetensors"},
                           {"h.1.weight", "model-00002-of-00002.safetensors"}}}}));
  const auto second = SafetensorsFile::open(to("out/model-00002-of-00002.safetensors")).value_or_throw();
  EXPECT_EQ(second.bytes_by_dtype(), (std::map<std::string, std::uint64_t>{{"F16", 8}}));
  EXPECT_EQ(second.tensor("h.1.weight").value_or_throw().span<float>()[3], 110.0F);
}

TEST_F(ModelExport, a_folder_that_holds_anything_is_refused_unless_it_is_replaced_EX2) {  // EX-2
  folder_.write("out/letter.txt", "kept");
  EXPECT_THAT(refusal(to("out")), AllOf(HasSubstr(to("out").string()), HasSubstr("is not empty")));
  EXPECT_THAT(refusal(to("out/letter.txt")), HasSubstr("is not a folder"));
  EXPECT_EQ(contents_of(to("out/letter.txt")), "kept");
  fs::create_directories(to("empty"));
  EXPECT_TRUE(export_section(checkpoint_, "deep", to("empty")).ok());
  ExportOptions options;
  options.replace = true;
  EXPECT_TRUE(export_section(checkpoint_, "deep", to("out"), options).ok());
  EXPECT_FALSE(fs::exists(to("out/letter.txt")));
}

TEST_F(ModelExport, an_export_that_fails_leaves_nothing_and_replaces_nothing_EX1) {  // EX-1
  folder_.write("out/model.safetensors", "an earlier export");
  const fs::path weights = checkpoint_ / "deep/model-00002-of-00002.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 1);
  ExportOptions options;
  options.replace = true;
  const std::vector<std::string> before = names_in(folder_.path());
  EXPECT_THAT(refusal(to("out"), options), HasSubstr("model-00002-of-00002.safetensors"));
  EXPECT_EQ(contents_of(to("out/model.safetensors")), "an earlier export");
  EXPECT_EQ(names_in(folder_.path()), before);
}

TEST_F(ModelExport, rounds_all_but_exact_tensors) {
  EXPECT_TRUE(stays_f32("model.layers.1.mlp.gate.e_score_correction_bias"));
  EXPECT_TRUE(stays_f32("model.layers.1.feed_forward.expert_bias"));
  EXPECT_FALSE(stays_f32("model.layers.1.mlp.gate.weight"));
  std::vector<float> values = {0.3001F, 0.3001F};
  const Tensor tensor(values.data(), DType::f32, {std::int64_t{2}});
  const auto exact = [](std::string_view name) { return name == "b"; };
  ASSERT_TRUE(write_weights(to("w.safetensors"), {{"a", tensor}, {"b", tensor}}, WeightDtype::bf16, exact).ok());
  const auto file = SafetensorsFile::open(to("w.safetensors")).value_or_throw();
  EXPECT_EQ(file.tensor("a").value_or_throw().dtype(), DType::bf16);
  const ConstTensor kept = file.tensor("b").value_or_throw();
  ASSERT_EQ(kept.dtype(), DType::f32);
  EXPECT_EQ(kept.span<float>()[1], 0.3001F);
}

TEST_F(ModelExport, f16_refuses_a_finite_value_beyond_its_range_by_tensor) {
  std::vector<float> values = {1, -70000, std::numeric_limits<float>::infinity()};
  const auto written = [&](std::size_t first, WeightDtype dtype) {
    const Tensor tensor(values.data() + first, DType::f32, {std::int64_t{1}});
    return write_weights(to("w.safetensors"), {{"h.weight", tensor}}, dtype);
  };
  const auto refused = written(1, WeightDtype::f16);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("-70000"), HasSubstr("tensor h.weight"), IsOneLine()));
  EXPECT_FALSE(fs::exists(to("w.safetensors")));
  EXPECT_TRUE(written(1, WeightDtype::bf16).ok());
  EXPECT_TRUE(written(2, WeightDtype::f16).ok()) << "infinity is infinity";
}

/// A checkpoint with the sections `names`, each with a tensor of its own and the same config.json.
class HalvesOfAModel : public ModelExport {
 protected:
  fs::path write_halves(const std::string& config, std::initializer_list<const char*> names, bool disjoint = true) {
    for (const char* name : names) folder_.write("files/" + std::string(name) + "/config.json", config);
    const fs::path staging = store_.begin(StepId(9)).value_or_throw();
    manifest_ = {};
    manifest_.step = 9;
    std::uint32_t index = 0;
    for (const char* name : names) {
      SmallSection section(9, {disjoint ? index++ : 0, 2});
      SectionState state = section.state();
      state.part = {};
      const auto records = store_.write_section(staging, name, state).value_or_throw();
      manifest_.files.insert(manifest_.files.end(), records.begin(), records.end());
    }
    store_.commit(staging, manifest_).or_throw();
    return folder_.path() / "checkpoints/step-00000009";
  }
};

TEST_F(HalvesOfAModel, go_out_as_one_folder_by_any_name) {  // EX-4
  const fs::path checkpoint = write_halves(R"({"model_type": "x", "architectures": ["X"]})", {"trunk", "head"});
  EXPECT_THAT(sections_of_model(checkpoint, "head", true).value_or_throw(), ElementsAre("head", "trunk"));
  EXPECT_EQ(resolve_section(checkpoint).value_or_throw().checkpoint, checkpoint) << "a single model needs no name";
  for (const char* name : {"trunk", "head"}) {
    ASSERT_TRUE(export_section(checkpoint, name, to(name)).ok());
    std::vector<std::string> tensors;
    const SafetensorsFile file = SafetensorsFile::open(to(name) / "model.safetensors").value_or_throw();
    for (const NamedTensor& named : file.tensors().value_or_throw()) tensors.push_back(named.name);
    EXPECT_THAT(tensors, UnorderedElementsAre("h.0.weight", "h.1.weight"));
  }
  EXPECT_EQ(way_to_whole_model(checkpoint / "head"), "; the model is in the sections head+trunk: maestro export " +
                                                         (checkpoint / "head").string() +
                                                         " --to DIR writes it as one folder");
  EXPECT_EQ(way_to_whole_model(to("head")), "") << "a complete model";
}

TEST_F(HalvesOfAModel, are_models_of_their_own_without_an_architecture_or_with_equal_tensors) {  // EX-4
  EXPECT_THAT(sections_of_model(write_halves("{}", {"trunk", "head"}), "head", true).value_or_throw(),
              ElementsAre("head"));
  const fs::path twins = write_halves(R"({"architectures": ["X"]})", {"first", "second"}, false);
  EXPECT_THAT(sections_of_model(twins, "second", true).value_or_throw(), ElementsAre("second"));
}

TEST_F(HalvesOfAModel, of_one_complete_folder_go_out_together_if_it_is_written) {  // EX-5
  const std::string note = R"({"folder": ")" + to("whole").string() + R"(", "weights": "x"})";
  fs::create_directory(to("whole"));
  for (const char* name : {"llm", "vision"}) folder_.write("files/" + std::string(name) + "/complete_model.json", note);
  folder_.write("files/other/complete_model.json", R"({"folder": "elsewhere", "weights": "x"})");
  const fs::path checkpoint = write_halves("{}", {"llm", "vision", "other"});
  const auto sections = [&](const char* name, bool complete) {
    return sections_of_model(checkpoint, name, complete).value_or_throw();
  };
  EXPECT_THAT(sections("vision", true), ElementsAre("llm", "vision"));
  EXPECT_THAT(sections("vision", false), ElementsAre("vision"));
  EXPECT_THAT(sections("other", true), ElementsAre("other"));
  std::size_t written = 0;
  ExportOptions options;
  options.complete = [&](const std::vector<StoredSection>& parts, const fs::path&, const fs::path&, ExportedModel&) {
    written = parts.size();
    return Status();
  };
  EXPECT_THAT(export_section(checkpoint, "llm", to("out"), options).error().message,
              HasSubstr("cannot export section llm: the weights in " + to("whole").string() + " have changed"));
  EXPECT_EQ(written, 0U);
}

TEST_F(ModelExport, a_section_is_found_behind_a_checkpoint_or_a_run_and_a_wrong_name_is_answered_with_the_nearest) {
  const fs::path run = folder_.path();
  for (const fs::path& path : {checkpoint_ / "deep", run / "deep", run / "checkpoints/deep"}) {
    const CheckpointSection found = resolve_section(path).value_or_throw();
    EXPECT_EQ(found.checkpoint, checkpoint_);
    EXPECT_EQ(found.section, "deep");
  }
  const auto message = [](const fs::path& path) { return resolve_section(path).error().message; };
  EXPECT_THAT(message(run / "studemt"),
              AllOf(HasSubstr("has no section studemt; it has deep, student; the nearest is student"), IsOneLine()));
  EXPECT_THAT(message(checkpoint_), HasSubstr("it has several sections; name " + (checkpoint_ / "deep").string() +
                                              " or " + (checkpoint_ / "student").string()));
  EXPECT_THAT(message(run / "checkpoints/step-00000008"),
              AllOf(HasSubstr("cannot export"), HasSubstr("the nearest is " + checkpoint_.string())));
}

}  // namespace
}  // namespace maestro
