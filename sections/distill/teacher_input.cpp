// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/teacher_input.hpp"

#include <utility>

#include "runtime/core/result.hpp"
#include "sections/decoder/decoder_shape.hpp"
#include "sections/parallel_fit.hpp"
#include "sections/section_ranks.hpp"

namespace maestro {

namespace {

void check_layout(const SectionContext& context, const TeacherModel& model, bool replicated) {
  if (model.reading == Reading::tokens && context.parallel.layout.context > 1) {
    throw JobError(context.name + ".context = " + std::to_string(context.parallel.layout.context) + ": " +
                   model.section + " has tokens of its own for images, so its answers are paired on a single context " +
                   "part; leave context at 1");
  }
  if (model.boundary == TeacherOutput::top_k_rest && (context.for_cuda || !context.memory().host())) {
    throw JobError(context.name + ": boundary = \"top_k_rest\", which a recorded teacher has, is supported on " +
                   "CPUs only; remove devices, or learn from a teacher that runs in the job");
  }
  if (!is_dense(model.boundary)) return;
  const CutSizes sizes{.vocabulary = model.decoder.vocabulary, .vocabulary_name = "the teacher's vocabulary"};
  check_parallel_fit(context.name, sizes, context.parallel.layout);
  if (!replicated || model.boundary != TeacherOutput::logits) return;
  throw JobError(context.name + ".context = " + std::to_string(context.parallel.layout.context) + ": of several " +
                 "teachers, " + model.section + " has boundary = \"logits\", whose rows a context part has for all " +
                 "samples; set " + model.section + ".boundary = \"hidden\" or \"top_k\", or leave context at 1");
}

}  // namespace

TeacherInput::TeacherInput(const SectionContext& context, const TeacherModel& model, std::string prefix,
                           bool among_others)
    : model_(model),
      parallel_(context.parallel),
      prefix_(std::move(prefix)),
      replicated_(among_others && context.parallel.layout.context > 1) {
  check_layout(context, model, replicated_);
  if (model.boundary == TeacherOutput::hidden && context.stage.last() && !context.meta) head_.emplace(context, model);
}

std::vector<Port> TeacherInput::ports() const {
  const auto port = [&](const char* output, DType dtype, std::int64_t columns) {
    Port made{prefix_ + "_" + output, dtype, columns, false, false, axis()};
    made.sharding = replicated_ ? Sharding::replicated : Sharding::rank_rows;
    made.chosen = true;
    return made;
  };
  switch (model_.boundary) {
    case TeacherOutput::hidden:
      return {port("hidden", model_.precision, model_.decoder.width)};
    case TeacherOutput::logits: {
      Port logits = port("logits", DType::f32, model_.decoder.vocabulary);
      logits.sharding = Sharding::vocabulary;
      return {logits};
    }
    case TeacherOutput::sampled:
      return {port("sampled", DType::f32, 1)};
    case TeacherOutput::top_k:
    case TeacherOutput::top_k_rest:
      break;
  }
  std::vector<Port> ports{port("top_values", DType::f32, model_.top_k), port("top_indices", DType::i32, model_.top_k)};
  if (model_.boundary == TeacherOutput::top_k_rest) ports.push_back(port("rest", DType::f32, 1));
  return ports;
}

double TeacherInput::flops(const SampleShape& sample) const {
  if (model_.boundary != TeacherOutput::hidden) return 0;
  return head_flops(sample.rows(axis()), model_.decoder.width, model_.decoder.vocabulary);
}

double TeacherInput::head_bytes() const {
  if (model_.boundary != TeacherOutput::hidden) return 0;
  const auto elements = static_cast<double>(model_.decoder.vocabulary * model_.decoder.width);
  return elements * static_cast<double>(size_of(model_.precision)) / static_cast<double>(parallel_.layout.tensor);
}

Var TeacherInput::all_rows(Tape& tape, const Inputs& inputs, const char* output) const {
  const Var& sent = inputs[prefix_ + "_" + output];
  if (replicated_) return sent;
  std::int64_t rows = 0;
  const std::vector<bool> samples = taken(inputs);
  const std::span<const std::int32_t> offsets = inputs.layout(axis()).offsets;
  for (std::size_t at = 0; at < samples.size(); ++at) rows += samples[at] ? offsets[at + 1] - offsets[at] : 0;
  return all_gather_rows(tape, sent, parallel_.tensor_group,
                         row_part(rows, parallel_.layout.context, parallel_.context()).count);
}

TeacherRows TeacherInput::received(Tape& tape, const Inputs& inputs) const {
  TeacherRows rows;
  if (!inputs.has(ports().front().name)) return rows;
  switch (model_.boundary) {
    case TeacherOutput::hidden:
      rows.hidden = all_rows(tape, inputs, "hidden");
      break;
    case TeacherOutput::logits:
      rows.logits = inputs[prefix_ + "_logits"];
      break;
    case TeacherOutput::sampled:
      rows.sampled = all_rows(tape, inputs, "sampled");
      break;
    case TeacherOutput::top_k_rest:
      rows.rest = all_rows(tape, inputs, "rest");
      [[fallthrough]];
    case TeacherOutput::top_k:
      rows.values = all_rows(tape, inputs, "top_values");
      rows.indices = all_rows(tape, inputs, "top_indices");
      break;
  }
  return rows;
}

TeacherSignal TeacherInput::signal(const TeacherRows& rows) {
  TeacherSignal signal;
  signal.boundary = model_.boundary;
  signal.vocabulary = model_.decoder.vocabulary;
  switch (model_.boundary) {
    case TeacherOutput::hidden:
      signal.hidden = rows.hidden;
      signal.head = &head_->parameter();
      signal.softcap = model_.decoder.logit_softcap;
      break;
    case TeacherOutput::logits:
      signal.logits = rows.logits.value();
      break;
    case TeacherOutput::sampled:
      signal.sampled = rows.sampled.value();
      break;
    case TeacherOutput::top_k_rest:
      signal.rest = rows.rest.value();
      [[fallthrough]];
    case TeacherOutput::top_k:
      signal.values = rows.values.value();
      signal.indices = rows.indices.value();
      break;
  }
  return signal;
}

Var chosen_rows(Tape& tape, const Var& from, std::span<const RowRange> ranges) {
  if (!from.defined() || from.value().elements() == 0) return from;
  const Tensor& rows = from.value();
  if (ranges.size() == 1 && ranges.front() == RowRange{0, rows.rows()}) return from;
  std::int64_t count = 0;
  std::vector<std::int32_t> index;
  for (const RowRange& range : ranges) {
    count += range.count;
    for (std::int64_t row = range.first; row < range.end(); ++row) index.push_back(static_cast<std::int32_t>(row));
  }
  if (from.needs_gradient()) return index_select(tape, from, tape.indices(index));
  Var chosen = tape.output({count, rows.columns()}, rows.dtype(), false);
  std::int64_t to = 0;
  for (const RowRange& range : ranges) {
    tape.ops().copy(rows.row_slice(range.first, range.count), chosen.value().row_slice(to, range.count));
    to += range.count;
  }
  return chosen;
}

TeacherRows chosen_rows(Tape& tape, const TeacherRows& from, std::span<const RowRange> ranges) {
  const auto chosen = [&](const Var& rows) { return chosen_rows(tape, rows, ranges); };
  return {chosen(from.hidden),  chosen(from.logits), chosen(from.values),
          chosen(from.indices), chosen(from.rest),   chosen(from.sampled)};
}

}  // namespace maestro
