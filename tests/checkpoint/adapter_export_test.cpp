// SPDX-License-Identifier: Apache-2.0
// Sections that train adapters, in checkpoints and exports: files in PEFT's format, and the merged model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/checkpoint/model_export.hpp"
#include "runtime/model/hf_export.hpp"
#include "runtime/model/weights_fingerprint.hpp"
#include "tests/checkpoint/section_fixture.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

/// A checkpoint of "deep" with adapters in two parts; "base" has the weights.
class AdapterExport : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("base/model.safetensors", "the weights");
    folder_.write("files/deep/config.json", R"({"model_type": "x", "dtype": "float32"})");
    folder_.write("files/deep/tokenizer.json", "{}");
    write_settings((folder_.path() / "base").string());
  }
  void write_settings(const std::string& base) {
    folder_.write("files/deep/adapter_config.json", adapter_config_text({2, 4, {"h"}, false, base}));
  }
  void commit() {
    const fs::path staging = store_.begin(StepId(7)).value_or_throw();
    Manifest manifest;
    manifest.step = 7;
    manifest.dtypes = {{"deep", "bf16"}};
    manifest.data[weights_key("deep")] = weights_fingerprint(folder_.path() / "base").value_or_throw();
    for (const std::uint32_t index : {0U, 1U}) {
      SmallSection section(7, {index, 2});
      SectionState state = section.state();
      state.adapters = true;
      const auto records = store_.write_section(staging, "deep", state).value_or_throw();
      manifest.files.insert(manifest.files.end(), records.begin(), records.end());
    }
    store_.commit(staging, manifest).or_throw();
  }
  [[nodiscard]] Result<ExportedModel> exported(const ExportOptions& options) const {
    return export_section(checkpoint_, "deep", to("out"), options);
  }
  /// Returns options whose merge makes a model with a single tensor, and records the merge's arguments.
  [[nodiscard]] ExportOptions merging() {
    ExportOptions options;
    options.merge = [this](const StoredSection& stored, const AdapterConfig& config) -> Result<MadeModel> {
      adapters_ = stored.state.parameters.size();
      scale_ = config.scale();
      const auto make = [](const std::string&, std::span<float> values) {
        std::ranges::fill(values, 3.0F);
        return Status();
      };
      return MadeModel{{{"h.weight", Tensor(nullptr, DType::f32, Shape{2, 3})}}, make};
    };
    return options;
  }
  [[nodiscard]] fs::path to(const char* name) const { return folder_.path() / name; }

  TempFolder folder_;
  CheckpointStore store_{folder_.path() / "checkpoints", {2, {}, folder_.path() / "files"}};
  fs::path checkpoint_ = folder_.path() / "checkpoints" / "step-00000007";
  std::size_t adapters_ = 0;
  double scale_ = 0;
};

TEST_F(AdapterExport, a_checkpoint_holds_them_under_pefts_file_names) {
  commit();
  EXPECT_THAT(
      names_in(checkpoint_ / "deep"),
      UnorderedElementsAre("config.json", "tokenizer.json", "adapter_config.json",
                           "adapter_model-00001-of-00002.safetensors", "adapter_model-00002-of-00002.safetensors",
                           "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"));
  const StoredSection stored = read_section(checkpoint_, "deep").value_or_throw();
  EXPECT_TRUE(stored.state.adapters);
  EXPECT_EQ(stored.state.parameters.size(), 2U);
}

TEST_F(AdapterExport, an_export_is_a_folder_of_peft_in_f32_unless_a_dtype_is_named) {
  commit();
  ExportOptions options;
  const ExportedModel model = exported(options).value_or_throw();
  EXPECT_TRUE(model.adapters);
  EXPECT_EQ(model.dtype, WeightDtype::f32);
  EXPECT_THAT(names_in(to("out")),
              UnorderedElementsAre("adapter_config.json", "adapter_model.safetensors", "tokenizer.json"));
  const auto file = SafetensorsFile::open(to("out/adapter_model.safetensors")).value_or_throw();
  EXPECT_THAT(file.names(), UnorderedElementsAre("h.0.weight", "h.1.weight"));
  EXPECT_EQ(load_expression(to("out")).value_or_throw(),
            "PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(\"" + to("base").string() + "\"), \"" +
                to("out").string() + "\")");
  options.dtype = WeightDtype::bf16;
  options.replace = true;
  EXPECT_EQ(exported(options).value_or_throw().bytes, 16U);
}

TEST_F(AdapterExport, a_merge_is_the_whole_model_in_the_dtype_that_the_section_began_from) {
  commit();
  const ExportedModel model = exported(merging()).value_or_throw();
  EXPECT_FALSE(model.adapters);
  EXPECT_EQ(model.dtype, WeightDtype::bf16);
  EXPECT_EQ(adapters_, 2U);
  EXPECT_EQ(scale_, 2.0);
  EXPECT_THAT(names_in(to("out")), UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  const auto file = SafetensorsFile::open(to("out/model.safetensors")).value_or_throw();
  EXPECT_EQ(float(file.tensor("h.weight").value_or_throw().span<bfloat16>()[5]), 3.0F);
}

TEST_F(AdapterExport, a_merge_with_other_weights_or_none_is_refused_by_name) {  // EX-3
  commit();
  folder_.write("base/model.safetensors", "other weights");
  EXPECT_THAT(exported(merging()).error().message, HasSubstr("differ from the weights that they were trained on"));
  fs::remove_all(to("base"));
  EXPECT_THAT(exported(merging()).error().message,
              HasSubstr("the folder " + to("base").string() + " of the adapted weights"));
  EXPECT_FALSE(fs::exists(to("out")));
}

TEST_F(AdapterExport, adapters_of_random_weights_and_sections_without_adapters_have_nothing_to_merge) {
  write_settings("");
  commit();
  EXPECT_THAT(exported(merging()).error().message, HasSubstr("random values, which no folder contains"));
  EXPECT_EQ(load_expression(to("files/deep")).value_or_throw(),
            "PeftModel.from_pretrained(MODEL, \"" + to("files/deep").string() + "\")");
  write_checkpoint(store_, 8, 8).or_throw();
  const auto refused = export_section(folder_.path() / "checkpoints/step-00000008", "student", to("out"), merging());
  EXPECT_THAT(refused.error().message, HasSubstr("cannot merge section student: it does not train adapters"));
}

}  // namespace
}  // namespace maestro
