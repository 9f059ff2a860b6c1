// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/vision_encoder.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

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

bool is_class_row(const Place& place) {
  return place.row == -1 && place.column == -1;
}

/// Returns an image's grid. Throws JobError with the prefix `where` for a negative place, except for class rows.
PatchGrid grid_of(std::span<const Place> image, bool class_row, const std::string& where) {
  PatchGrid grid;
  for (const Place& place : image) {
    if (class_row && is_class_row(place)) continue;
    if (place.row < 0 || place.column < 0) throw JobError(where + "has a patch at a negative row or column");
    grid.rows = std::max<std::int64_t>(grid.rows, place.row + 1);
    grid.columns = std::max<std::int64_t>(grid.columns, place.column + 1);
  }
  return grid;
}

/// Checks VE-4 for an image whose grid is the table's.
void check_rows(std::span<const Place> image, const VisionConfig& config, const std::string& where) {
  std::vector<bool> seen(static_cast<std::size_t>(config.max_patches) + 1);
  for (const Place& place : image) {
    const auto entry = is_class_row(place) ? config.max_patches : place.row * config.columns + place.column;
    if (seen[static_cast<std::size_t>(entry)]) {
      throw JobError(where + "has two rows for the place " + std::to_string(place.row) + ", " +
                     std::to_string(place.column));
    }
    seen[static_cast<std::size_t>(entry)] = true;
  }
  const auto rows = static_cast<std::size_t>(config.max_patches + (config.class_row ? 1 : 0));
  if (image.size() == rows) return;
  throw JobError(where + "has " + std::to_string(image.size()) + " rows, but the model takes " + std::to_string(rows) +
                 (config.class_row ? ", a class row among them" : ""));
}

}  // namespace

struct VisionEncoder::Images {
  std::shared_ptr<const std::vector<std::int32_t>> offsets;  // images + 1; shared with the recorded backward pass
  Block device_offsets;                                      // the same for the table
  Block first_index;                                         // (P) i32: entry in the first table; -1: none
  Block second_index;                                        // (P) i32: entry in the second table
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
  block_.activation = config_.activation;
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
  const std::string patch = embeddings + "patch_embedding";
  const Shape kernel{config_.width, 3, config_.patch, config_.patch};
  patch_embedding_.weight = &add.stored(add.matrix(patch + ".weight", kernel, config_.init_std));
  if (config_.class_row) {
    std::vector<std::string> kinds{embeddings + "class_embedding"};
    if (config_.patch_bias) kinds.push_back(patch + ".bias");
    first_table_ = &add.vectors(kinds, config_.width, config_.init_std);
    second_table_ = table("position_embedding.weight", config_.max_patches + 1);
  } else if (config_.positions == PatchPositions::learned) {
    first_table_ = table("position_embedding.weight", config_.max_patches);
  } else {
    first_table_ = table("row_embedding.weight", config_.max_grid);
    second_table_ = table("column_embedding.weight", config_.max_grid);
  }
  if (config_.patch_bias && !config_.class_row) {
    patch_embedding_.bias = &add.stored(add.vector(patch + ".bias", config_.width, 0.0f));
  }
  const auto norm = [&](const char* name) { return add.layer_norm(std::string(model) + name, config_.width); };
  if (config_.pre_norm) pre_norm_ = norm("pre_layrnorm");  // as CLIP spells it
  for (std::int64_t i = 0; i < config_.run_layers(); ++i) {
    layers_.push_back(layer(add, std::string(model) + "encoder.layers." + std::to_string(i) + "."));
  }
  if (config_.last_norm) final_norm_ = norm("post_layernorm");
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
    const std::span<const Place> rows = places.subspan(begin, end - begin);
    const PatchGrid grid = grid_of(rows, config_.class_row, where);
    if (config_.whole_tiles) check_whole_tile(config_, grid, where + "has ");
    check_grid(config_, grid, where + "has ");
    if (config_.whole_tiles) check_rows(rows, config_, where);
    const std::int64_t columns = config_.columns > 0 ? config_.columns : grid.columns;
    for (std::size_t at = begin; at < end; ++at) {
      std::tie(first[at], second[at]) = entries_of(places[at].row, places[at].column, columns);
    }
  }
  return {std::make_shared<const std::vector<std::int32_t>>(offsets), tape.indices(offsets), tape.indices(first),
          tape.indices(second)};
}

std::pair<std::int32_t, std::int32_t> VisionEncoder::entries_of(std::int32_t row, std::int32_t column,
                                                                std::int64_t columns) const {
  if (config_.positions == PatchPositions::grid) return {row, column};
  const auto position = static_cast<std::int32_t>(row * columns + column);
  if (!config_.class_row) return {position, 0};
  if (row < 0) return {0, 0};
  return {config_.patch_bias ? 1 : -1, position + 1};
}

Var VisionEncoder::embedded(Tape& tape, const Inputs& inputs, const Images& images) {
  const Var pixels = converted(tape, inputs["pixels"], tape.compute());
  const Var patches = linear(tape, pixels, *patch_embedding_.weight, patch_embedding_.bias);
  const ParallelContext& parallel = context_.parallel;
  const RowRange own = parallel.layout.rows(Sharding::rank_rows, images.layout().rows(), parallel.rank);
  const SequenceLayout columns{.offsets = {}, .positions = images.second_of(own), .device_offsets = {}};
  const Var rows = embedding(tape, *first_table_, images.first_of(own), second_table_, columns);
  return add(tape, rows, patches);
}

void VisionEncoder::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Images images = images_of(tape, inputs);
  images.keep_all(tape);
  Stream x = embedded(tape, inputs, images);
  if (config_.pre_norm) x = converted(tape, block_norm(tape, x, pre_norm_, block_.norm), DType::f32);
  const auto run = [this, &tape, layout = images.layout()](std::size_t first, std::size_t end, Stream before) {
    for (; first < end; ++first) {
      before = transformer_block(tape, layers_[first], block_, std::move(before), layout);
    }
    return before;
  };
  x = stacked(tape, std::move(x), layers_.size(), context_.recompute, run);
  outputs.set("features", config_.last_norm ? block_norm(tape, x, final_norm_, block_.norm)
                                            : converted(tape, whole(tape, x), context_.precision));
}

Cost VisionEncoder::cost(const SampleShape& sample) const {
  Cost cost{vision_flops(config_, sample), 0};
  cost.working = vision_working_bytes(config_, sample, context_.precision);
  if (!context_.trained) return cost;
  cost.bytes = vision_bytes(config_, sample, context_.precision, context_.recompute);
  if (context_.recompute > 0) cost.recomputed = cost.flops - patch_flops(config_, sample);
  return cost;
}

std::vector<std::string> VisionEncoder::notes() const {
  const std::string note = note_on_grid(config_, pictures_);
  return note.empty() ? std::vector<std::string>() : std::vector<std::string>{note};
}

bool VisionEncoder::ignores(std::string_view stored_name) const {
  if (!stored_name.starts_with(model)) return true;
  const std::string_view name = stored_name.substr(std::string_view(model).size());
  if (!config_.last_norm && name.starts_with("post_layernorm.")) return true;
  constexpr std::string_view layers = "encoder.layers.";
  if (name.starts_with(layers)) {
    std::int64_t layer = 0;
    const std::string_view rest = name.substr(layers.size());
    std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    return layer >= config_.run_layers() && layer < config_.layers;
  }
  return name.starts_with("head.") || name == "embeddings.position_ids";
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
