#include "runtime/ops/parameters.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>

namespace maestro {

namespace {
constexpr std::size_t alignment_elements = 16;  // 64 bytes, so that every parameter starts on a cache line

std::size_t aligned(std::size_t elements) {
  return (elements + alignment_elements - 1) / alignment_elements * alignment_elements;
}
}  // namespace

const PackedWeight& Parameter::packed(const OperatorTable& ops, DType compute, PackFor use) {
  Pack& pack = packs_[use == PackFor::forward ? 0 : 1];
  if (pack.weight == nullptr || pack.version != version_ || pack.compute != compute) {
    const bool reusable = pack.weight != nullptr && pack.compute == compute;
    const std::int64_t rows = shape_[0];
    const Tensor matrix = value_.reshaped(Shape{rows, shape_.elements() / rows});
    pack.weight = ops.pack(matrix, compute, use, reusable ? std::move(pack.weight) : nullptr);
    pack.version = version_;
    pack.compute = compute;
  }
  return *pack.weight;
}

Parameter& Parameters::add(ParameterSpec spec) {
  assert(values_.size() == 0);
  Parameter& parameter = parameters_.emplace_back();
  parameter.name_ = std::move(spec.name);
  parameter.shape_ = spec.shape;
  parameter.decayed_ = spec.decayed;
  parameter.initialise_ = std::move(spec.initialise);
  return parameter;
}

void Parameters::allocate(bool trained) {
  for (const bool decayed : {true, false}) {  // PA-1
    for (Parameter& parameter : parameters_) {
      if (parameter.decayed_ != decayed) continue;
      parameter.offset_ = elements_;
      elements_ += aligned(static_cast<std::size_t>(parameter.shape_.elements()));
    }
    if (decayed) decayed_elements_ = elements_;
  }
  const std::size_t bytes = elements_ * sizeof(float);
  values_ = AlignedMemory(bytes);
  if (trained) {
    gradients_ = AlignedMemory(bytes);
    first_moments_ = AlignedMemory(bytes);
    second_moments_ = AlignedMemory(bytes);
  }
  for (Parameter& parameter : parameters_) {
    parameter.value_ = part(values(), parameter);
    if (trained) parameter.gradient_ = part(gradients(), parameter);
    if (parameter.initialise_) parameter.initialise_(parameter.value_.span<float>());
  }
}

void Parameters::values_changed() {
  for (Parameter& parameter : parameters_) ++parameter.version_;
}

void Parameters::freeze_packed(const OperatorTable& ops, DType compute, std::span<Parameter* const> matrices,
                               bool passes_gradient) {
  assert(!trained());
  constexpr std::size_t page = 4096;
  for (Parameter* matrix : matrices) {
    (void)matrix->packed(ops, compute, PackFor::forward);
    if (passes_gradient) (void)matrix->packed(ops, compute, PackFor::backward_input);
    const auto begin = reinterpret_cast<std::uintptr_t>(matrix->value_.raw());
    const auto first = (begin + page - 1) / page * page;
    const auto last = (begin + matrix->value_.bytes()) / page * page;
    if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
    matrix->value_ = Tensor(nullptr, DType::f32, matrix->shape_);
  }
}

Parameter* Parameters::find(std::string_view name) {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& parameter) { return parameter.name() == name; });
  return found == parameters_.end() ? nullptr : &*found;
}

Tensor Parameters::part(std::span<float> flat_buffer, const Parameter& parameter) const {
  assert(flat_buffer.size() == elements_);
  return {flat_buffer.data() + parameter.offset_, DType::f32, parameter.shape_};
}

std::span<float> Parameters::flat(const AlignedMemory& memory) const {
  if (memory.size() == 0) return {};
  return {reinterpret_cast<float*>(memory.data()), elements_};
}

}  // namespace maestro
