// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/distilled_decoder.hpp"

#include <algorithm>
#include <array>

#include "runtime/core/result.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/ops/distillation_settings.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/parallel_fit.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

constexpr NumberRange fraction{.min = 0.0, .max = 1.0};
constexpr NumberRange positive{.min = 0.0, .min_open = true};

Divergence read_divergence(const JobTable& table, Divergence fallback) {
  constexpr std::array<std::string_view, 3> names{"forward_kl", "reverse_kl", "js"};
  return table.choice("divergence", fallback, names, {"the divergence from the teacher; js: Jensen-Shannon with beta"});
}

/// Checks the settings that readers of job files check, for options written in C++, and those that depend on both
/// models.
void check(const std::string& section, const DistilledDecoder::Options& options, std::int64_t shared) {
  DistillationSettings settings;
  settings.boundary = options.boundary;
  settings.divergence = options.divergence;
  settings.temperature = options.temperature;
  settings.alpha = options.alpha;
  settings.beta = options.beta;
  settings.student_vocabulary = options.decoder.vocabulary;
  settings.teacher_vocabulary = options.teacher.decoder.vocabulary;
  settings.shared_vocabulary = shared;
  settings.top_k = options.top_k;
  try {
    validate(settings);
  } catch (const JobError& error) {
    throw JobError(section + ": " + error.what(), error.code());
  }
}

SharedVocabulary matched(const SectionContext& context, const DistilledDecoder::Options& options) {
  const std::int64_t rows = std::min(options.decoder.vocabulary, options.teacher.decoder.vocabulary);
  check_tokenizer_files(options.weights, options.teacher.weights, rows);
  const VocabularySide student{context.name, options.decoder.vocabulary, ""};
  const VocabularySide teacher{options.teacher.section, options.teacher.decoder.vocabulary, options.teacher.tokenizer};
  return shared_vocabulary(student, teacher, options.data.vocabulary, options.data.tokenizer);
}

}  // namespace

DistilledDecoder::Options DistilledDecoder::Options::read(const JobTable& student) {
  Options options;
  options.decoder = read_decoder_shape(student);
  options.divergence = read_divergence(student, options.divergence);
  options.temperature =
      student.number("temperature", options.temperature, positive, {"the temperature T of both distributions"});
  options.alpha =
      student.number("alpha", options.alpha, fraction, {"loss = alpha T^2 divergence + (1 - alpha) cross-entropy"});
  options.beta = student.number("beta", options.beta, fraction, {"js: the teacher's weight in the mixture"});
  options.boundary = read_boundary(student, options.boundary);
  options.top_k = read_top_k(student, options.top_k);
  options.weights = read_weights_folder(student);
  return options;
}

TeacherModel DistilledDecoder::read_teacher(const JobTable& table) {
  const SectionConfig section = read_section(table, table.name(), {}, Training::none);
  TeacherModel teacher;
  teacher.section = table.name();
  teacher.decoder = read_decoder_shape(table);
  teacher.precision = section.precision;
  teacher.weights = section.weights;
  return teacher;
}

DistilledDecoder::DistilledDecoder(const SectionContext& context, const Options& options)
    : DecoderSection(context, options.decoder, options.data, OutputLayer::own_or_tied),
      options_(options),
      vocabulary_(matched(context, options)) {
  check(context.name, options, vocabulary_.columns);
  options_.teacher.decoder = resolved(options.teacher.decoder);
  if (!options.teacher.recorded) check_decoder(options.teacher.section, options_.teacher.decoder, options.data);
  if (options.boundary == TeacherOutput::top_k_rest && (context.for_cuda || !context.memory().host())) {
    throw JobError(context.name + ": boundary = \"top_k_rest\", which a recorded teacher has, is computed on " +
                   "processors alone; leave devices out, or learn from a teacher beside the student");
  }
  if (!names_tokens(options.boundary)) {
    const CutSizes sizes{.vocabulary = options_.teacher.decoder.vocabulary,
                         .vocabulary_name = "the teacher's vocabulary"};
    check_parallel_fit(context.name, sizes, context.parallel.layout);
  }
  if (options.boundary == TeacherOutput::hidden && last_stage() && !context.meta) {
    teacher_head_.emplace(context, options_.teacher);
  }
}

Ports DistilledDecoder::ports() const {
  Ports behind{{targets_port}, {}};
  const TeacherModel& teacher = options_.teacher;
  switch (options_.boundary) {
    case TeacherOutput::hidden:
      behind.inputs.push_back({"teacher_hidden", teacher.precision, teacher.decoder.width, false, false, Axis::tokens,
                               Sharding::rank_rows});
      break;
    case TeacherOutput::logits:
      behind.inputs.push_back(
          {"teacher_logits", DType::f32, teacher.decoder.vocabulary, false, false, Axis::tokens, Sharding::vocabulary});
      break;
    case TeacherOutput::top_k:
    case TeacherOutput::top_k_rest:
      behind.inputs.push_back(
          {"teacher_top_values", DType::f32, options_.top_k, false, false, Axis::tokens, Sharding::rank_rows});
      behind.inputs.push_back(
          {"teacher_top_indices", DType::i32, options_.top_k, false, false, Axis::tokens, Sharding::rank_rows});
      if (options_.boundary == TeacherOutput::top_k) break;
      behind.inputs.push_back({"teacher_rest", DType::f32, 1, false, false, Axis::tokens, Sharding::rank_rows});
      break;
  }
  return stage_ports({tokens_port}, behind);
}

DistilledDecoder::Received DistilledDecoder::received(Tape& tape, const Inputs& inputs) const {
  const auto all_rows = [&](const char* port) {
    return gathered(tape, inputs[port], context().parallel, inputs.layout());
  };
  Received received;
  switch (options_.boundary) {
    case TeacherOutput::hidden:
      received.hidden = all_rows("teacher_hidden");
      break;
    case TeacherOutput::logits:
      received.logits = inputs["teacher_logits"];
      break;
    case TeacherOutput::top_k_rest:
      received.rest = all_rows("teacher_rest");
      [[fallthrough]];
    case TeacherOutput::top_k:
      received.values = all_rows("teacher_top_values");
      received.indices = all_rows("teacher_top_indices");
      break;
  }
  return received;
}

TeacherSignal DistilledDecoder::signal(const Received& received) {
  TeacherSignal teacher;
  teacher.boundary = options_.boundary;
  teacher.vocabulary = options_.teacher.decoder.vocabulary;
  switch (options_.boundary) {
    case TeacherOutput::hidden:
      teacher.hidden = received.hidden;
      teacher.head = &teacher_head_->parameter();
      teacher.softcap = options_.teacher.decoder.logit_softcap;
      break;
    case TeacherOutput::logits:
      teacher.logits = received.logits.value();
      break;
    case TeacherOutput::top_k_rest:
      teacher.rest = received.rest.value();
      [[fallthrough]];
    case TeacherOutput::top_k:
      teacher.values = received.values.value();
      teacher.indices = received.indices.value();
      break;
  }
  return teacher;
}

void DistilledDecoder::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  if (!last_stage()) return put_stream(tape, inputs, outputs);
  const Var state = gathered_hidden(tape, inputs);
  const Received teacher = received(tape, inputs);
  const Tensor targets = targets_of(inputs);
  const DistillationTerms terms{options_.divergence, options_.temperature, options_.alpha, options_.beta,
                                vocabulary_.columns};
  const HeadLoss loss{&targets, inputs.loss_scale(), decoder().logit_softcap};
  const VocabularyPart teacher_part = vocabulary_part(context().parallel, options_.teacher.decoder.vocabulary);
  const Pending<LossSums> sums =
      distillation_loss(tape, state, head(), signal(teacher), terms, loss, {head_part(), teacher_part});
  // The teacher's cross-entropy needs its logit of the target, which may not be among the k.
  if (context().parallel.tensor() == 0) outputs.losses(sums, true, !names_tokens(options_.boundary));
}

Cost DistilledDecoder::cost(const SampleShape& sample) const {
  Cost cost = decoder_cost(sample);
  if (last_stage()) cost.flops += teacher_flops(sample);
  return cost;
}

LayerCosts DistilledDecoder::layer_costs(const SampleShape& sample) const {
  LayerCosts costs = DecoderSection::layer_costs(sample);
  costs.after += teacher_flops(sample);
  return costs;
}

double DistilledDecoder::extra_bytes() const {
  if (options_.boundary != TeacherOutput::hidden || !last_stage()) return 0;
  const DecoderConfig& teacher = options_.teacher.decoder;
  const auto elements = static_cast<double>(teacher.vocabulary * teacher.width);
  const auto parts = static_cast<double>(context().parallel.layout.tensor);
  return elements * static_cast<double>(size_of(options_.teacher.precision)) / parts;
}

double DistilledDecoder::teacher_flops(const SampleShape& sample) const {
  if (options_.boundary != TeacherOutput::hidden) return 0;
  const DecoderConfig& teacher = options_.teacher.decoder;
  return head_flops(sample.tokens, teacher.width, teacher.vocabulary);
}

std::vector<std::string> DistilledDecoder::notes() const {
  if (vocabulary_.note.empty() || !last_stage()) return {};  // the last stage alone reports it
  return {vocabulary_.note};
}

}  // namespace maestro
