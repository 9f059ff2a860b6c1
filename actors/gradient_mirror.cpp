#include "actors/gradient_mirror.hpp"

#include <cassert>

namespace maestro {

namespace {

Tensor part_of(std::span<float> values, std::size_t first, std::size_t count) {
  return {values.data() + first, DType::f32, Shape{static_cast<std::int64_t>(count)}};
}

}  // namespace

GradientMirror::GradientMirror(const OperatorTable& ops, std::span<float> gradients)
    : ops_(&ops), gradients_(gradients) {
  if (ops.memory().host() || gradients.empty()) return;
  copy_ = AlignedMemory(gradients.size_bytes());
  ops.memory().pin(copy_.data(), copy_.size());
}

GradientMirror::~GradientMirror() {
  if (apart()) ops_->memory().unpin(copy_.data());
}

std::span<float> GradientMirror::values() const {
  if (!apart()) return gradients_;
  return {reinterpret_cast<float*>(copy_.data()), gradients_.size()};
}

std::span<float> GradientMirror::values_of(std::span<const float> part) const {
  const auto first = static_cast<std::size_t>(part.data() - gradients_.data());
  assert(first + part.size() <= gradients_.size());
  return values().subspan(first, part.size());
}

void GradientMirror::take_out(std::size_t first, std::size_t count) const {
  if (count > 0) ops_->download(part_of(gradients_, first, count), part_of(values(), first, count));
}

void GradientMirror::put_back(std::size_t first, std::size_t count) const {
  if (count > 0) ops_->upload(part_of(values(), first, count), part_of(gradients_, first, count));
}

}  // namespace maestro
