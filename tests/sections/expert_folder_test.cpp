// SPDX-License-Identifier: Apache-2.0
// Folders of models with experts: a tensor for each expert, or a tensor for all experts of a layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "runtime/files/atomic_file.hpp"
#include "runtime/files/posix_file.hpp"
#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/state_io.hpp"
#include "sections/weights_folder.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

using ::testing::HasSubstr;

/// Collects tensors for a file.
class Tensors {
 public:
  Tensor add(const std::string& name, Shape shape) {
    const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * sizeof(float);
    memory_.push_back(std::make_unique<AlignedMemory>(bytes));
    all_.push_back({name, Tensor(memory_.back()->data(), DType::f32, shape)});
    return Tensor(memory_.back()->data(), DType::f32, shape);
  }
  void write(const std::filesystem::path& file) const { write_safetensors(file, all_, {}).value_or_throw(); }

 private:
  std::vector<std::unique_ptr<AlignedMemory>> memory_;
  std::vector<NamedTensor> all_;
};

class ExpertFolder : public ::testing::TestWithParam<std::string> {
 protected:
  ExpertFolder()
      : stored_(SafetensorsFile::open(reference_folder(GetParam()) / "model.safetensors").value_or_throw()),
        config_(read_hf_config(reference_folder(GetParam())).value_or_throw()) {
    std::filesystem::copy_file(reference_folder(GetParam()) / "config.json", folder_.path() / "config.json");
  }
  [[nodiscard]] ConstTensor stored(const std::string& name) const { return stored_.tensor(name).value_or_throw(); }

  /// Adds a tensor that holds every expert of a layer, several parts one after the other.
  void add_fused(Tensors& to, const std::string& name, const std::string& experts,
                 const std::vector<std::string_view>& parts) const {
    const ConstTensor first = stored(experts + "0." + std::string(parts.front()) + ".weight");
    const std::int64_t rows = first.rows() * std::ssize(parts);
    const Tensor fused = to.add(name, {config_.experts.count, rows, first.columns()});
    std::byte* at = fused.raw();
    for (std::int64_t expert = 0; expert < config_.experts.count; ++expert) {
      for (const std::string_view part : parts) {
        const ConstTensor own = stored(experts + std::to_string(expert) + "." + std::string(part) + ".weight");
        std::memcpy(at, own.raw(), own.bytes());
        at += own.bytes();
      }
    }
  }
  /// Writes the model with a tensor for all experts of a layer.
  void write_fused() const {
    const ExpertNames names = expert_names(config_.family);
    Tensors tensors;
    for (const std::string& name : stored_.names()) {
      if (name.find(".experts.") != std::string::npos) continue;
      std::string own = name;
      if (const auto at = own.find("block_sparse_moe"); at != std::string::npos) own.replace(at, 16, "mlp");
      const ConstTensor from = stored(name);
      std::memcpy(tensors.add(own, from.shape()).raw(), from.raw(), from.bytes());
    }
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      if (!config_.experts.at(layer)) continue;
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      const std::string experts = prefix + std::string(names.block) + ".experts.";
      add_fused(tensors, prefix + std::string(names.fused_block) + ".experts.gate_up_proj", experts,
                {names.gate, names.up});
      add_fused(tensors, prefix + std::string(names.fused_block) + ".experts.down_proj", experts, {names.down});
    }
    tensors.write(folder_.path() / "model.safetensors");
  }

  Bench bench_;
  TemporaryFolder folder_;
  SafetensorsFile stored_;
  DecoderConfig config_;
};

TEST_P(ExpertFolder, both_forms_load_to_the_same_bits) {
  write_fused();
  DecoderLm hub(bench_.context("hub", true), {config_, {}}), fused(bench_.context("fused", true), {config_, {}});
  load_weights(hub, reference_folder(GetParam())).or_throw();
  load_weights(fused, folder_.path()).or_throw();
  EXPECT_TRUE(std::ranges::equal(fused.parameters().values(), hub.parameters().values()));
}

INSTANTIATE_TEST_SUITE_P(families, ExpertFolder,
                         ::testing::Values("olmoe", "qwen2_moe", "qwen3_moe", "mixtral", "lfm2_moe", "qwen3_5_moe_text",
                                           "glm4_moe", "dots1", "deepseek_v2", "deepseek_v3"),
                         [](const auto& test) { return test.param; });

TEST(ExpertFolders, layers_after_the_last_are_passed_over) {
  const TemporaryFolder folder;
  const std::filesystem::path recorded = reference_folder("glm4_moe");
  std::filesystem::copy_file(recorded / "model.safetensors", folder.path() / "model.safetensors");
  std::string config = read_text(recorded / "config.json").value_or_throw();
  const std::string layers = "\"num_hidden_layers\": ";
  config.replace(config.find(layers + "3"), layers.size() + 1, layers + "2");
  (void)write_file(folder.path() / "config.json", config).value_or_throw();
  Bench bench;
  DecoderLm two(bench.context("two", true), {read_hf_config(folder.path()).value_or_throw(), {}});
  DecoderLm three(bench.context("three", true), {read_hf_config(recorded).value_or_throw(), {}});
  load_weights(two, folder.path()).or_throw();
  load_weights(three, recorded).or_throw();
  for (const StateEntry& entry : two.state()) {
    EXPECT_FALSE(entry.name.starts_with("model.layers.2.")) << entry.name;
    const Parameter& other = *three.parameters().find(entry.parameter->name());
    EXPECT_EQ(largest_difference(entry.parameter->value(), other.value()), 0) << entry.name;
  }
}

TEST(ExpertFolders, a_fused_tensor_of_another_form_is_refused_by_name) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(reference_folder("olmoe") / "config.json", folder.path() / "config.json");
  Tensors tensors;
  (void)tensors.add("model.layers.0.mlp.experts.gate_up_proj", {8, 5, 24});
  tensors.write(folder.path() / "model.safetensors");
  const auto opened = WeightsFolder::open(folder.path());
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("'model.layers.0.mlp.experts.gate_up_proj' has shape"));
}

}  // namespace
}  // namespace maestro::testing
