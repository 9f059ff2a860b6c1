// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/teacher_head.hpp"

#include <algorithm>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_shape.hpp"
#include "sections/decoder/decoder_stack.hpp"
#include "sections/model_config.hpp"
#include "sections/section_ranks.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

/// Writes the rows of the stored tensor that `into` holds.
template <class Stored>
void copy_rows(const ConstTensor& from, const Parameter& into, std::span<float> held) {
  for (const Parameter::Run& run : into.runs()) {
    std::ranges::transform(from.row_slice(run.whole_row, run.rows).span<Stored>(),
                           held.begin() + run.row * from.columns(),
                           [](Stored value) { return static_cast<float>(value); });
  }
}

void load(const TeacherModel& teacher, const Parameter& into, std::span<float> held) {
  check_same_model(hf_config_text(resolved(teacher.decoder)), teacher.weights).or_throw();
  const WeightsFolder stored = WeightsFolder::open(teacher.weights).value_or_throw();
  const ConstTensor from = stored.tensor(into.name()).value_or_throw();
  if (from.shape() != into.whole_shape()) {
    throw JobError(stored.label() + ": tensor '" + into.name() + "' has shape " + from.shape().to_string() +
                   ", expected " + into.whole_shape().to_string());
  }
  if (from.dtype() != DType::bf16 && from.dtype() != DType::f32) {
    throw JobError(stored.label() + ": tensor '" + into.name() + "' is " + std::string(name_of(from.dtype())) +
                   ", expected F32, BF16 or F16");
  }
  from.dtype() == DType::bf16 ? copy_rows<bfloat16>(from, into, held) : copy_rows<float>(from, into, held);
}

}  // namespace

TeacherHead::TeacherHead(const SectionContext& context, const TeacherModel& teacher) {
  const DecoderConfig& decoder = teacher.decoder;
  const std::string name(decoder.tied ? embedding_name(decoder) : head_name);
  const ParameterInit init(context.seed, teacher.section);
  ParameterSpec spec{
      name, Shape{decoder.vocabulary, decoder.width}, false, {}, TensorCut(context.parallel).rows(decoder.vocabulary)};
  if (teacher.weights.empty()) spec.initialise = init.normal(name, decoder.init_std);  // TH-1
  head_ = &parameters_.add(std::move(spec));
  parameters_.allocate(false, context.memory(), InitialValues::later);
  Parameter* const matrices[] = {head_};
  parameters_.freeze_packed(*context.ops, teacher.precision, matrices);
  if (teacher.weights.empty()) {
    parameters_.initialise();
  } else {
    parameters_.load(*head_, [&](std::span<float> held, std::int64_t) { load(teacher, *head_, held); });
  }
}

}  // namespace maestro
