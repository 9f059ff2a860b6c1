// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/vision_encoder.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/result.hpp"
#include "sections/parallel_fit.hpp"
#include "sections/section_ranks.hpp"

namespace maestro {

namespace {

constexpr const char* model = "vision_model.";

VisionConfig checked(const SectionContext& context, const VisionEncoder::Options& options) {
  VisionConfig config = resolved(options.vision, options.data);
  check_vision(context.name, config, options.data);
  check_parallel_fit(context.name, {.heads = config.heads, .ffn = config.ffn}, context.parallel.layout);
  check_uncut(context.name, context.stage, "a vision_encoder cannot be cut into stages");
  return config;
}

/// A patch's entry in `places`.
struct Place {
  std::int32_t image, row, column;
};

std::span<const Place> places_of(const Tensor& places) {
  static_assert(sizeof(Place) == 3 * sizeof(std::int32_t));
  return {reinterpret_cast<const Place*>(places.data<std::int32_t>()), static_cast<std::size_t>(places.rows())};
}

/// Returns the offsets of a micro-batch's images, with the number of patches as the last: VE-1.
std::vector<std::int32_t> image_offsets(std::span<const Place> places, const SequenceLayout& samples) {
  std::vector<std::int32_t> offsets{0};
  for (std::size_t sample = 0; sample + 1 < samples.offsets.size(); ++sample) {
    const std::int32_t first = samples.offsets[sample], end = samples.offsets[sample + 1];
    for (std::int32_t patch = first; patch < end; ++patch) {
      const bool last = patch + 1 == end;
      if (last || places[static_cast<std::size_t>(patch) + 1].image != places[static_cast<std::size_t>(patch)].image) {
        offsets.push_back(patch + 1);
      }
    }
  }
  return offsets;
}

/// Returns an image's grid. Throws JobError with the prefix `where` for a negative place.
PatchGrid grid_of(std::span<const Place> image, const std::string& where) {
  PatchGrid grid;
  for (const Place& place : image) {
    if (place.row < 0 || place.column < 0) throw JobError(where + "has a patch at a negative row or column");
    grid.rows = std::max<std::int64_t>(grid.rows, place.row + 1);
    grid.columns = std::max<std::int64_t>(grid.columns, place.column + 1);
  }
  return grid;
}

}  // namespace

struct VisionEncoder::Images {
  std::shared_ptr<const std::vector<std::int32_t>> offsets;  // images + 1; shared with the recorded backward pass
  Block device_offsets;                                      // the same for the table
  Block first_index;                                         // (P) i32: index in the learned table, or the row table
  Block second_index;                                        // (P) i32: index in the column table
  [[nodiscard]] SequenceLayout layout() const {
    return {*offsets, second_index.tensor().span<std::int32_t>(), device_offsets.tensor().span<std::int32_t>()};
  }
  void keep_all(Tape& tape) const {
    keep(tape, offsets);
    for (const Block& memory : {device_offsets, first_index, second_index}) keep(tape, memory);
  }
  /// Returns the entries of the patches `rows`.
  [[nodiscard]] Tensor first_of(const RowRange& rows) const {
    return {first_index.tensor().data<std::int32_t>() + rows.first, DType::i32, Shape{rows.count}};
  }
  [[nodiscard]] std::span<const std::int32_t> second_of(const RowRange& rows) const {
    return layout().positions.subspan(static_cast<std::size_t>(rows.first), static_cast<std::size_t>(rows.count));
  }
};

VisionEncoder::VisionEncoder(const SectionContext& context, const Options& options)
    : context_(context), config_(checked(context, options)), pictures_(options.data.pictures) {
  const ParallelContext& parallel = context.parallel;
  const std::int64_t heads = config_.heads / parallel.layout.tensor;
  block_.attention.shape = {heads, heads, config_.width / config_.heads, false};
  block_.tensor_group = parallel.tensor_group;
  block_.context_group = parallel.context_group;
  block_.norm.epsilon = config_.norm_epsilon;
  check_attention(context, block_.attention.shape);
  build();
  context.allocate(parameters_);
}

void VisionEncoder::build() {
  const ParameterInit init(context_.seed, context_.name);
  ParameterBuilder add(parameters_, init, state_);
  const std::string embeddings = std::string(model) + "embeddings.";
  const auto table = [&](const std::string& name, std::int64_t entries) {
    return &add.stored(add.matrix(embeddings + name, Shape{entries, config_.width}, config_.init_std));
  };
  // A convolution's kernel with a stride equal to its size.
  patch_embedding_ = add.linear(embeddings + "patch_embedding", Shape{config_.width, 3, config_.patch, config_.patch},
                                config_.init_std);
  if (config_.positions == PatchPositions::learned) {
    positions_ = table("position_embedding.weight", config_.max_patches);
  } else {
    rows_ = table("row_embedding.weight", config_.max_grid);
    columns_ = table("column_embedding.weight", config_.max_grid);
  }
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    layers_.push_back(layer(add, std::string(model) + "encoder.layers." + std::to_string(i) + "."));
  }
  final_norm_ = add.layer_norm(std::string(model) + "post_layernorm", config_.width);
}

BlockWeights VisionEncoder::layer(ParameterBuilder& add, const std::string& prefix) const {
  const std::int64_t width = config_.width;
  const double residual = config_.init_std / std::sqrt(2.0 * static_cast<double>(config_.layers));
  const TensorCut cut(context_.parallel);
  const ParameterSlice heads = cut.stacked({width, width, width});
  BlockWeights weights;
  weights.attention_norm = add.layer_norm(prefix + "layer_norm1", width);
  weights.qkv.weight =
      &add.matrix(prefix + "self_attn.qkv_proj.weight", Shape{3 * width, width}, config_.init_std, heads);
  weights.qkv.bias = &add.vector(prefix + "self_attn.qkv_proj.bias", 3 * width, 0.0f, heads);
  std::int64_t first = 0;
  for (const char* projection : {"q_proj", "k_proj", "v_proj"}) {
    add.stored_rows(prefix + "self_attn." + projection + ".weight", *weights.qkv.weight, first, width);
    add.stored_rows(prefix + "self_attn." + projection + ".bias", *weights.qkv.bias, first, width);
    first += width;
  }
  weights.attention_out =
      add.linear(prefix + "self_attn.out_proj", Shape{width, width}, residual, false, cut.columns(width));
  weights.ffn_norm = add.layer_norm(prefix + "layer_norm2", width);
  weights.ffn_in =
      add.linear(prefix + "mlp.fc1", Shape{config_.ffn, width}, config_.init_std, false, cut.rows(config_.ffn));
  weights.ffn_out =
      add.linear(prefix + "mlp.fc2", Shape{width, config_.ffn}, residual, false, cut.columns(config_.ffn));
  return weights;
}

Ports VisionEncoder::ports() const {
  // An image's begin and width require the places of all its patches, 12 bytes each.
  return {{{"pixels", DType::f32, patch_columns(config_), false, false, Axis::patches, Sharding::rank_rows},
           {"places", DType::i32, 3, false, false, Axis::patches, Sharding::replicated}},
          {{"features", context_.precision, config_.width, true, false, Axis::patches, Sharding::rank_rows}}};
}

VisionEncoder::Images VisionEncoder::images_of(Tape& tape, const Inputs& inputs) const {
  const std::span<const Place> places = places_of(inputs.host("places"));
  const SequenceLayout& samples = inputs.layout(Axis::patches);
  const std::vector<std::int32_t> offsets = image_offsets(places, samples);
  std::vector<std::int32_t> first(places.size());
  std::vector<std::int32_t> second(places.size());
  std::size_t sample = 0;
  for (std::size_t image = 0; image + 1 < offsets.size(); ++image) {
    const auto begin = static_cast<std::size_t>(offsets[image]), end = static_cast<std::size_t>(offsets[image + 1]);
    while (samples.offsets[sample + 1] <= offsets[image]) ++sample;
    const std::string where = context_.name + ": sample " + std::to_string(inputs.samples()[sample].value()) +
                              ": image " + std::to_string(places[begin].image) + " ";
    const PatchGrid grid = grid_of(places.subspan(begin, end - begin), where);
    check_grid(config_, grid, where + "has ");
    const auto columns = static_cast<std::int32_t>(config_.columns > 0 ? config_.columns : grid.columns);
    for (std::size_t patch = begin; patch < end; ++patch) {
      const bool learned = config_.positions == PatchPositions::learned;
      first[patch] = learned ? places[patch].row * columns + places[patch].column : places[patch].row;
      second[patch] = places[patch].column;
    }
  }
  return {std::make_shared<const std::vector<std::int32_t>>(offsets), tape.indices(offsets), tape.indices(first),
          tape.indices(second)};
}

Var VisionEncoder::embedded(Tape& tape, const Inputs& inputs, const Images& images) {
  const Var pixels = converted(tape, inputs["pixels"], tape.compute());
  const Var patches = linear(tape, pixels, *patch_embedding_.weight, patch_embedding_.bias);
  Parameter& table = positions_ != nullptr ? *positions_ : *rows_;
  const ParallelContext& parallel = context_.parallel;
  const RowRange own = parallel.layout.rows(Sharding::rank_rows, images.layout().rows(), parallel.rank);
  const SequenceLayout columns{.offsets = {}, .positions = images.second_of(own), .device_offsets = {}};
  const Var positions = embedding(tape, table, images.first_of(own), columns_, columns);
  return add(tape, positions, patches);
}

void VisionEncoder::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Images images = images_of(tape, inputs);
  images.keep_all(tape);
  Stream x = embedded(tape, inputs, images);
  for (const BlockWeights& weights : layers_)
    x = transformer_block(tape, weights, block_, std::move(x), images.layout());
  outputs.set("features", block_norm(tape, x, final_norm_, block_.norm));
}

Cost VisionEncoder::cost(const SampleShape& sample) const {
  Cost cost{vision_flops(config_, sample), 0};
  cost.working = vision_working_bytes(config_, sample, context_.precision);
  if (context_.trained) cost.bytes = vision_bytes(config_, sample, context_.precision);
  return cost;
}

std::vector<std::string> VisionEncoder::notes() const {
  const std::string note = note_on_grid(config_, pictures_);
  return note.empty() ? std::vector<std::string>() : std::vector<std::string>{note};
}

bool VisionEncoder::ignores(std::string_view stored_name) const {
  return !stored_name.starts_with(model) || stored_name.starts_with("vision_model.head.") ||
         stored_name == "vision_model.embeddings.position_ids";
}

ProductParameters VisionEncoder::products() {
  ProductParameters products{product_matrices(layers_)};
  products.matrices.push_back(patch_embedding_.weight);
  return products;
}

void VisionEncoder::freeze() {
  parameters_.freeze_packed(*context_.ops, context_.precision, products().matrices);
  frozen_ = true;
}

}  // namespace maestro
