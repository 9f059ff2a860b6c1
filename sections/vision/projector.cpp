// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/projector.hpp"

#include "runtime/core/result.hpp"
#include "runtime/job/job_reader.hpp"
#include "sections/parallel_fit.hpp"
#include "sections/section_ranks.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

constexpr Range size_range{.min = 1, .max = 1 << 20};
constexpr NumberRange positive{.min = 0.0, .min_open = true};

/// Returns the width of the section that key `link` names, for a projector without the width. Throws JobError if the
/// section does not exist.
std::int64_t width_of(const JobTable& table, const JobTable& root, const char* key, const char* link,
                      std::int64_t (*read)(const JobTable&)) {
  const std::string other = table.text(link, link);
  if (root.has(other)) return read(root.table(other));
  table.fail(key, std::string("is not given and there is no section [") + other + "] to take it from; set " + key +
                      ", or " + link + " = \"NAME\" to that section");
}

std::int64_t vision_width(const JobTable& table) {
  return read_vision_shape(table).width;
}
std::int64_t decoder_width(const JobTable& table) {
  return read_decoder_shape(table).width;
}

}  // namespace

Projector::Options Projector::Options::read(const JobTable& table, const JobTable& root) {
  Options options;
  ProjectorConfig& config = options.projector;
  if (const std::string weights = read_weights_folder(table); !weights.empty()) {
    const auto stored = read_hf_projector_config(weights);
    if (!stored) table.fail("weights", stored.error().message);
    config = *stored;
  }
  config.vision_width = table.integer("vision_width", config.vision_width, size_range,
                                      {"columns of the input; absent: the width of section `vision`"});
  config.width = table.integer("width", config.width, size_range,
                               {"columns of the output; absent: the width of section `decoder`"});
  config.init_std =
      table.number("init_std", config.init_std, positive, {"the standard deviation of initial random values"});
  if (config.vision_width == 0) config.vision_width = width_of(table, root, "vision_width", "vision", vision_width);
  if (config.width == 0) config.width = width_of(table, root, "width", "decoder", decoder_width);
  const std::string vision = table.text("vision", "vision", {"the section before the projector"});
  if (root.has(vision)) options.features = read_precision(root.table(vision));
  (void)table.text("decoder", "decoder", {"the section after the projector"});
  return options;
}

Projector::Projector(const SectionContext& context, const Options& options)
    : context_(context), config_(options.projector), features_(options.features.value_or(context.precision)) {
  if (config_.vision_width < 1 || config_.width < 1) {
    throw JobError(context.name + ": vision_width and width must be at least 1");
  }
  const ProjectorConfig usual;
  if (config_.join != 1 || config_.products != 2 || config_.activation != usual.activation || !config_.biases ||
      config_.tile_rows != 0 || config_.newline) {
    throw JobError(context.name + ": only two products with biases and a tanh GELU are supported");
  }
  check_uncut(context.name, context.stage, "a projector has no layers to cut");
  // Parts of the middle layer may differ in size, like parts of a vocabulary.
  const CutSizes sizes{.vocabulary = config_.width, .vocabulary_name = "a width"};
  check_parallel_fit(context.name, sizes, context.parallel.layout);
  const ParameterInit init(context.seed, context.name);
  const TensorCut cut(context.parallel);
  ParameterBuilder add(parameters_, init, state_);
  const std::string name = "multi_modal_projector.linear_";
  first_ = add.linear(name + "1", Shape{config_.width, config_.vision_width}, config_.init_std, false,
                      cut.rows(config_.width));
  second_ =
      add.linear(name + "2", Shape{config_.width, config_.width}, config_.init_std, false, cut.columns(config_.width));
  context.allocate(parameters_);
}

Ports Projector::ports() const {
  return {{{"features", features_, config_.vision_width, true, false, Axis::patches, Sharding::rank_rows}},
          {{"visual", context_.precision, config_.width, true, false, Axis::visual, Sharding::rank_rows}}};
}

void Projector::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const ParallelContext& parallel = context_.parallel;
  Var x = converted(tape, inputs["features"], tape.compute());
  x = gathered(tape, x, parallel, inputs.layout(Axis::patches));
  x = gelu(tape, linear(tape, x, *first_.weight, first_.bias));
  // The bias must enter the sum over the group once.
  x = linear(tape, x, *second_.weight, parallel.tensor() == 0 ? second_.bias : nullptr);
  outputs.set("visual", reduce_scatter_rows(tape, x, parallel.tensor_group));
}

Cost Projector::cost(const SampleShape& sample) const {
  const auto patches = static_cast<double>(sample.patches);
  const auto width = static_cast<double>(config_.width);
  Cost cost{2.0 * patches * width * (static_cast<double>(config_.vision_width) + width), 0};
  cost.working = patches * 2.0 * width * static_cast<double>(size_of(context_.precision));
  if (context_.trained || context_.passes_gradient) {
    // Before and after GELU, and the result.
    cost.bytes = patches * 3.0 * width * static_cast<double>(size_of(context_.precision));
  }
  return cost;
}

bool Projector::ignores(std::string_view stored_name) const {
  return !stored_name.starts_with("multi_modal_projector.");
}

void Projector::freeze() {
  parameters_.freeze_packed(*context_.ops, context_.precision, products().matrices, context_.passes_gradient);
  frozen_ = true;
}

}  // namespace maestro
