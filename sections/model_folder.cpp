// SPDX-License-Identifier: Apache-2.0
#include "sections/model_folder.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/core/hub_cache.hpp"
#include "runtime/core/input_file.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/model_files.hpp"
#include "sections/decoder/decoder_stack.hpp"
#include "sections/model_config.hpp"
#include "sections/state_io.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view adapters_stem = "adapter_model";

LoraConfig lora_of(const AdapterConfig& config) {
  const auto on = [&](const std::vector<std::string_view>& modules) {
    return std::ranges::any_of(modules, [&](std::string_view module) {
      return std::ranges::find(config.modules, module) != config.modules.end();
    });
  };
  return {config.rank, config.alpha,
          on({"q_proj", "k_proj", "v_proj", "qkv_proj", "attn.c_attn", "in_proj", "in_proj_qkv"}),
          on({"o_proj", "attn.c_proj", "out_proj"}),
          on({"gate_proj", "up_proj", "gate_up_proj", "down_proj", "mlp.c_fc", "mlp.c_proj", "w1", "w2", "w3"})};
}

template <class Stored>
void copy_values(const ConstTensor& from, std::span<float> to) {
  std::ranges::transform(from.span<Stored>(), to.begin(), [](Stored value) { return static_cast<float>(value); });
}

/// Returns a matrix (rows, columns), or its transpose, row by row.
std::vector<float> laid_out(const ConstTensor& matrix, bool transposed) {
  const std::span<const float> values = matrix.span<float>();
  if (!transposed) return {values.begin(), values.end()};
  std::vector<float> turned;
  turned.reserve(values.size());
  for (std::int64_t column = 0; column < matrix.columns(); ++column) {
    for (std::int64_t row = 0; row < matrix.rows(); ++row) {
      turned.push_back(values[static_cast<std::size_t>(row * matrix.columns() + column)]);
    }
  }
  return turned;
}

/// The weights of a folder together with their adapters.
class AdaptedWeights {
 public:
  static Result<AdaptedWeights> open(const StoredSection& adapters, const AdapterConfig& config);

  [[nodiscard]] Result<std::vector<NamedTensor>> tensors() const;
  [[nodiscard]] Status make(const std::string& name, std::span<float> values) const;

 private:
  struct Pair {
    ConstTensor a;  // (r, K)
    ConstTensor b;  // (N, r)
  };
  AdaptedWeights(WeightsFolder weights, const AdapterConfig& config)
      : weights_(std::move(weights)), scale_(config.scale()), transposed_(config.transposed) {}
  [[nodiscard]] Status check() const;
  void add(const Pair& pair, std::span<float> weight) const;

  WeightsFolder weights_;
  bool tied_ = false;
  double scale_;
  bool transposed_;
  std::map<std::string, Pair, std::less<>> pairs_;  // by the weight's name
};

Result<AdaptedWeights> AdaptedWeights::open(const StoredSection& adapters, const AdapterConfig& config) {
  Result<WeightsFolder> folder = WeightsFolder::open(config.base);
  if (!folder) return folder.error();
  const Result<DecoderConfig> decoder = read_hf_config(config.base);
  if (!decoder) return decoder.error();
  AdaptedWeights adapted(*std::move(folder), config);
  adapted.tied_ = decoder->tied;
  for (const NamedTensor& named : adapters.state.parameters) {
    const std::string_view name = named.name;
    const bool is_a = name.ends_with(adapter_a);
    if (!name.starts_with(adapter_prefix) || !(is_a || name.ends_with(adapter_b))) {
      return Error{ErrorCode::invalid_argument, "'" + named.name + "' is no adapter"};
    }
    static_assert(adapter_a.size() == adapter_b.size());
    const std::size_t length = name.size() - adapter_prefix.size() - adapter_a.size();
    Pair& pair = adapted.pairs_[std::string(name.substr(adapter_prefix.size(), length)) + ".weight"];
    (is_a ? pair.a : pair.b) = named.tensor;
  }
  if (const Status fits = adapted.check(); !fits) return fits.error();
  return adapted;
}

Status AdaptedWeights::check() const {
  for (const auto& [name, pair] : pairs_) {
    const Result<ConstTensor> weight = weights_.described(name);
    if (!weight) return weight.error();
    const bool whole = pair.a.defined() && pair.b.defined() && pair.a.rows() == pair.b.columns();
    const Shape& shape = weight->shape();
    const std::int64_t rows = transposed_ ? pair.a.columns() : pair.b.rows();
    const std::int64_t columns = transposed_ ? pair.b.rows() : pair.a.columns();
    if (whole && shape == Shape{rows, columns}) continue;
    return Error{ErrorCode::invalid_argument,
                 weights_.label() + ": the adapter of '" + name + "', " + shape.to_string() + ", does not fit it"};
  }
  return {};
}

Result<std::vector<NamedTensor>> AdaptedWeights::tensors() const {
  std::vector<NamedTensor> tensors;
  for (const std::string& name : weights_.names()) {
    if (is_stored_buffer(name) || (tied_ && name == head_name)) continue;
    const Result<ConstTensor> tensor = weights_.described(name);
    if (!tensor) return tensor.error();
    tensors.push_back({name, ConstTensor(nullptr, DType::f32, tensor->shape())});
  }
  return tensors;
}

Status AdaptedWeights::make(const std::string& name, std::span<float> values) const {
  const Result<ConstTensor> weight = weights_.tensor(name);
  if (!weight) return weight.error();
  if (weight->dtype() == DType::bf16) {
    copy_values<bfloat16>(*weight, values);
  } else {
    copy_values<float>(*weight, values);
  }
  weights_.release(name);
  if (const auto pair = pairs_.find(name); pair != pairs_.end()) add(pair->second, values);
  return {};
}

void AdaptedWeights::add(const Pair& pair, std::span<float> weight) const {
  const auto rank = static_cast<std::size_t>(pair.a.rows());
  const std::vector<float> left = transposed_ ? laid_out(pair.a, true) : laid_out(pair.b, false);   // (rows, r)
  const std::vector<float> right = transposed_ ? laid_out(pair.b, true) : laid_out(pair.a, false);  // (r, columns)
  const std::size_t columns = right.size() / rank;
  std::vector<float> sum(columns);
  for (std::size_t row = 0; row * columns < weight.size(); ++row) {
    std::ranges::fill(sum, 0.0F);
    for (std::size_t k = 0; k < rank; ++k) {
      const float factor = left[row * rank + k];
      for (std::size_t column = 0; column < columns; ++column) sum[column] += factor * right[k * columns + column];
    }
    for (std::size_t column = 0; column < columns; ++column) {
      weight[row * columns + column] += static_cast<float>(scale_) * sum[column];
    }
  }
}

}  // namespace

Result<ModelFolder> ModelFolder::open(const fs::path& folder) {
  const fs::path file = folder / adapter_config_file;
  std::error_code failure;
  if (!fs::exists(file, failure)) return ModelFolder{folder, {}, {}};
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  const Result<AdapterConfig> config = parse_adapter_config(*text, file.string());
  if (!config) return config.error();
  if (config->base.empty()) {
    return Error{ErrorCode::invalid_argument, file.string() + ": base_model_name_or_path is not set: the weights " +
                                                  "below these adapters are in no folder"};
  }
  if (const Status inside = check_model_links(config->base); !inside) return inside.error();
  return ModelFolder{config->base, folder, lora_of(*config)};
}

Status load_model(Section& section, const ModelFolder& folder) {
  if (folder.weights.empty()) {
    section.weights().parameters->initialise();
  } else if (const Status loaded = load_weights(section, folder.weights); !loaded) {
    return loaded;
  }
  if (folder.adapters.empty()) return {};
  Parameters& parameters = section.parameters();
  if (parameters.values_later()) parameters.initialise();  // allocates them
  std::vector<SafetensorsFile> files;                      // in a checkpoint one for each stage
  std::vector<NamedTensor> all;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder.adapters, failure)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(adapters_stem) || !name.ends_with(".safetensors")) continue;
    Result<SafetensorsFile> file = SafetensorsFile::open(entry.path());
    if (!file) return file.error();
    const Result<std::vector<NamedTensor>> tensors = file->tensors();
    if (!tensors) return tensors.error();
    all.insert(all.end(), tensors->begin(), tensors->end());
    files.push_back(*std::move(file));
  }
  return import_tensors(section, ParameterBuffer::values, all, folder.adapters.string());
}

Result<MadeModel> merge_adapters(const StoredSection& adapters, const AdapterConfig& config) {
  Result<AdaptedWeights> opened = AdaptedWeights::open(adapters, config);
  if (!opened) return opened.error();
  // A function that is copied needs a shared owner.
  const auto adapted = std::make_shared<const AdaptedWeights>(*std::move(opened));
  Result<std::vector<NamedTensor>> tensors = adapted->tensors();
  if (!tensors) return tensors.error();
  return MadeModel{*std::move(tensors),
                   [adapted](const std::string& name, std::span<float> values) { return adapted->make(name, values); }};
}

Status write_complete_model(const std::vector<StoredSection>& parts, const fs::path& complete, const fs::path& to,
                            ExportedModel& model) {
  std::vector<WeightsFolder::Change> changes;
  for (const StoredSection& part : parts) {
    const Result<WeightsFolder> weights = WeightsFolder::open(complete, part_in_folder(part.state.config, complete));
    if (!weights) return weights.error();
    const auto own = weights->changes(part.state.parameters);
    if (!own) return own.error();
    changes.insert(changes.end(), own->begin(), own->end());
  }
  const Result<WeightsFolder> weights = WeightsFolder::open(complete);
  if (!weights) return weights.error();
  model = {weights->dtype(), weights->files(), weights->bytes()};
  if (const Status copied = weights->copy_changed(to, changes); !copied) return copied;
  std::vector<std::string> files = model_files(complete);
  std::erase(files, whole_model_file);
  for (const char* more : {"config.json", "model.safetensors.index.json", "video_preprocessor_config.json",
                           "spk_dict.pt"}) {  // voices of Qwen2.5-Omni
    std::error_code failure;
    if (fs::exists(complete / more, failure)) files.emplace_back(more);
  }
  for (const std::string& name : files) {
    if (const auto copied = copy_model_file(complete / name, to / name); !copied) return copied.error();
  }
  return {};
}

}  // namespace maestro
