// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/vision_language_decoder.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/job/job_reader.hpp"
#include "sections/vision/projector.hpp"

namespace maestro {

namespace {

constexpr std::int64_t logits_block_rows = 64;  // logits held at once: rows x vocabulary x 4 bytes

std::span<const std::int32_t> integers(const Tensor& tensor) {
  return tensor.span<std::int32_t>();
}

/// Returns the numbers of rows for which `chosen` holds, in order.
template <class Chosen>
std::vector<std::int32_t> rows_where(std::span<const std::int32_t> values, Chosen chosen) {
  std::vector<std::int32_t> rows;
  for (std::size_t row = 0; row < values.size(); ++row) {
    if (chosen(values[row])) rows.push_back(static_cast<std::int32_t>(row));
  }
  return rows;
}

bool is_asked(std::int32_t target) {
  return target >= 0;
}

/// Returns `rows` of a (M) or (M, 1) i32 tensor, (rows.count).
Tensor part_of(const Tensor& values, const RowRange& rows) {
  return {values.data<std::int32_t>() + rows.first, DType::i32, Shape{rows.count}};
}

/// Returns the number of samples with a target.
std::int64_t asked_samples(const SequenceLayout& layout, std::span<const std::int32_t> targets) {
  std::int64_t samples = 0;
  for (std::size_t sample = 0; sample + 1 < layout.offsets.size(); ++sample) {
    const auto begin = targets.begin() + layout.offsets[sample], end = targets.begin() + layout.offsets[sample + 1];
    if (std::any_of(begin, end, is_asked)) ++samples;
  }
  return samples;
}

/// Returns the shape of the data for a section that reads images, whatever the data have.
DataShape with_images(const VisionLanguageDecoder::Options& options) {
  DataShape data = options.data;
  if (data.patch_columns == 0) {
    data.patch_columns = 1;
    data.marks = true;
  }
  data.visual = options.visual;
  data.heard = options.heard;
  return data;
}

}  // namespace

VisionLanguageDecoder::Options VisionLanguageDecoder::Options::read(const JobTable& table, const JobTable& root) {
  Options options;
  options.decoder = read_decoder_shape(table);
  const std::string projector = table.text("projector", "projector", {"the section that sends the visual tokens"});
  if (root.has(projector)) options.visual = visual_rows_of(root.table(projector));
  constexpr const char* sounds = "audio_projector";
  const std::string heard = table.text(sounds, sounds, {"omni: the section that sends the rows of sounds"});
  if (root.has(heard)) options.heard.precision = read_precision(root.table(heard));
  return options;
}

VisionLanguageDecoder::VisionLanguageDecoder(const SectionContext& context, const Options& options)
    : DecoderSection(context, options.decoder, with_images(options), OutputLayer::own_or_tied) {}

Ports VisionLanguageDecoder::ports() const {
  Port targets = targets_port;
  targets.sharding = Sharding::replicated;  // VD-5; 4 bytes a row
  return stage_ports({{targets}, {}});
}

Cost VisionLanguageDecoder::cost(const SampleShape& sample) const {
  Cost cost = decoder_cost(sample);
  if (last_stage()) cost.flops -= saved_behind_layers(sample) + saved_in_last_layer(sample);
  return cost;
}

LayerCosts VisionLanguageDecoder::layer_costs(const SampleShape& sample) const {
  LayerCosts costs = DecoderSection::layer_costs(sample);
  costs.layers.back() -= saved_in_last_layer(sample);
  costs.after -= saved_behind_layers(sample);
  return costs;
}

double VisionLanguageDecoder::saved_in_last_layer(const SampleShape& sample) const {
  if (context().parallel.layout.tensor > 1 || decoder().experts.judged()) return 0;  // VD-5
  const DecoderConfig& shape = decoder();
  // Attention output and feed-forward network.
  return 2.0 * static_cast<double>(sample.visual + sample.heard) * static_cast<double>(shape.width) *
         static_cast<double>(shape.query_columns() + shape.ffn_matrices() * shape.ffn);
}

double VisionLanguageDecoder::saved_behind_layers(const SampleShape& sample) const {
  return head_flops(sample.visual + sample.heard, decoder().width, decoder().vocabulary);
}

Var VisionLanguageDecoder::states(Tape& tape, const Inputs& inputs, Outputs& outputs, const Block& wanted) {
  const ParallelContext& parallel = context().parallel;
  if (parallel.layout.tensor == 1 && !experts_need_all_rows())
    return stack().normed(tape, stream(tape, inputs, outputs, wanted));
  Var all = hidden(tape, inputs, outputs);
  if (parallel.layout.tensor > 1) all = gathered(tape, all, parallel, inputs.layout());
  return wanted.defined() ? index_select(tape, all, wanted) : all;
}

void VisionLanguageDecoder::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  if (!last_stage()) return put_stream(tape, inputs, outputs);  // VD-6
  const ParallelContext& parallel = context().parallel;
  const Tensor known_targets = inputs.host("targets");
  if (std::ranges::none_of(integers(known_targets), is_asked)) {  // VD-3: nothing to learn and nothing to measure
    report_losses(outputs, LossSums(), false, parallel);
    if (inputs.pass() == Pass::evaluate && parallel.rank == 0) outputs.metric("exact_match", 0, 0);
    return;
  }
  const RowRange part = context_rows(parallel, inputs.layout());
  const auto known = integers(part_of(known_targets, part));
  const auto rows = rows_where(known, is_asked);
  const bool some = rows.size() < known.size();  // VD-2
  const Block wanted = some ? tape.indices(rows) : Block();
  const Var hidden = states(tape, inputs, outputs, wanted);
  Tensor targets = part_of(targets_of(inputs), part);
  Block chosen;
  if (some) {
    std::vector<std::int32_t> asked(rows.size());
    std::ranges::transform(rows, asked.begin(), [&](std::int32_t row) { return known[static_cast<std::size_t>(row)]; });
    chosen = tape.indices(asked);
    targets = chosen.tensor();
  }
  const HeadLoss loss{&targets, inputs.loss_scale(), decoder().logit_softcap};
  report_losses(outputs, cross_entropy_loss(tape, hidden, head(), loss, head_part()), false, parallel);
  if (inputs.pass() == Pass::evaluate) put_exact_match(tape, inputs, hidden, outputs);
}

void VisionLanguageDecoder::put_exact_match(Tape& tape, const Inputs& inputs, const Var& states, Outputs& outputs) {
  const Block best = best_of_parts(tape, inputs, best_of(tape, states));
  if (context().parallel.rank > 0) return;
  const std::int64_t asked = asked_samples(inputs.layout(), integers(inputs.host("targets")));
  // The layout may end before a device has computed its answers, so the needed part is copied now.
  const auto answers = std::make_shared<const Answers>(answers_of(tape, inputs, best));
  outputs.metric([answers, asked] {
    return MetricSum{"exact_match", static_cast<double>(asked - answers->missed()), static_cast<double>(asked)};
  });
}

std::int64_t VisionLanguageDecoder::Answers::missed() const {
  std::vector<std::int8_t> missed(samples, 0);
  for (std::size_t i = 0; i < best.size(); ++i) {
    if (best[i] != wanted[i]) missed[sample_of[i]] = 1;
  }
  return std::ranges::count(missed, 1);
}

Block VisionLanguageDecoder::best_of(Tape& tape, const Var& states) {
  const std::int64_t count = states.value().rows();
  Block best = tape.scratch({count, 1}, DType::i32);
  if (count == 0) return best;
  const PackedWeight& weight = head().packed(tape.ops(), tape.compute(), PackFor::forward);
  const std::int64_t most = std::min(count, logits_block_rows);
  const Block logits = tape.scratch({most, head().shape()[0]}, DType::f32);
  const Block values = tape.scratch({most, 1}, DType::f32);
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t size = std::min(most, count - first);
    const Tensor part = logits.tensor().row_slice(0, size);
    tape.ops().run(Linear{.x = states.value().row_slice(first, size), .w = &weight, .y = part});
    top_k(tape, part, values.tensor().row_slice(0, size), best.tensor().row_slice(first, size), head_part());
  }
  return best;
}

Block VisionLanguageDecoder::best_of_parts(Tape& tape, const Inputs& inputs, const Block& best) const {
  Communicator* const group = context().parallel.context_group;
  if (group == nullptr) return best;
  std::vector<BlockTransfer> receives;
  std::int64_t rows = 0;
  if (group->rank() == 0) {
    const auto targets = integers(inputs.host("targets"));
    for (std::int64_t peer = 0; peer < group->size(); ++peer) {
      const RowRange part = row_part(inputs.layout().rows(), group->size(), peer);
      const auto begin = targets.begin() + part.first;
      const std::int64_t count = std::count_if(begin, begin + part.count, is_asked);
      receives.push_back({peer, {rows, count, 0, 1}});
      rows += count;
    }
  }
  Block all = tape.scratch({rows, 1}, DType::i32);
  const BlockTransfer send{0, {0, best.tensor().rows(), 0, 1}};
  group->exchange(best.tensor(), {&send, 1}, all.tensor(), receives);
  return all;
}

VisionLanguageDecoder::Answers VisionLanguageDecoder::answers_of(const Tape& tape, const Inputs& inputs,
                                                                 const Block& best) {
  const auto targets = integers(inputs.host("targets"));
  const SequenceLayout& layout = inputs.layout();
  Answers answers;
  answers.samples = inputs.samples().size();
  std::size_t sample = 0;
  for (const std::int32_t row : rows_where(targets, is_asked)) {
    while (layout.offsets[sample + 1] <= row) ++sample;
    answers.sample_of.push_back(sample);
    answers.wanted.push_back(targets[static_cast<std::size_t>(row)]);
  }
  answers.best.resize(answers.wanted.size());
  tape.ops().download(best.tensor(), Tensor(answers.best.data(), DType::i32, best.tensor().shape()));
  return answers;
}

}  // namespace maestro
