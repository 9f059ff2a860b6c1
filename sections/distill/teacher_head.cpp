#include "sections/distill/teacher_head.hpp"

#include <algorithm>

#include "runtime/core/result.hpp"
#include "runtime/state/hf_config.hpp"
#include "sections/decoder/decoder_shape.hpp"
#include "sections/decoder/decoder_stack.hpp"
#include "sections/model_config.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

void load(const TeacherModel& teacher, std::string_view name, const Tensor& into) {
  check_same_model(hf_config_text(resolved(teacher.decoder)), teacher.weights).or_throw();
  const WeightsFolder stored = WeightsFolder::open(teacher.weights).value_or_throw();
  const Tensor from = stored.tensor(name).value_or_throw();
  if (from.shape() != into.shape()) {
    throw JobError(stored.label() + ": tensor '" + std::string(name) + "' has shape " + from.shape().to_string() +
                   ", expected " + into.shape().to_string());
  }
  if (from.dtype() == DType::bf16) {
    std::ranges::transform(from.span<bfloat16>(), into.data<float>(), [](bfloat16 v) { return static_cast<float>(v); });
  } else if (from.dtype() == DType::f32) {
    std::ranges::copy(from.span<float>(), into.data<float>());
  } else {
    throw JobError(stored.label() + ": tensor '" + std::string(name) + "' is " + std::string(name_of(from.dtype())) +
                   ", expected fp32 or bf16");
  }
}

}  // namespace

TeacherHead::TeacherHead(std::uint64_t seed, const TeacherModel& teacher, const OperatorTable& ops) {
  const DecoderConfig& decoder = teacher.decoder;
  const std::string name(decoder.tied ? embedding_name(decoder) : head_name);
  const ParameterInit init(seed, teacher.section);
  ParameterSpec spec{name, Shape{decoder.vocabulary, decoder.width}, false, {}};
  if (teacher.weights.empty()) spec.initialise = init.normal(name, decoder.init_std);  // TH-1
  head_ = &parameters_.add(std::move(spec));
  parameters_.allocate(false);
  if (!teacher.weights.empty()) load(teacher, name, head_->value());
  parameters_.values_changed();
  Parameter* const matrices[] = {head_};
  parameters_.freeze_packed(ops, teacher.precision, matrices);
}

}  // namespace maestro
