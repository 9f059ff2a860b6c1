// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/projector.hpp"

#include <algorithm>

#include "runtime/collective/rank_part.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/ops/author_functions.hpp"
#include "sections/parallel_fit.hpp"
#include "sections/section_ranks.hpp"
#include "sections/vision/row_mix.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

constexpr Range size_range{.min = 1, .max = 1 << 20};
constexpr NumberRange positive{.min = 0.0, .min_open = true};
constexpr const char* newline_name = "image_newline";

/// Returns the width of the section that key `link` names, for a projector without the width. Throws JobError if the
/// section does not exist.
std::int64_t width_of(const JobTable& table, const JobTable& root, const char* key, const char* link,
                      std::int64_t (*read)(const JobTable&)) {
  const std::string other = table.text(link, link);
  if (root.has(other)) return read(root.table(other));
  table.fail(key, std::string("is not given and there is no section [") + other + "] to take it from; set " + key +
                      ", or " + link + " = \"NAME\" to that section");
}

/// Returns the mean of every `rows` consecutive rows in x (N rows, C): (N, C), in x's dtype.
Var pooled(Tape& tape, const Var& x, std::int64_t rows) {
  std::vector<std::int32_t> offsets;
  for (std::int64_t row = 0; row <= x.value().rows(); row += rows) offsets.push_back(static_cast<std::int32_t>(row));
  return converted(tape, mean_by_sample(tape, x, {.offsets = offsets}), x.value().dtype());
}

std::int64_t vision_width(const JobTable& table) {
  return read_vision_shape(table).width;
}
std::int64_t decoder_width(const JobTable& table) {
  return read_decoder_shape(table).width;
}

}  // namespace

Projector::Options Projector::Options::read(const JobTable& table, const JobTable& root, Modality modality) {
  const char* const link = modality == Modality::image ? "vision" : "audio";
  Options options;
  ProjectorConfig& config = options.projector;
  if (const std::string weights = read_weights_folder(table); !weights.empty()) {
    const auto stored = read_hf_projector_config(weights, modality);
    if (!stored) table.fail("weights", stored.error().message);
    config = *stored;
  }
  config.vision_width =
      table.integer("vision_width", config.vision_width, size_range,
                    {modality == Modality::image ? "columns of the input; absent: the width of section `vision`"
                                                 : "columns of the input; absent: section `audio` has them"});
  config.width = table.integer("width", config.width, size_range,
                               {"columns of the output; absent: the width of section `decoder`"});
  config.init_std =
      table.number("init_std", config.init_std, positive, {"the standard deviation of initial random values"});
  if (config.vision_width == 0) config.vision_width = width_of(table, root, "vision_width", link, vision_width);
  if (config.width == 0) config.width = width_of(table, root, "width", "decoder", decoder_width);
  const std::string vision = table.text(link, link, {"the section before the projector"});
  if (root.has(vision)) options.features = read_precision(root.table(vision));
  (void)table.text("decoder", "decoder", {"the section after the projector"});
  return options;
}

Projector::Projector(const SectionContext& context, const Options& options)
    : context_(context), config_(options.projector), features_(options.features.value_or(context.precision)) {
  if (config_.vision_width < 1 || config_.width < 1) {
    throw JobError(context.name + ": vision_width and width must be at least 1");
  }
  check_uncut(context.name, context.stage, "a projector has no layers to cut");
  const Layout& layout = context.parallel.layout;
  if (layout.context > 1 && changes_rows()) {
    throw JobError(context.name + ".context = " + std::to_string(layout.context) + ": a projector that " +
                   (config_.newline    ? "mixes rows"
                    : config_.join > 1 ? "joins rows"
                    : config_.pool > 1 ? "averages rows"
                                       : "drops class rows") +
                   " needs all rows of an image; set context = 1");
  }
  // Parts of the middle layer may differ in size, like parts of a vocabulary.
  if (!single()) check_parallel_fit(context.name, {.vocabulary = hidden(), .vocabulary_name = "a width"}, layout);
  build();
  context.allocate(parameters_);
}

void Projector::build() {
  const ParameterInit init(context_.seed, context_.name);
  ParameterBuilder add(parameters_, init, state_);
  if (single()) {
    const std::string name = "connector.modality_projection.proj";
    const Shape shape{config_.width, joined_columns()};
    main_.norm = norm(add, "connector.", config_.norm);
    main_.first.weight = &add.stored(add.matrix(name + ".weight", shape, config_.init_std), config_.transposed);
    if (config_.biases) main_.first.bias = &add.stored(add.vector(name + ".bias", config_.width, 0.0F));
    return;
  }
  main_ = branch(add, "multi_modal_projector.", config_.norm);
  for (std::int64_t tap = 0; tap < config_.taps; ++tap) {
    taps_.push_back(branch(add, "multi_modal_projector.taps." + std::to_string(tap) + ".", FeatureNorm::after_join));
  }
  if (config_.newline) newline_ = &add.vectors({newline_name}, config_.width, config_.init_std);
}

Affine Projector::norm(ParameterBuilder& add, const std::string& prefix, FeatureNorm norm) const {
  if (norm == FeatureNorm::none) return {};
  const std::int64_t size = norm == FeatureNorm::before_join ? config_.vision_width : joined_columns();
  if (!config_.rms_norm) return add.layer_norm(prefix + "norm", size);
  const float value = 1.0F - static_cast<float>(config_.norm_offset);
  return {&add.stored(add.vector(prefix + "norm.weight", size, value))};
}

Projector::Branch Projector::branch(ParameterBuilder& add, const std::string& prefix, FeatureNorm norm) const {
  const TensorCut cut(context_.parallel);
  Branch made;
  made.norm = this->norm(add, prefix, norm);
  made.first = add.product(prefix + "linear_1", Shape{hidden(), joined_columns()}, config_.init_std, config_.biases,
                           cut.rows(hidden()));
  made.second = add.product(prefix + "linear_2", Shape{config_.width, hidden()}, config_.init_std, config_.biases,
                            cut.columns(hidden()));
  return made;
}

Ports Projector::ports() const {
  Ports ports{{{"features", features_, config_.vision_width, true, false, Axis::patches, Sharding::rank_rows}},
              {{"visual", context_.precision, config_.width, true, false, Axis::visual, Sharding::rank_rows}}};
  for (std::int64_t tap = 0; tap < config_.taps; ++tap) {
    Port features = ports.inputs.front(), visual = ports.outputs.front();
    features.name = tap_name("features", tap);
    visual.name = tap_name("visual", tap);
    ports.inputs.push_back(std::move(features));
    ports.outputs.push_back(std::move(visual));
  }
  // Optional, so that only features decide about the axis.
  if (config_.drops_rest) {
    ports.inputs.push_back({"places", DType::i32, 3, false, true, Axis::patches, Sharding::replicated});
  }
  if (!config_.newline) return ports;
  const Port sources{"sources", DType::i32, row_mix_terms, false, true, Axis::visual, Sharding::replicated};
  Port weights = sources;
  weights.name = "weights";
  weights.dtype = DType::f32;
  ports.inputs.insert(ports.inputs.end(), {sources, weights});
  return ports;
}

std::vector<bool> Projector::used_of_sample(const Inputs& inputs, std::int64_t first, std::int64_t count) const {
  std::vector<bool> used(static_cast<std::size_t>(count), true);
  if (config_.tile_rows > 0) {
    for (std::int64_t row = 0; row < count; row += config_.tile_rows) used[static_cast<std::size_t>(row)] = false;
  }
  if (!config_.drops_rest) return used;
  const std::int32_t* tiles = inputs.host("places").data<std::int32_t>() + first * 3;
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    while (end < count && tiles[end * 3] == tiles[begin * 3]) ++end;
    const std::int64_t rest = (end - begin) % config_.pool;
    std::fill(used.begin() + (end - rest), used.begin() + end, false);
  }
  return used;
}

std::vector<std::int32_t> Projector::used_rows(const Inputs& inputs) const {
  if (config_.drops_rest && !inputs.has("places")) {
    throw JobError(context_.name + ": nothing is connected to places, but the model drops rows at a tile's end");
  }
  const auto rows = inputs.lengths(Axis::patches);
  const auto expected = inputs.lengths(Axis::visual);
  std::vector<std::int32_t> used;
  std::int32_t row = 0;
  for (std::size_t sample = 0; sample < rows.size(); ++sample) {
    const std::size_t before = used.size();
    for (const bool is_used : used_of_sample(inputs, row, rows[sample])) {
      if (is_used) used.push_back(row);
      ++row;
    }
    const bool whole = config_.tile_rows == 0 || rows[sample] % config_.tile_rows == 0;
    const auto kept = static_cast<std::int64_t>(used.size() - before);
    if (whole && kept == expected[sample] * config_.join * config_.pool) continue;
    throw JobError(context_.name + ": sample " + std::to_string(inputs.samples()[sample].value()) + " has " +
                   std::to_string(rows[sample]) + " rows of features for " + std::to_string(expected[sample]) +
                   " rows of the decoder" +
                   (config_.tile_rows > 0 ? ", but a tile has " + std::to_string(config_.tile_rows) + " rows" : "") +
                   (block() > 1 ? ", but " + std::to_string(block()) + " features make one row" : "") +
                   "; image settings and model disagree");
  }
  return used;
}

Var Projector::joined(Tape& tape, const Var& features, const Inputs& inputs) const {
  const ParallelContext& parallel = context_.parallel;
  std::vector<std::int32_t> used = used_rows(inputs);
  if (single() && parallel.tensor_group != nullptr) {
    const RowRange own = rank_part(static_cast<std::int64_t>(used.size()) / block(), *parallel.tensor_group);
    const auto first = used.begin() + own.first * block();
    used = {first, first + own.count * block()};
  }
  const bool all = static_cast<std::int64_t>(used.size()) == features.value().rows();
  Var x = all ? features : index_select(tape, features, tape.indices(used));
  if (config_.pool > 1) {
    x = pooled(tape, x, config_.pool);
    if (config_.norm == FeatureNorm::before_join) x = normed(tape, x, main_.norm);
  }
  if (config_.join == 1) return x;
  return reshaped(tape, x, Shape{x.value().rows() / config_.join, joined_columns()});
}

Var Projector::normed(Tape& tape, const Var& x, const Affine& norm) const {
  if (norm.bias == nullptr) return rms_norm(tape, x, *norm.weight, config_.norm_epsilon, config_.norm_offset);
  return layer_norm(tape, x, *norm.weight, *norm.bias, config_.norm_epsilon);
}

Var Projector::taken(Tape& tape, const Inputs& inputs, const std::string& port, const Branch& branch,
                     FeatureNorm norm) const {
  Var x = converted(tape, inputs[port], tape.compute());
  if (norm == FeatureNorm::before_join && config_.pool == 1) x = normed(tape, x, branch.norm);
  if (changes_rows() || !single()) x = gathered(tape, x, context_.parallel, inputs.layout(Axis::patches));
  if (changes_rows() && !config_.newline) x = joined(tape, x, inputs);
  return norm == FeatureNorm::after_join ? normed(tape, x, branch.norm) : x;
}

Var Projector::projected(Tape& tape, const Var& x, const Branch& branch) const {
  const Var middle = gelu(tape, linear(tape, x, branch.first), config_.activation);
  // The bias must enter the sum over the group once.
  return linear(tape, middle, *branch.second.weight, context_.parallel.tensor() == 0 ? branch.second.bias : nullptr);
}

void Projector::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Var x = taken(tape, inputs, "features", main_, config_.norm);
  if (single()) return outputs.set("visual", linear(tape, x, main_.first));
  Communicator* const group = context_.parallel.tensor_group;
  const Var parts = projected(tape, x, main_);
  outputs.set("visual", config_.newline ? mixed_rows(tape, parts, inputs) : reduce_scatter_rows(tape, parts, group));
  std::int64_t tap = 0;
  for (const Branch& own : taps_) {
    const Var features = taken(tape, inputs, tap_name("features", tap), own, FeatureNorm::after_join);
    outputs.set(tap_name("visual", tap++), reduce_scatter_rows(tape, projected(tape, features, own), group));
  }
}

Var Projector::mixed_rows(Tape& tape, const Var& parts, const Inputs& inputs) {
  const ParallelContext& parallel = context_.parallel;
  for (const char* port : {"sources", "weights"}) {
    if (!inputs.has(port)) {
      throw JobError(context_.name + ": nothing is connected to " + port + ", but the model mixes rows of features");
    }
  }
  const RowRange own = parallel.layout.rows(Sharding::rank_rows, inputs.layout(Axis::visual).rows(), parallel.rank);
  const RowMix mix = read_row_mix(context_.name, inputs, own);
  const Var x = all_gather_rows(tape, reduce_scatter_rows(tape, parts, parallel.tensor_group), parallel.tensor_group,
                                inputs.layout(Axis::patches).rows());
  return converted(tape, mixed(tape, x, *newline_, mix), context_.precision);
}

Cost Projector::cost(const SampleShape& sample) const {
  const auto rows = static_cast<double>(config_.newline ? sample.patches : sample.visual);
  const auto width = static_cast<double>(config_.width);
  const auto columns = static_cast<double>(joined_columns());
  const auto element = static_cast<double>(size_of(context_.precision));
  const auto middle = static_cast<double>(single() ? config_.width : hidden());
  const auto branches = static_cast<double>(1 + config_.taps);
  Cost cost{branches * 2.0 * rows * middle * (columns + (single() ? 0 : width)), 0};
  cost.working = rows * 2.0 * std::max(width, middle) * element;
  if (context_.trained || context_.passes_gradient) {
    // The result; before and after GELU; the features normed, without class rows, as means, and side by side.
    const int copies = (config_.norm != FeatureNorm::none ? 1 : 0) + (config_.tile_rows > 0 ? 1 : 0) +
                       (config_.pool > 1 ? 1 : 0) + (config_.join > 1 ? 1 : 0);
    const double kept = width + (single() ? 0.0 : 2.0) * middle + copies * columns;
    cost.bytes = branches * rows * kept * element;
    // The terms of a mix, about one a row, and their sums.
    if (config_.newline) cost.bytes += static_cast<double>(sample.visual) * width * (2.0 * element + sizeof(float));
  }
  return cost;
}

bool Projector::ignores(std::string_view stored_name) const {
  const bool own = stored_name.starts_with(single() ? "connector." : "multi_modal_projector.");
  return !own && !(config_.newline && stored_name == newline_name);
}

ProductParameters Projector::products() {
  ProductParameters products{{main_.first.weight}};
  if (!single()) products.matrices.push_back(main_.second.weight);
  for (const Branch& tap : taps_) {
    products.matrices.insert(products.matrices.end(), {tap.first.weight, tap.second.weight});
  }
  return products;
}

void Projector::freeze() {
  parameters_.freeze_packed(*context_.ops, context_.precision, products().matrices, context_.passes_gradient);
  frozen_ = true;
}

}  // namespace maestro
