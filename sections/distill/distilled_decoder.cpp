// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/distilled_decoder.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/ops/distillation_settings.hpp"
#include "sections/distill/shared_vocabulary.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

constexpr NumberRange fraction{.min = 0.0, .max = 1.0};
constexpr NumberRange positive{.min = 0.0, .min_open = true};

Divergence read_divergence(const JobTable& table, Divergence fallback) {
  constexpr std::array<std::string_view, 3> names{"forward_kl", "reverse_kl", "js"};
  return table.choice("divergence", fallback, names, {"the divergence from the teacher; js: Jensen-Shannon with beta"});
}

/// Checks the settings that readers of job files check, for options written in C++, and the settings that depend on
/// both models.
void check(const std::string& section, const DistilledDecoder::Options& options, const TeacherModel& teacher,
           std::int64_t shared) {
  DistillationSettings settings;
  settings.boundary = teacher.boundary;
  settings.divergence = options.divergence;
  settings.temperature = options.temperature;
  settings.alpha = options.alpha;
  settings.beta = options.beta;
  settings.student_vocabulary = options.decoder.vocabulary;
  settings.teacher_vocabulary = teacher.decoder.vocabulary;
  settings.shared_vocabulary = shared;
  settings.top_k = teacher.top_k;
  try {
    if (teacher.boundary != TeacherOutput::sampled || !options.policy_gradient) validate(settings);
    if (!options.policy_gradient) return;
    settings.divergence = Divergence::policy_gradient;  // of made rows
    settings.ratio_cap = options.ratio_cap;
    validate(settings);
  } catch (const JobError& error) {
    throw JobError(section + ": " + (options.teachers.size() > 1 ? teacher.section + ": " : "") + error.what(),
                   error.code());
  }
}

SharedVocabulary matched(const SectionContext& context, const DistilledDecoder::Options& options,
                         const TeacherModel& model) {
  const std::int64_t rows = std::min(options.decoder.vocabulary, model.decoder.vocabulary);
  if (model.reading == Reading::own) check_tokenizer_files(options.weights, model.weights, rows);
  const VocabularySide student{context.name, options.decoder.vocabulary, ""};
  const VocabularySide teacher{model.section, model.decoder.vocabulary, model.tokenizer};
  return shared_vocabulary(student, teacher, options.data.vocabulary, options.data.tokenizer);
}

}  // namespace

DistilledDecoder::Options DistilledDecoder::Options::read(const JobTable& student) {
  Options options;
  options.decoder = read_decoder_shape(student);
  options.policy_gradient =
      student.choice("loss", "divergence", {"divergence", "policy_gradient"},
                     {"the loss of the samples that the student makes: the divergence from the teacher, or the policy "
                      "gradient with the advantage log p_teacher - log p_student of each token"}) == "policy_gradient";
  options.ratio_cap = student.number("ratio_cap", options.ratio_cap, {.min = 0},
                                     {"policy_gradient: each token's weight p_student / p_generator is at most this; "
                                      "0: no weight"});
  if (!options.policy_gradient && student.has("ratio_cap")) {
    student.fail("ratio_cap", "is for loss = \"policy_gradient\"; set that, or leave ratio_cap out");
  }
  options.divergence = read_divergence(student, options.divergence);
  options.temperature =
      student.number("temperature", options.temperature, positive,
                     {"the temperature T of both distributions; with loss = \"policy_gradient\" the generator's"});
  options.alpha =
      student.number("alpha", options.alpha, fraction, {"loss = alpha T^2 divergence + (1 - alpha) cross-entropy"});
  options.beta = student.number("beta", options.beta, fraction, {"js: the teacher's weight in the mixture"});
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
    : DecoderSection(context, options.decoder, options.data, OutputLayer::own_or_tied), options_(options) {
  const bool several = options_.teachers.size() > 1;
  const auto sampled = [](const TeacherModel& teacher) { return teacher.boundary == TeacherOutput::sampled; };
  if (std::ranges::any_of(options_.teachers, sampled) && !std::ranges::all_of(options_.teachers, sampled)) {
    throw JobError(context.name + ": some teachers have boundary = \"sampled\" and others not; set it for all or none");
  }
  for (TeacherModel& teacher : options_.teachers) {
    const SharedVocabulary vocabulary = matched(context, options, teacher);
    check(context.name, options, teacher, vocabulary.columns);
    shared_vocabulary_ = vocabulary.columns;  // number of the corpus' tokens, or size of equal vocabularies
    if (!vocabulary.note.empty()) notes_.push_back(vocabulary.note);
    teacher.decoder = resolved(teacher.decoder);
    const bool reads_data = !teacher.recorded && teacher.reading == Reading::own;  // else its section checks it
    if (reads_data) check_decoder(teacher.section, teacher.decoder, options.data);
    teachers_.emplace_back(context, teacher, several ? teacher.section : "teacher", several);
  }
}

Ports DistilledDecoder::ports() const {
  Ports behind{{targets_port}, {}};
  if (has_ratio()) behind.inputs.push_back({"sampled", DType::f32, 1, false, false});
  for (const TeacherInput& teacher : teachers_) {
    for (Port& port : teacher.ports()) behind.inputs.push_back(std::move(port));
  }
  return stage_ports(behind);
}

std::vector<Lesson> DistilledDecoder::lessons(const Inputs& inputs) const {
  const RowRange part = context_rows(context().parallel, inputs.layout());
  if (std::ranges::any_of(teachers_, [](const TeacherInput& each) { return each.axis() == Axis::answers; })) {
    std::vector<TaughtSamples> teachers;
    for (const TeacherInput& teacher : teachers_) {
      teachers.push_back({teacher.model().weight, teacher.taken(inputs), teacher.axis() == Axis::answers});
    }
    return answer_lessons(inputs.layout().offsets, teachers, inputs.host("targets").span<std::int32_t>());
  }
  std::vector<bool> made;
  for (const SampleId sample : inputs.samples()) made.push_back(is_made(sample));
  const bool alike = std::ranges::adjacent_find(made, std::not_equal_to<>()) == made.end();
  if (teachers_.size() == 1 && alike) {
    return {{{{0, part.count}}, {{0, 1, {{0, part.count}}}}, !made.empty() && made.front()}};
  }
  std::vector<TaughtSamples> teachers;
  for (const TeacherInput& teacher : teachers_) teachers.push_back({teacher.model().weight, teacher.taken(inputs)});
  std::vector<Lesson> lessons = lessons_of(inputs.layout().offsets, part, teachers, made);
  if (teachers_.size() > 1) return lessons;
  for (Lesson& lesson : lessons) {  // the rank has the teacher's rows of its part
    for (Lesson::Teacher& teacher : lesson.teachers) teacher.rows = lesson.rows;
  }
  return lessons;
}

LossSums DistilledDecoder::teacher_sums(const Inputs& inputs, const Lesson& lesson,
                                        const Lesson::Teacher& teacher) const {
  const std::span<const std::int32_t> targets = inputs.host(targets_port.name).span<std::int32_t>();
  const Tensor sampled = teachers_[teacher.number].sampled(inputs);
  const std::vector<std::int64_t> rows = row_numbers(lesson.rows), taught = row_numbers(teacher.rows);
  LossSums sums;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    if (targets[static_cast<std::size_t>(rows[at])] == ignored_target) continue;
    sums.teacher_ce -= double{sampled.span<float>()[static_cast<std::size_t>(taught[at])]};
  }
  return sums;
}

void DistilledDecoder::learn(Tape& tape, const Inputs& inputs, const Rows& rows, const Lesson& lesson,
                             LessonSums& sums) {
  const Var state = chosen_rows(tape, rows.state, lesson.rows);
  const Var targets = chosen_rows(tape, rows.targets, lesson.rows);
  const Var sampled = chosen_rows(tape, rows.sampled, lesson.rows);
  const Tensor wanted = targets.value().reshaped(Shape{targets.value().elements()});
  sums.begin_lesson(lesson.made);
  if (lesson.teachers.empty()) {  // a row without a teacher counts only with its cross-entropy, in full
    const double share = lesson.made ? 0 : 1 - options_.alpha;
    const HeadLoss loss{&wanted, rows.loss_scale * share, decoder().logit_softcap};
    return sums.add_untaught(share, cross_entropy_loss(tape, state, head(), loss, head_part()));
  }
  const double alpha = lesson.made ? 1 : options_.alpha;  // the student's own tokens are no targets of cross-entropy
  const bool policy = lesson.made && options_.policy_gradient;
  DistillationTerms terms{options_.divergence, options_.temperature, alpha, options_.beta, shared_vocabulary_};
  if (policy) terms.divergence = Divergence::policy_gradient;
  if (policy) terms.ratio_cap = options_.ratio_cap;
  for (const Lesson::Teacher& each : lesson.teachers) {
    TeacherInput& teacher = teachers_[each.number];
    HeadLoss loss{&wanted, rows.loss_scale * each.share, decoder().logit_softcap};
    if (!policy && !teacher.knows_divergence()) {
      sums.add(each.number, each.share,
               Pending<LossSums>(std::vector<Pending<LossSums>>{
                   cross_entropy_loss(tape, state, head(), loss, head_part()), teacher_sums(inputs, lesson, each)}));
      continue;
    }
    const TeacherRows taught = chosen_rows(tape, rows.teachers[each.number], each.rows);
    if (policy && has_ratio()) loss.sampled = sampled.value();
    const VocabularyParts parts{head_part(), vocabulary_part(context().parallel, teacher.model().decoder.vocabulary)};
    sums.add(each.number, each.share,
             distillation_loss(tape, state, head(), teacher.signal(taught), terms, loss, parts));
  }
}

void DistilledDecoder::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  if (!last_stage()) return put_stream(tape, inputs, outputs);
  Rows rows;
  rows.state = gathered_hidden(tape, inputs, outputs);
  const Tensor targets = targets_of(inputs);
  rows.targets = tape.input(targets.reshaped(Shape{targets.elements(), 1}));
  if (has_ratio()) {
    const Tensor& sampled = inputs["sampled"].value();
    rows.sampled = tape.input(sampled.reshaped(Shape{sampled.elements(), 1}));
  }
  rows.loss_scale = inputs.loss_scale();
  for (const TeacherInput& teacher : teachers_) rows.teachers.push_back(teacher.received(tape, inputs));
  LessonSums sums;
  const std::vector<Lesson> all = lessons(inputs);
  for (const Lesson& lesson : all) learn(tape, inputs, rows, lesson, sums);
  if (context().parallel.tensor() != 0) return;
  const LessonSums::Figures figures{options_.generates && inputs.pass() == Pass::train, has_ratio()};
  if (teachers_.size() == 1 && all.size() == 1 && !figures.by_origin && teachers_.front().knows_divergence())
    return outputs.losses(sums.only(), true, teachers_.front().knows_cross_entropy());
  std::vector<LessonSums::Teacher> teachers;
  for (const TeacherInput& each : teachers_) {
    teachers.push_back({each.model().section, each.knows_cross_entropy(), each.knows_divergence()});
  }
  sums.report(outputs, teachers, figures);
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
  double bytes = 0;
  if (!last_stage()) return bytes;
  for (const TeacherInput& teacher : teachers_) bytes += teacher.head_bytes();
  return bytes;
}

double DistilledDecoder::teacher_flops(const SampleShape& sample) const {
  double flops = 0;
  for (const TeacherInput& teacher : teachers_) flops += teacher.flops(sample);
  // Each further teacher's losses compute the student's logits again.
  const auto again = static_cast<double>(teachers_.size() - 1);
  return flops + again * head_flops(sample.tokens, decoder().width, decoder().vocabulary);
}

std::vector<std::string> DistilledDecoder::notes() const {
  return last_stage() ? notes_ : std::vector<std::string>();  // only the last stage reports them
}

}  // namespace maestro
