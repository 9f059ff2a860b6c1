#include "runtime/ops/parameters.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <initializer_list>
#include <utility>

namespace maestro {

namespace {
constexpr std::size_t alignment_elements = 16;  // 64 bytes, so that every parameter starts on a cache line

std::size_t aligned(std::size_t elements) {
  return (elements + alignment_elements - 1) / alignment_elements * alignment_elements;
}

Shape held_shape(const ParameterSpec& spec) {
  const ParameterSlice& slice = spec.slice;
  const Shape& whole = spec.shape;
  std::int64_t rows = slice.rows.empty() ? whole[0] : 0;
  for (const ParameterSlice::Range& range : slice.rows) rows += range.count;
  assert(slice.columns.count == 0 || whole.rank() == 2);
  switch (whole.rank()) {
    case 1:
      return {rows};
    case 2:
      return {rows, slice.columns.count > 0 ? slice.columns.count : whole[1]};
    case 3:
      return {rows, whole[1], whole[2]};
    default:
      return {rows, whole[1], whole[2], whole[3]};
  }
}

std::vector<std::span<float>> ranges_of(std::span<float> flat,
                                        std::initializer_list<std::pair<std::size_t, std::size_t>> ranges) {
  std::vector<std::span<float>> spans;
  for (const auto& [begin, end] : ranges) {
    if (!flat.empty() && begin < end) spans.push_back(flat.subspan(begin, end - begin));
  }
  return spans;
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

std::vector<Parameter::Run> Parameter::runs() const {
  if (slice_.rows.empty()) return {{0, 0, shape_[0]}};
  std::vector<Run> runs;
  std::int64_t row = 0;
  for (const ParameterSlice::Range& range : slice_.rows) {
    runs.push_back({row, range.first, range.count});
    row += range.count;
  }
  return runs;
}

ParameterSlice::Range Parameter::columns() const {
  if (slice_.columns.count > 0) return slice_.columns;
  return {0, whole_shape_.elements() / whole_shape_[0]};
}

void Parameter::initialise() {
  if (!initialise_) return;
  if (!sharded()) return initialise_(value_.span<float>());
  std::vector<float> whole(static_cast<std::size_t>(whole_shape_.elements()));
  initialise_(whole);
  const std::int64_t whole_columns = whole_shape_.elements() / whole_shape_[0];
  const ParameterSlice::Range held = columns();
  float* to = value_.data<float>();
  for (const Run& run : runs()) {
    for (std::int64_t row = run.whole_row; row < run.whole_row + run.rows; ++row) {
      to = std::copy_n(whole.data() + row * whole_columns + held.first, held.count, to);
    }
  }
}

Parameter& Parameters::add(ParameterSpec spec) {
  assert(values_.size() == 0);
  Parameter& parameter = parameters_.emplace_back();
  parameter.name_ = std::move(spec.name);
  parameter.shape_ = spec.slice.cut() ? held_shape(spec) : spec.shape;
  parameter.whole_shape_ = spec.shape;
  parameter.slice_ = std::move(spec.slice);
  parameter.decayed_ = spec.decayed;
  parameter.initialise_ = std::move(spec.initialise);
  return parameter;
}

void Parameters::lay_out() {
  const auto place = [this](bool decayed, bool sharded) {
    for (Parameter& parameter : parameters_) {
      if (parameter.decayed_ != decayed || parameter.sharded() != sharded) continue;
      parameter.offset_ = elements_;
      elements_ += aligned(static_cast<std::size_t>(parameter.shape_.elements()));
    }
    return elements_;
  };
  decayed_sharded_end_ = place(true, true);
  decayed_elements_ = place(true, false);
  other_sharded_end_ = place(false, true);
  place(false, false);
}

void Parameters::allocate(bool trained) {
  lay_out();
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
    parameter.initialise();
  }
}

void Parameters::keep_moments(ShardRange range) {
  assert(!shares_moments_ && range.first + range.count <= elements_);
  if (!trained()) return;
  first_moments_ = AlignedMemory(range.count * sizeof(float));
  second_moments_ = AlignedMemory(range.count * sizeof(float));
  kept_ = range;
  shares_moments_ = true;
}

ShardRange Parameters::kept_moments() const {
  return shares_moments_ ? kept_ : ShardRange{0, trained() ? elements_ : 0};
}

void Parameters::offer(ParameterBuffer which) {
  std::span<const float> from = buffer(which);
  if (which == ParameterBuffer::values) from = from.subspan(kept_.first, kept_.count);
  assert(shares_moments_ && from.size() == kept_.count);
  std::copy(from.begin(), from.end(), gradients().subspan(kept_.first, kept_.count).begin());
}

void Parameters::take_values() {
  assert(shares_moments_);
  const std::span<const float> offered = gradients();
  const std::size_t end = kept_.first + kept_.count;
  std::copy(offered.begin(), offered.begin() + static_cast<std::ptrdiff_t>(kept_.first), values().begin());
  const std::span<const float> behind = offered.subspan(end);
  std::copy(behind.begin(), behind.end(), values().subspan(end).begin());
  clear_gradients();
  values_changed();
}

void Parameters::take_moments(ParameterBuffer which) {
  const std::span<float> here = buffer(which);
  assert(shares_moments_ && here.size() == kept_.count);
  const std::span<const float> offered = gradients().subspan(kept_.first, kept_.count);
  std::copy(offered.begin(), offered.end(), here.begin());
  clear_gradients();
}

void Parameters::clear_gradients() {
  std::ranges::fill(gradients(), 0.0F);
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

std::span<float> Parameters::buffer(ParameterBuffer which) const {
  switch (which) {
    case ParameterBuffer::values:
      return values();
    case ParameterBuffer::gradients:
      return gradients();
    case ParameterBuffer::first_moments:
      return first_moments();
    case ParameterBuffer::second_moments:
      return second_moments();
  }
  return {};
}

std::vector<std::span<float>> Parameters::sharded_gradients() const {
  return ranges_of(gradients(), {{0, decayed_sharded_end_}, {decayed_elements_, other_sharded_end_}});
}

std::vector<std::span<float>> Parameters::replicated_gradients() const {
  return ranges_of(gradients(), {{decayed_sharded_end_, decayed_elements_}, {other_sharded_end_, elements_}});
}

std::span<float> Parameters::flat(const AlignedMemory& memory) const {
  if (memory.size() == 0) return {};
  return {reinterpret_cast<float*>(memory.data()), elements_};
}

std::span<float> Parameters::kept(const AlignedMemory& memory) const {
  if (memory.size() == 0) return {};
  return {reinterpret_cast<float*>(memory.data()), kept_moments().count};
}

}  // namespace maestro
