// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/vision_encoder.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "runtime/core/result.hpp"
#include "runtime/ops/author_functions.hpp"
#include "sections/parallel_fit.hpp"
#include "sections/section_ranks.hpp"
#include "sections/vision/encoder_rows.hpp"

namespace maestro {

namespace {

constexpr const char* model = "vision_model.";
constexpr std::string_view layers_prefix = "encoder.layers.";
constexpr const char* key_name = "k_proj";

VisionConfig checked(const SectionContext& context, const VisionEncoder::Options& options) {
  VisionConfig config = resolved(options.vision, options.data);
  check_vision(context.name, config, options.data);
  check_parallel_fit(context.name, {.heads = config.heads, .ffn = config.ffn}, context.parallel.layout);
  check_stage(context.name, context.stage, config.run_layers());
  return config;
}

/// Returns the shape of a part of a model: `layers` layers from `first` on.
VisionConfig part_of(VisionConfig config, std::int64_t first, std::int64_t layers) {
  for (std::vector<std::int64_t>* numbers : {&config.full_layers, &config.taps}) {
    std::erase_if(*numbers, [&](std::int64_t layer) { return layer < first || layer >= first + layers; });
    for (std::int64_t& layer : *numbers) layer -= first;
  }
  config.layers = config.layers_run = layers;
  return config;
}

}  // namespace

struct VisionEncoder::Images {
  std::shared_ptr<const EncoderRows> rows;  // shared with the recorded backward pass
  Block offsets, window_offsets;            // of images and windows, for the table
  Block first_index;                        // (P) i32: entry in the first table; -1: none
  Block second_index;                       // (P) i32: entry in the second table
  Block turns;                              // (P, 2) i32, with rotary positions
  [[nodiscard]] SequenceLayout layout(bool windows) const {
    const Block& device = windows ? window_offsets : offsets;
    SequenceLayout layout{windows ? rows->window_offsets : rows->offsets, second_index.tensor().span<std::int32_t>(),
                          device.tensor().span<std::int32_t>()};
    if (!turns.defined()) return layout;
    layout.positions = turns.tensor().span<std::int32_t>();
    layout.axes = 2;
    return layout;
  }
  void keep_all(Tape& tape) const {
    keep(tape, rows);
    for (const Block& memory : {offsets, window_offsets, first_index, second_index, turns}) {
      if (memory.defined()) keep(tape, memory);
    }
  }
  /// Returns the entries for the patches `own`.
  [[nodiscard]] Tensor first_of(const RowRange& own) const {
    return {first_index.tensor().data<std::int32_t>() + own.first, DType::i32, Shape{own.count}};
  }
  [[nodiscard]] std::span<const std::int32_t> second_of(const RowRange& own) const {
    return second_index.tensor().span<std::int32_t>().subspan(static_cast<std::size_t>(own.first),
                                                              static_cast<std::size_t>(own.count));
  }
};

namespace {

/// Returns rows (positions, width) of sines and cosines, as Whisper's: the wavelengths grow from 2 pi to 20000 pi.
std::vector<float> sinusoids(std::span<const std::int32_t> positions, std::int64_t width) {
  const std::int64_t half = width / 2;
  const auto step = static_cast<float>(std::log(1e4) / static_cast<double>(half - 1));
  std::vector<float> rows;
  rows.reserve(positions.size() * static_cast<std::size_t>(width));
  for (const std::int32_t position : positions) {
    for (std::int64_t column = 0; column < width; ++column) {
      const float angle = static_cast<float>(position) * std::exp(-step * static_cast<float>(column % half));
      rows.push_back(column < half ? std::sin(angle) : std::cos(angle));
    }
  }
  return rows;
}

/// Returns the frequencies of a head, half of its pairs for each axis: theta^(-2 j / (D / 2)), as in Qwen2-VL.
RotaryFrequencies axial_frequencies(double theta, std::int64_t head_size) {
  RotaryFrequencies found;
  for (const std::uint8_t axis : {0, 1}) {
    for (std::int64_t column = 0; column < head_size / 2; column += 2) {
      found.inverse.push_back(std::pow(theta, -static_cast<double>(column) / static_cast<double>(head_size / 2)));
      found.axis.push_back(axis);
    }
  }
  return found;
}

}  // namespace

VisionEncoder::VisionEncoder(const SectionContext& context, const Options& options)
    : context_(context), config_(checked(context, options)), pictures_(options.data.pictures), stage_(context.stage) {
  if (stage_.count == 1) stage_.layers = config_.run_layers();
  const ParallelContext& parallel = context.parallel;
  const std::int64_t heads = config_.heads / parallel.layout.tensor;
  block_.attention.shape = {heads, heads, config_.width / config_.heads, false};
  block_.tensor_group = parallel.tensor_group;
  block_.context_group = parallel.context_group;
  block_.norm.epsilon = config_.norm_epsilon;
  block_.activation = config_.activation;
  block_.whole_head_norms = config_.head_norms;
  if (config_.rope_theta > 0) {
    block_.attention.rotary = std::make_shared<const RotaryFrequencies>(
        axial_frequencies(config_.rope_theta, block_.attention.shape.head_size));
  }
  check_attention(context, block_.attention.shape);
  build();
  context.allocate(parameters_);
}

void VisionEncoder::build() {
  const ParameterInit init(context_.seed, context_.name);
  ParameterBuilder add(parameters_, init, state_);
  const auto norm = [&](const char* name) { return add.layer_norm(std::string(model) + name, config_.width); };
  if (stage_.first()) {
    build_embedding(add);
    if (config_.pre_norm) pre_norm_ = norm("pre_layrnorm");  // as CLIP spells it
  }
  for (std::int64_t i = stage_.first_layer; i < stage_.first_layer + stage_.layers; ++i) {
    layers_.push_back(layer(add, std::string(model).append(layers_prefix) + std::to_string(i) + "."));
  }
  if (stage_.last() && config_.last_norm) final_norm_ = norm("post_layernorm");
}

void VisionEncoder::build_embedding(ParameterBuilder& add) {
  const std::string embeddings = std::string(model) + "embeddings.";
  const auto table = [&](const std::string& name, std::int64_t entries) {
    return &add.stored(add.matrix(embeddings + name, Shape{entries, config_.width}, config_.init_std));
  };
  if (config_.mels > 0) return build_convolutions(add, embeddings);
  // A convolution's kernel with a stride equal to its size.
  const std::string patch = embeddings + "patch_embedding";
  const std::int64_t side = config_.patch;
  const Shape kernel =
      config_.times == 1 ? Shape{config_.width, 3, side, side} : Shape{config_.width, 3, config_.times, side * side};
  patch_embedding_.weight = &add.stored(add.matrix(patch + ".weight", kernel, config_.init_std));
  if (config_.class_row) {
    std::vector<std::string> kinds{embeddings + "class_embedding"};
    if (config_.patch_bias) kinds.push_back(patch + ".bias");
    first_table_ = &add.vectors(kinds, config_.width, config_.init_std);
    second_table_ = table("position_embedding.weight", config_.max_patches + 1);
  } else if (config_.positions == PatchPositions::learned || config_.positions == PatchPositions::interpolated) {
    first_table_ = table("position_embedding.weight", config_.max_patches);
  } else if (config_.positions == PatchPositions::grid) {
    first_table_ = table("row_embedding.weight", config_.max_grid);
    second_table_ = table("column_embedding.weight", config_.max_grid);
  }
  if (config_.patch_bias && !config_.class_row) {
    patch_embedding_.bias = &add.stored(add.vector(patch + ".bias", config_.width, 0.0f));
  }
}

void VisionEncoder::build_convolutions(ParameterBuilder& add, const std::string& prefix) {
  const std::int64_t width = config_.width;
  const double deviation = config_.init_std;
  patch_embedding_.weight =
      &add.stored(add.matrix(prefix + "conv1.weight", Shape{width, config_.mels, kernel_frames}, deviation));
  first_table_ = &add.vectors({prefix + "conv1.bias"}, width, deviation);
  const std::string second = prefix + "conv2";
  second_convolution_ = {&add.kernel(second + ".weight", Shape{width, row_windows * width}, deviation, row_windows),
                         &add.stored(add.vector(second + ".bias", width, 0.0F))};
  if (config_.positions == PatchPositions::sinusoids) return;
  const std::string table = prefix + "position_embedding.weight";
  second_table_ = &add.undecayed(table, Shape{config_.max_patches, width},
                                 ParameterInit(context_.seed, context_.name).normal(table, deviation), {});
}

Affine VisionEncoder::added_norm(ParameterBuilder& add, const std::string& name) const {
  return config_.rms_norm ? add.rms_norm(name, config_.width) : add.layer_norm(name, config_.width);
}

Affine VisionEncoder::stacked(ParameterBuilder& add, const std::string& prefix, const char* joined,
                              const std::vector<const char*>& names, std::int64_t rows, bool biases) const {
  const std::vector<std::int64_t> heights(names.size(), rows);
  const ParameterSlice slice = TensorCut(context_.parallel).stacked(heights);
  const std::int64_t height = std::ssize(names) * rows;
  const Affine both{&add.matrix(prefix + joined + ".weight", Shape{height, config_.width}, config_.init_std, slice),
                    biases ? &add.vector(prefix + joined + ".bias", height, 0.0f, slice) : nullptr};
  std::int64_t first = 0;
  for (const char* name : names) {
    add.stored_rows(prefix + name + ".weight", *both.weight, first, rows);
    const bool held = config_.key_bias || std::string_view(name) != key_name;
    if (biases && held) add.stored_rows(prefix + name + ".bias", *both.bias, first, rows);
    first += rows;
  }
  return both;
}

BlockWeights VisionEncoder::layer(ParameterBuilder& add, const std::string& prefix) const {
  const std::int64_t width = config_.width;
  const double residual = config_.init_std / std::sqrt(2.0 * static_cast<double>(config_.layers));
  const TensorCut cut(context_.parallel);
  const std::string attention = prefix + "self_attn.", network = prefix + "mlp.";
  BlockWeights weights;
  weights.attention_norm = added_norm(add, prefix + "layer_norm1");
  if (config_.fused_qkv) {
    weights.qkv = add.product(attention + "qkv_proj", Shape{3 * width, width}, config_.init_std, config_.qkv_bias,
                              cut.stacked({width, width, width}));
  } else {
    weights.qkv = stacked(add, attention, "qkv_proj", {"q_proj", key_name, "v_proj"}, width, config_.qkv_bias);
  }
  weights.attention_out = add.linear(attention + "out_proj", Shape{width, width}, residual, false, cut.columns(width));
  if (config_.head_norms) {
    weights.query_norm = add.rms_norm(attention + "q_norm", width, cut.rows(width)).weight;
    weights.key_norm = add.rms_norm(attention + "k_norm", width, cut.rows(width)).weight;
  }
  const auto factors = [&](const char* name) {
    const bool scaled = config_.branch_scale > 0;
    return scaled ? &add.stored(add.vector(prefix + name, width, static_cast<float>(config_.branch_scale))) : nullptr;
  };
  weights.attention_scale = factors("layer_scale1");
  weights.ffn_scale = factors("layer_scale2");
  weights.ffn_norm = added_norm(add, prefix + "layer_norm2");
  const char* last = config_.gated ? "down_proj" : "fc2";
  if (config_.gated) {
    weights.ffn_in = stacked(add, network, "gate_up_proj", {"gate_proj", "up_proj"}, config_.ffn, true);
  } else {
    weights.ffn_in =
        add.linear(network + "fc1", Shape{config_.ffn, width}, config_.init_std, false, cut.rows(config_.ffn));
  }
  weights.ffn_out = add.linear(network + last, Shape{width, config_.ffn}, residual, false, cut.columns(config_.ffn));
  return weights;
}

Ports VisionEncoder::ports() const {
  const Port features{"features", context_.precision, config_.width, true, false, Axis::patches, Sharding::rank_rows};
  Port stream = features;
  stream.name = stream_name;
  stream.dtype = DType::f32;
  const Port pixels{"pixels", DType::f32, patch_columns(config_), false, false, Axis::patches, Sharding::rank_rows};
  // An image's begin and width require the places of all its patches, 12 bytes each.
  const Port places{"places", DType::i32, 3, false, false, Axis::patches, Sharding::replicated};
  Ports ports{{stage_.first() ? pixels : stream, places}, {stage_.last() ? features : stream}};
  for (std::int64_t tap = 0; tap < std::ssize(config_.taps); ++tap) {
    if (!has_layer(config_.taps[static_cast<std::size_t>(tap)])) continue;
    Port tapped = features;
    tapped.name = tap_name(features.name, tap);
    ports.outputs.push_back(std::move(tapped));
  }
  return ports;
}

VisionEncoder::Images VisionEncoder::images_of(Tape& tape, const Inputs& inputs) const {
  const auto rows = std::make_shared<const EncoderRows>(encoder_rows(config_, context_.name, inputs));
  Images images{rows, tape.indices(rows->offsets), {}, tape.indices(rows->first), tape.indices(rows->second), {}};
  if (config_.window > 0) images.window_offsets = tape.indices(rows->window_offsets);
  if (config_.rope_theta > 0) images.turns = tape.indices(rows->turns);
  return images;
}

Var VisionEncoder::convolved(Tape& tape, const Inputs& inputs, const Images& images) {
  const ParallelContext& parallel = context_.parallel;
  const RowRange own = parallel.layout.rows(Sharding::rank_rows, images.layout(false).rows(), parallel.rank);
  const std::int64_t width = config_.width, count = row_windows * own.count;
  const Var windows =
      reshaped(tape, converted(tape, inputs["pixels"], tape.compute()), Shape{count, kernel_frames * config_.mels});
  const Tensor entries(images.first_index.tensor().data<std::int32_t>() + row_windows * own.first, DType::i32,
                       Shape{count});
  const Var biases = embedding(tape, *first_table_, entries, nullptr, {});
  const Var first =
      converted(tape, add(tape, biases, linear(tape, windows, *patch_embedding_.weight, nullptr)), tape.compute());
  const Var joined = reshaped(tape, gelu(tape, first, config_.activation), Shape{own.count, row_windows * width});
  const Var second = gelu(tape, linear(tape, joined, second_convolution_), config_.activation);
  return add(tape, positions_of(tape, images, own), second);
}

Var VisionEncoder::positions_of(Tape& tape, const Images& images, const RowRange& own) {
  if (config_.positions != PatchPositions::sinusoids) {
    return index_select(tape, tape.input(second_table_->value()), tape.indices(images.second_of(own)));
  }
  const std::vector<float> values = sinusoids(images.second_of(own), config_.width);
  const Block rows = tape.scratch({own.count, config_.width}, DType::f32);
  tape.ops().put(std::as_bytes(std::span(values)), rows.tensor());
  keep(tape, rows);
  return tape.input(rows.tensor());
}

void VisionEncoder::hold_key_biases(Tape& tape) {
  if (config_.key_bias || !context_.trained) return;
  tape.record_root([this, &tape] {  // recorded before the layers, so it runs after their backward passes
    for (const BlockWeights& layer : layers_) {
      const Tensor& gradient = layer.qkv.bias->gradient();
      const std::int64_t third = gradient.elements() / 3;
      tape.ops().zero(Tensor(gradient.data<float>() + third, DType::f32, Shape{third}));
    }
  });
}

Var VisionEncoder::embedded(Tape& tape, const Inputs& inputs, const Images& images) {
  if (config_.mels > 0) return convolved(tape, inputs, images);
  Var pixels = converted(tape, inputs["pixels"], tape.compute());
  if (config_.times > 1) {
    const std::int64_t rows = pixels.value().rows(), side = config_.patch;
    const Var channels = reshaped(tape, pixels, Shape{3 * rows, side * side});
    const Var frames = concat(tape, std::vector<Var>(static_cast<std::size_t>(config_.times), channels));
    pixels = reshaped(tape, frames, Shape{rows, config_.times * patch_columns(config_)});
  }
  const Var patches = linear(tape, pixels, *patch_embedding_.weight, patch_embedding_.bias);
  const ParallelContext& parallel = context_.parallel;
  const RowRange own = parallel.layout.rows(Sharding::rank_rows, images.layout(false).rows(), parallel.rank);
  if (config_.positions == PatchPositions::none) return converted(tape, patches, DType::f32);
  if (config_.positions == PatchPositions::interpolated) {
    return plus_entries(tape, converted(tape, patches, DType::f32), *first_table_, of_targets(images.rows->mix, own));
  }
  const SequenceLayout columns{.offsets = {}, .positions = images.second_of(own), .device_offsets = {}};
  const Var rows = embedding(tape, *first_table_, images.first_of(own), second_table_, columns);
  return add(tape, rows, patches);
}

Var VisionEncoder::arranged(Tape& tape, const Var& x, const Images& images,
                            const std::vector<std::int32_t>& rows) const {
  if (rows.empty()) return x;
  const ParallelContext& parallel = context_.parallel;
  const SequenceLayout& layout = images.layout(false);
  const RowRange own = parallel.layout.rows(Sharding::rank_rows, layout.rows(), parallel.rank);
  const Var all = all_gather_rows(tape, gathered(tape, x, parallel, layout), parallel.context_group, layout.rows());
  const auto first = static_cast<std::size_t>(own.first), count = static_cast<std::size_t>(own.count);
  return index_select(tape, all, tape.indices(std::span(rows).subspan(first, count)));
}

Stream VisionEncoder::incoming(Tape& tape, const Inputs& inputs, const Images& images) {
  if (!stage_.first()) return inputs[stream_name];
  Stream x = arranged(tape, embedded(tape, inputs, images), images, images.rows->order);
  if (config_.pre_norm) x = converted(tape, block_norm(tape, x, pre_norm_, block_.norm), DType::f32);
  return x;
}

Stream VisionEncoder::transformed(Tape& tape, Stream x, std::int64_t first, std::int64_t end,
                                  const Images& images) const {
  const auto run = [this, &tape, images, first](std::size_t from, std::size_t to, Stream before) {
    for (std::size_t at = from; at < to; ++at) {
      const std::int64_t layer = first + static_cast<std::int64_t>(at);
      const bool full = config_.window == 0 || std::ranges::binary_search(config_.full_layers, layer);
      const BlockWeights& weights = layers_[static_cast<std::size_t>(layer - stage_.first_layer)];
      before = transformer_block(tape, weights, block_, std::move(before), images.layout(!full));
    }
    return before;
  };
  return through_layers(tape, std::move(x), static_cast<std::size_t>(end - first), context_.recompute, run);
}

void VisionEncoder::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Images images = images_of(tape, inputs);
  images.keep_all(tape);
  hold_key_biases(tape);
  Stream x = incoming(tape, inputs, images);
  const auto features = [&](const Var& rows) {
    return arranged(tape, converted(tape, rows, context_.precision), images, images.rows->inverse);
  };
  std::int64_t first = stage_.first_layer;
  for (std::int64_t tap = 0; tap < std::ssize(config_.taps); ++tap) {
    const std::int64_t layer = config_.taps[static_cast<std::size_t>(tap)];
    if (!has_layer(layer)) continue;
    x = whole(tape, transformed(tape, std::move(x), first, layer + 1, images));
    outputs.set(tap_name("features", tap), features(x.sum));
    first = layer + 1;
  }
  x = transformed(tape, std::move(x), first, stage_.first_layer + stage_.layers, images);
  if (!stage_.last()) return outputs.set(stream_name, whole(tape, x));
  outputs.set("features", features(config_.last_norm ? block_norm(tape, x, final_norm_, block_.norm) : whole(tape, x)));
}

Cost VisionEncoder::cost(const SampleShape& sample) const {
  const VisionConfig here = part_of(config_, stage_.first_layer, stage_.layers);
  const double embedding = patch_flops(config_, sample), layers = vision_flops(here, sample) - embedding;
  Cost cost{layers + (stage_.first() ? embedding : 0), 0};
  cost.working = vision_working_bytes(config_, sample, context_.precision);
  if (!context_.trained) return cost;
  cost.bytes = vision_bytes(here, sample, context_.precision, context_.recompute);
  if (context_.recompute > 0) cost.recomputed = layers;
  return cost;
}

LayerCosts VisionEncoder::layer_costs(const SampleShape& sample) const {
  LayerCosts costs{{}, patch_flops(config_, sample), 0};
  for (std::int64_t layer = 0; layer < config_.run_layers(); ++layer) {
    costs.layers.push_back(vision_flops(part_of(config_, layer, 1), sample) - costs.before);
  }
  return costs;
}

std::vector<std::string> VisionEncoder::notes() const {
  const std::string note = note_on_grid(config_, pictures_);
  return note.empty() ? std::vector<std::string>() : std::vector<std::string>{note};
}

bool VisionEncoder::ignores(std::string_view stored_name) const {
  if (!stored_name.starts_with(model)) return true;
  const std::string_view name = stored_name.substr(std::string_view(model).size());
  if (name.starts_with("post_layernorm.")) return final_norm_.weight == nullptr;
  if (!stage_.first() && (name.starts_with("embeddings.") || name.starts_with("pre_layrnorm."))) return true;
  if (name.starts_with(layers_prefix)) {
    std::int64_t layer = 0;
    const std::string_view rest = name.substr(layers_prefix.size());
    std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    return !has_layer(layer) && layer < config_.layers;
  }
  return name.starts_with("head.") || name == "embeddings.position_ids";
}

ProductParameters VisionEncoder::products() {
  ProductParameters products{product_matrices(layers_)};
  if (!stage_.first()) return products;
  products.matrices.push_back(patch_embedding_.weight);
  if (second_convolution_.weight != nullptr) products.matrices.push_back(second_convolution_.weight);
  return products;
}

void VisionEncoder::freeze() {
  parameters_.freeze_packed(*context_.ops, context_.precision, products().matrices);
  frozen_ = true;
}

}  // namespace maestro
