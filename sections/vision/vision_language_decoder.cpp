#include "sections/vision/vision_language_decoder.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "sections/vision/projector.hpp"

namespace maestro {

namespace {

constexpr std::int64_t logits_block_rows = 64;  // logits held at once: rows x vocabulary x 4 bytes

std::span<const std::int32_t> integers(const Tensor& tensor) {
  return tensor.span<std::int32_t>();
}

Block block_of(Tape& tape, std::span<const std::int32_t> values) {
  Block block = tape.scratch({static_cast<std::int64_t>(values.size())}, DType::i32);
  std::ranges::copy(values, block.tensor().data<std::int32_t>());
  return block;
}

/// Row numbers at which `chosen` holds, in order.
template <class Chosen>
std::vector<std::int32_t> rows_where(std::span<const std::int32_t> values, Chosen chosen) {
  std::vector<std::int32_t> rows;
  for (std::size_t row = 0; row < values.size(); ++row) {
    if (chosen(values[row])) rows.push_back(static_cast<std::int32_t>(row));
  }
  return rows;
}

std::int32_t rows_of_sample(const SequenceLayout& layout, std::size_t sample) {
  return sample + 1 < layout.offsets.size() ? layout.offsets[sample + 1] - layout.offsets[sample] : 0;
}

/// VD-1 holds only if every sample brings as many rows as it has image tokens.
void check_images(const std::string& section, const Inputs& inputs, std::span<const std::int32_t> tokens) {
  const SequenceLayout& layout = inputs.layout();
  for (std::size_t sample = 0; sample < inputs.samples().size(); ++sample) {
    const auto begin = tokens.begin() + layout.offsets[sample], end = tokens.begin() + layout.offsets[sample + 1];
    const auto marked = std::count(begin, end, image_token);
    const auto brought = inputs.has("visual") ? rows_of_sample(inputs.layout(Axis::patches), sample) : 0;
    if (marked == brought) continue;
    throw JobError(section + ": sample " + std::to_string(inputs.samples()[sample].value()) + " has " +
                   std::to_string(marked) + " image tokens, but its images bring " + std::to_string(brought) +
                   " rows; the data source and the vision section must use the same patches");
  }
}

}  // namespace

VisionLanguageDecoder::Options VisionLanguageDecoder::Options::read(const JobTable& table, const JobTable& root) {
  Options options;
  options.decoder = read_decoder_shape(table);
  const std::string projector = table.text("projector", "projector");
  if (root.has(projector)) options.visual = read_precision(root.table(projector));
  return options;
}

VisionLanguageDecoder::VisionLanguageDecoder(const SectionContext& context, const Options& options)
    : DecoderSection(context, options.decoder, options.data, OutputLayer::own_or_tied),
      visual_(options.visual.value_or(context.precision)) {}

Ports VisionLanguageDecoder::ports() const {
  return {{tokens_port, targets_port, {"visual", visual_, decoder().width, true, true, Axis::patches}}, {}};
}

Cost VisionLanguageDecoder::cost(const SampleShape& sample) const {
  const DecoderConfig& config = decoder();
  const auto width = static_cast<double>(config.width);
  const double ffn_products = config.family == "llama" ? 3 : 2;
  Cost cost = decoder_cost(sample);
  cost.flops -= head_flops(sample.patches, config.width, config.vocabulary);
  // The last layer's attention output and feed-forward network.
  cost.flops -=
      2.0 * static_cast<double>(sample.patches) * width * (width + ffn_products * static_cast<double>(config.ffn));
  return cost;
}

Var VisionLanguageDecoder::embedded(Tape& tape, const Inputs& inputs) {
  const Tensor& tokens = inputs["tokens"].value();
  check_images(context().name, inputs, integers(tokens));
  Var x = stack().embedded(tape, tokens, inputs.layout());
  const auto marked = rows_where(integers(tokens), [](std::int32_t token) { return token == image_token; });
  if (marked.empty()) return x;
  return add_rows(tape, x, inputs["visual"], block_of(tape, marked));
}

Var VisionLanguageDecoder::states(Tape& tape, const Inputs& inputs, const Block& wanted) {
  const Var x = embedded(tape, inputs);
  return stack().normed(tape, stack().transformed(tape, x, inputs.layout(), wanted));
}

void VisionLanguageDecoder::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Tensor all_targets = targets_of(inputs);
  const auto rows = rows_where(integers(all_targets), [](std::int32_t target) { return target >= 0; });
  if (rows.empty()) {  // VD-3: nothing to learn and nothing to measure
    outputs.losses(LossSums(), false);
    if (inputs.pass() == Pass::evaluate) outputs.metric("exact_match", 0, 0);
    return;
  }
  const bool some = static_cast<std::int64_t>(rows.size()) < all_targets.elements();  // VD-2
  const Block wanted = some ? block_of(tape, rows) : Block();
  const Var hidden = states(tape, inputs, wanted);
  Tensor targets = all_targets;
  Block chosen;
  if (some) {
    chosen = tape.scratch({static_cast<std::int64_t>(rows.size())}, DType::i32);
    targets = chosen.tensor();
    std::ranges::transform(rows, targets.data<std::int32_t>(),
                           [&](std::int32_t row) { return integers(all_targets)[static_cast<std::size_t>(row)]; });
  }
  outputs.losses(cross_entropy_loss(tape, hidden, head(), {&targets, inputs.loss_scale()}), false);
  if (inputs.pass() == Pass::evaluate) put_exact_match(tape, inputs, hidden, rows, outputs);
}

void VisionLanguageDecoder::put_exact_match(Tape& tape, const Inputs& inputs, const Var& states,
                                            std::span<const std::int32_t> rows, Outputs& outputs) {
  const PackedWeight& weight = head().packed(tape.ops(), tape.compute(), PackFor::forward);
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t most = std::min(count, logits_block_rows);
  const Block logits = tape.scratch({most, decoder().vocabulary}, DType::f32);
  const Block values = tape.scratch({most, 1}, DType::f32), best = tape.scratch({most, 1}, DType::i32);
  const Tensor all_targets = targets_of(inputs);
  const SequenceLayout& layout = inputs.layout();
  std::vector<bool> missed(inputs.samples().size(), false), asked(inputs.samples().size(), false);
  std::size_t sample = 0;
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t size = std::min(most, count - first);
    tape.ops().linear(states.value().row_slice(first, size), weight, Tensor(), logits.tensor().row_slice(0, size));
    tape.ops().top_k(logits.tensor().row_slice(0, size), values.tensor().row_slice(0, size),
                     best.tensor().row_slice(0, size));
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int32_t row = rows[static_cast<std::size_t>(first + i)];
      while (layout.offsets[sample + 1] <= row) ++sample;
      asked[sample] = true;
      if (best.tensor().data<std::int32_t>()[i] != all_targets.data<std::int32_t>()[row]) missed[sample] = true;
    }
  }
  const auto samples = std::ranges::count(asked, true);
  outputs.metric("exact_match", static_cast<double>(samples - std::ranges::count(missed, true)),
                 static_cast<double>(samples));
}

Var VisionLanguageDecoder::next_token_logits(Tape& tape, const Inputs& inputs) {
  std::vector<std::int32_t> last(inputs.layout().offsets.begin() + 1, inputs.layout().offsets.end());
  for (std::int32_t& row : last) --row;
  const Var hidden = states(tape, inputs, block_of(tape, last));
  Var logits = tape.output({hidden.value().rows(), decoder().vocabulary}, DType::f32, false);
  tape.ops().linear(hidden.value(), head().packed(tape.ops(), tape.compute(), PackFor::forward), Tensor(),
                    logits.value());
  return logits;
}

}  // namespace maestro
