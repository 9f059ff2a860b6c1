// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/parameters.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/core/aligned_memory.hpp"

namespace maestro {

namespace {
constexpr std::size_t alignment_elements = 16;  // 64 bytes, so that every parameter starts on a cache line

std::size_t aligned(std::size_t elements) {
  return (elements + alignment_elements - 1) / alignment_elements * alignment_elements;
}

Tensor as_tensor(std::span<float> flat) {
  return {flat.data(), DType::f32, Shape{static_cast<std::int64_t>(flat.size())}};
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
}  // namespace

const PackedWeight& Parameter::packed(const OperatorTable& ops, DType compute, PackFor use) {
  const bool plain = ops.takes_plain_weights();
  Pack& pack = packs_[pack_of(ops, compute, use)];
  if (pack.weight == nullptr || pack.version != version_ || pack.compute != compute) {
    const bool reusable = pack.weight != nullptr && pack.compute == compute;
    const std::int64_t rows = shape_[0];
    const Tensor values = plain && compute == DType::bf16 ? owner_->rounded(ops, *this) : value_;
    const Tensor matrix = values.reshaped(Shape{rows, shape_.elements() / rows});
    std::unique_ptr<PackedWeight> packed = reusable ? std::move(pack.weight) : nullptr;
    for (std::int64_t group = 0; group < groups_; ++group) {
      const Tensor own = matrix.row_slice(group * (rows / groups_), rows / groups_);
      packed = ops.pack(own, compute, use, std::move(packed), {group, groups_});
    }
    pack.weight = std::move(packed);
    pack.version = version_;
    pack.compute = compute;
  }
  return *pack.weight;
}

void Parameter::pack_group(const OperatorTable& ops, std::int64_t group, PackFor use) {
  if (use != PackFor::forward && ops.packs_once(DType::bf16)) return;  // it has been packed
  const bool plain = ops.takes_plain_weights();
  Pack& pack = packs_[pack_of(ops, DType::bf16, use)];
  const Tensor values = plain ? owner_->rounded_frozen(ops, *this, group) : value_;
  pack.weight = ops.pack(values, DType::bf16, use, std::move(pack.weight), {group, groups_});
  pack.version = version_;
  pack.compute = DType::bf16;
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

void Parameter::initialise_held(std::span<float> held_values) const {
  if (!initialise_ && !initialise_row_) return;
  if (initialise_ && !sharded()) return initialise_(held_values);
  const std::int64_t whole_columns = whole_shape_.elements() / whole_shape_[0];
  std::vector<float> drawn(static_cast<std::size_t>(initialise_ ? whole_shape_.elements() : whole_columns));
  if (initialise_) initialise_(drawn);
  const ParameterSlice::Range held = columns();
  float* to = held_values.data();
  for (const Run& run : runs()) {
    for (std::int64_t row = run.whole_row; row < run.whole_row + run.rows; ++row) {
      if (!initialise_) initialise_row_(drawn, row);
      const std::int64_t first = initialise_ ? row * whole_columns : 0;
      to = std::copy_n(drawn.data() + first + held.first, held.count, to);
    }
  }
}

Parameter& Parameters::add(ParameterSpec spec) {
  assert(values_.size() == 0);
  Parameter& parameter = parameters_.emplace_back();
  parameter.owner_ = this;
  parameter.name_ = std::move(spec.name);
  parameter.shape_ = spec.slice.cut() ? held_shape(spec) : spec.shape;
  parameter.whole_shape_ = spec.shape;
  parameter.slice_ = std::move(spec.slice);
  parameter.whole_groups_ = spec.groups;
  const bool some = spec.groups > 1 && parameter.holding() == Holding::expert_parts;
  parameter.groups_ = some ? spec.groups * parameter.shape_[0] / spec.shape[0] : spec.groups;
  assert(parameter.shape_[0] % parameter.groups_ == 0);
  parameter.decayed_ = spec.decayed;
  parameter.rule_ = spec.rule;
  assert(!spec.rule.counts() || !parameter.sharded());
  parameter.initialise_ = std::move(spec.initialise);
  parameter.initialise_row_ = std::move(spec.initialise_row);
  return parameter;
}

std::int64_t Parameters::added_elements() const {
  std::int64_t elements = 0;
  for (const Parameter& parameter : parameters_) elements += parameter.shape().elements();
  return elements;
}

void Parameters::lay_out() {
  const auto place = [this](bool decayed, Holding holding, bool counts = false) {
    const std::size_t begin = elements_;
    for (Parameter& parameter : parameters_) {
      if (parameter.decayed_ != decayed || parameter.holding() != holding) continue;
      if (parameter.rule_.counts() != counts || parameter.rule_.by_rows()) continue;
      parameter.offset_ = elements_;
      elements_ += aligned(static_cast<std::size_t>(parameter.shape_.elements()));
    }
    const std::size_t count = elements_ - begin;
    const bool goes_on = !held_.empty() && held_.back().holding == holding && held_.back().decayed == decayed;
    if (goes_on) {
      held_.back().elements.count += count;
    } else if (count > 0) {
      held_.push_back({holding, decayed, {begin, count}});
    }
  };
  constexpr Holding order[] = {Holding::expert_parts, Holding::tensor_parts, Holding::replicated};
  for (const Holding holding : order) place(true, holding);
  decayed_elements_ = elements_;
  for (const Holding holding : order) place(false, holding);
  learned_elements_ = elements_;
  place(false, Holding::replicated, true);
}

void Parameters::allocate(bool trained, MemorySpace& memory, InitialValues values, DType moments) {
  lay_out();
  memory_ = &memory;
  values_later_ = values == InitialValues::later;
  moments_dtype_ = moments;
  trained_ = trained;
  if (trained) {
    gradients_ = SpaceMemory(memory, elements_ * sizeof(float));
    first_moments_ = SpaceMemory(memory, elements_ * size_of(moments));
    second_moments_ = SpaceMemory(memory, elements_ * size_of(moments));
    for (Parameter& parameter : parameters_) {
      if (parameter.rule_.by_rows()) {
        parameter.row_gradients_ = std::make_unique<RowGradients>();
        parameter.own_sums_ = SpaceMemory(memory, static_cast<std::size_t>(parameter.shape_[0]) * sizeof(float));
        parameter.row_sums_ = Tensor(parameter.own_sums_.data(), DType::f32, Shape{parameter.shape_[0]});
      } else {
        parameter.gradient_ = part(as_tensor(gradients()), parameter);
      }
    }
  }
  if (trained || !values_later_) allocate_values();
  if (!values_later_) initialise();
}

void Parameters::allocate_values() {
  values_ = SpaceMemory(*memory_, elements_ * sizeof(float));
  for (Parameter& parameter : parameters_) {
    if (parameter.rule_.by_rows()) {
      parameter.own_ = SpaceMemory(*memory_, static_cast<std::size_t>(parameter.shape_.elements()) * sizeof(float));
      parameter.value_ = Tensor(parameter.own_.data(), DType::f32, parameter.shape_);
    } else {
      parameter.value_ = part(as_tensor(values()), parameter);
    }
  }
}

void Parameters::initialise() {
  for (Parameter& parameter : parameters_) initialise(parameter);
}

void Parameters::initialise(Parameter& parameter) {
  const bool whole = !packs_by_group(parameter);
  std::vector<float> drawn;
  load(parameter, [&](std::span<float> held, std::int64_t first) {
    if (whole) return parameter.initialise_held(held);
    drawn.resize(static_cast<std::size_t>(parameter.shape_.elements()));
    if (first == 0) parameter.initialise_held(drawn);
    const std::int64_t columns = parameter.shape_.elements() / parameter.shape_[0];
    std::ranges::copy(std::span(drawn).subspan(static_cast<std::size_t>(first * columns), held.size()), held.begin());
  });
}

void Parameters::write_values(const Parameter& parameter, const FillRows& fill, std::int64_t first) {
  if (memory_->host()) return fill(parameter.value_.span<float>(), first);
  const AlignedMemory staging(parameter.value_.bytes());
  fill({reinterpret_cast<float*>(staging.data()), static_cast<std::size_t>(parameter.value_.elements())}, first);
  memory_->write(parameter.value_.raw(), staging.data(), parameter.value_.bytes());
}

bool Parameters::packs_by_group(const Parameter& parameter) const {
  return frozen_ && values_.size() == 0 && parameter.groups_ > 1 && frozen_->compute == DType::bf16 &&
         std::ranges::binary_search(frozen_->matrices, &parameter);
}

void Parameters::load_groups(Parameter& parameter, const FillRows& fill) {
  const std::int64_t rows = parameter.shape_[0] / parameter.groups_;
  const Shape shape{rows, parameter.shape_.elements() / parameter.shape_[0]};
  const SpaceMemory own(*memory_, static_cast<std::size_t>(shape.elements()) * sizeof(float));
  ++version_;
  ++parameter.version_;
  for (std::int64_t group = 0; group < parameter.groups_; ++group) {
    parameter.value_ = Tensor(own.data(), DType::f32, shape);
    if (memory_->holds_values()) write_values(parameter, fill, group * rows);
    parameter.pack_group(*frozen_->ops, group, PackFor::forward);
    if (frozen_->passes_gradient) parameter.pack_group(*frozen_->ops, group, PackFor::backward_input);
  }
  parameter.value_ = Tensor(nullptr, DType::f32, parameter.shape_);
}

bool Parameters::takes_blocks(const Parameter& parameter) const {
  if (!frozen_ || values_.size() > 0 || parameter.whole_groups_ == 1 || !frozen_->ops->takes_blocks()) return false;
  const ParameterSlice::Range columns = parameter.columns();
  return columns.first % mxfp4_block == 0 && columns.count % mxfp4_block == 0 &&
         std::ranges::binary_search(frozen_->matrices, &parameter);
}

void Parameters::load_blocks(Parameter& parameter, const FillBlocks& fill) {
  assert(takes_blocks(parameter));
  const std::int64_t rows = parameter.shape_[0] / parameter.groups_, columns = parameter.columns().count;
  const auto blocks = static_cast<std::size_t>(rows * columns / mxfp4_block);
  Mxfp4Room room{std::vector<std::uint8_t>(blocks * mxfp4_bytes), std::vector<std::uint8_t>(blocks), rows, columns};
  parameter.in_blocks_ = true;
  parameter.value_ = Tensor(nullptr, DType::f32, parameter.shape_);
  Parameter::Pack& pack = parameter.packs_[0];
  for (std::int64_t group = 0; group < parameter.groups_; ++group) {
    if (memory_->holds_values()) fill(room, group * rows);
    pack.weight = frozen_->ops->pack_blocks(room.view(), std::move(pack.weight), {group, parameter.groups_});
  }
  ++version_;
  pack.version = ++parameter.version_;
  pack.compute = frozen_->compute;
}

void Parameters::load(Parameter& parameter, const FillRows& fill) {
  if (parameter.in_blocks_) parameter.packs_[0] = {};
  parameter.in_blocks_ = false;
  if (packs_by_group(parameter)) return load_groups(parameter, fill);
  if (frozen_ && values_.size() == 0) {
    parameter.own_ = SpaceMemory(*memory_, static_cast<std::size_t>(parameter.shape_.elements()) * sizeof(float));
    parameter.value_ = Tensor(parameter.own_.data(), DType::f32, parameter.shape_);
  } else if (!parameter.value_.defined()) {
    allocate_values();
  }
  if (memory_->holds_values()) write_values(parameter, fill);
  ++version_;
  ++parameter.version_;
  if (!frozen_ || !pack_frozen(parameter)) return;
  assert(values_.size() == 0);  // else freeze_packed() has dropped nothing
  parameter.own_.reset();
  parameter.value_ = Tensor(nullptr, DType::f32, parameter.shape_);
}

void Parameters::shard_optimizer_state(ShardRange range) {
  assert(!shares_moments_ && range.first + range.count <= elements_);
  if (!trained()) return;
  first_moments_.reset();
  second_moments_.reset();
  first_moments_ = SpaceMemory(*memory_, range.count * size_of(moments_dtype_));
  second_moments_ = SpaceMemory(*memory_, range.count * size_of(moments_dtype_));
  kept_ = range;
  shares_moments_ = true;
}

ShardRange Parameters::kept_moments() const {
  return shares_moments_ ? kept_ : ShardRange{0, trained() ? elements_ : 0};
}

void Parameters::stage_shard(const OperatorTable& ops, ParameterBuffer which) {
  const auto first = static_cast<std::int64_t>(kept_.first);
  const auto count = static_cast<std::int64_t>(kept_.count);
  Tensor from = buffer(which);
  if (which == ParameterBuffer::values) from = from.flat_slice(first, count);
  assert(shares_moments_ && from.elements() == count);
  if (count == 0) return;
  ops.run(Cast{.from = from, .to = as_tensor(gradients()).flat_slice(first, count)});
}

void Parameters::load_gathered_values(const OperatorTable& ops) {
  assert(shares_moments_);
  const std::span<float> offered = gradients();
  const std::size_t end = kept_.first + kept_.count;
  ops.copy(as_tensor(offered.first(kept_.first)), as_tensor(values().first(kept_.first)));
  ops.copy(as_tensor(offered.subspan(end)), as_tensor(values().subspan(end)));
  clear_gradients(ops);
  values_changed();
}

void Parameters::load_gathered_moments(ParameterBuffer which) {
  const Tensor here = buffer(which);
  assert(shares_moments_ && here.elements() == static_cast<std::int64_t>(kept_.count));
  std::vector<float> moments(kept_.count);
  memory_->read(reinterpret_cast<std::byte*>(moments.data()), gradients_.data() + kept_.first * sizeof(float),
                moments.size() * sizeof(float));
  if (here.dtype() == DType::bf16) {
    const std::vector<bfloat16> rounded(moments.begin(), moments.end());
    memory_->write(here.raw(), reinterpret_cast<const std::byte*>(rounded.data()), here.bytes());
  } else {
    memory_->write(here.raw(), reinterpret_cast<const std::byte*>(moments.data()), here.bytes());
  }
  memory_->zero(gradients_.data(), gradients_.size());
}

std::vector<Parameter*> Parameters::row_tables() {
  std::vector<Parameter*> tables;
  for (Parameter& parameter : parameters_) {
    if (parameter.row_gradients_ != nullptr) tables.push_back(&parameter);
  }
  return tables;
}

void Parameters::begin_backward(std::uint32_t micro_batch) {
  for (const Parameter* table : row_tables()) table->row_gradients_->begin(micro_batch);
}

void Parameters::clear_gradients(const OperatorTable& ops) {
  if (elements_ > 0) ops.zero(as_tensor(gradients()));
  for (const Parameter* table : row_tables()) table->row_gradients_->clear();
}

void Parameters::values_changed() {
  ++version_;
  for (Parameter& parameter : parameters_) {
    if (parameter.value_.defined()) ++parameter.version_;
  }
}

void Parameters::freeze_packed(const OperatorTable& ops, DType compute, std::span<Parameter* const> matrices,
                               bool passes_gradient, Parameter* table) {
  assert(!trained());
  frozen_ = Frozen{&ops, compute, {matrices.begin(), matrices.end()}, table, passes_gradient};
  std::ranges::sort(frozen_->matrices);
  if (values_.size() == 0) return;  // load() packs
  std::vector<Parameter*> dropped;
  for (Parameter& parameter : parameters_) {
    if (pack_frozen(parameter)) dropped.push_back(&parameter);
  }
  if (dropped.empty()) return;
  for (Parameter* parameter : dropped) parameter->value_ = Tensor(nullptr, DType::f32, parameter->shape_);
  for (Parameter& parameter : parameters_) {
    if (parameter.value_.defined()) keep_apart(parameter);
  }
  values_.reset();
}

bool Parameters::pack_frozen(Parameter& parameter) {
  const bool matrix = std::ranges::binary_search(frozen_->matrices, &parameter);
  const bool table = &parameter == frozen_->table;
  const bool rows_packed =
      table && parameter.shape_.elements() > 0 && frozen_->compute == DType::bf16 && exact_in_bf16(parameter);
  if (!matrix && !rows_packed) return false;
  const PackedWeight& forward = parameter.packed(*frozen_->ops, frozen_->compute, PackFor::forward);
  if (matrix && frozen_->passes_gradient) {
    (void)parameter.packed(*frozen_->ops, frozen_->compute, PackFor::backward_input);
  }
  if (table && !forward.rows_readable()) {
    if (!matrix) parameter.packs_[0].weight.reset();
    return false;
  }
  if (table) return rows_packed;
  const bool refers_to_values = frozen_->compute == DType::f32 && forward.bytes() == 0;
  return !refers_to_values;
}

bool Parameters::exact_in_bf16(const Parameter& table) const {
  if (!memory_->holds_values()) return true;  // as zeros are
  AlignedMemory copy;
  std::span<const float> values(table.value_.data<float>(), static_cast<std::size_t>(table.shape_.elements()));
  if (!memory_->host()) {
    copy = AlignedMemory(table.value_.bytes());
    memory_->read(copy.data(), table.value_.raw(), table.value_.bytes());
    values = {reinterpret_cast<const float*>(copy.data()), values.size()};
  }
  return std::ranges::all_of(values, [](float value) { return float(bfloat16(value)) == value; });
}

void Parameters::keep_apart(Parameter& parameter) {
  const std::size_t bytes = parameter.value_.bytes();
  SpaceMemory own(*memory_, bytes);
  if (memory_->holds_values()) {
    const AlignedMemory host(bytes);
    memory_->read(host.data(), parameter.value_.raw(), bytes);
    memory_->write(own.data(), host.data(), bytes);
  }
  parameter.own_ = std::move(own);
  parameter.value_ = Tensor(parameter.own_.data(), DType::f32, parameter.shape_);
}

std::span<bfloat16> Parameters::rounded_values() const {
  if (rounded_.size() == 0) return {};
  return {reinterpret_cast<bfloat16*>(rounded_.data()), elements_};
}

Tensor Parameters::rounded_frozen(const OperatorTable& ops, Parameter& parameter, std::int64_t group) {
  const Shape& whole = parameter.shape_;
  const auto bytes = static_cast<std::size_t>(whole.elements()) * sizeof(bfloat16);
  const bool in_all = rounded_.size() > 0;  // it was frozen with values
  if (!in_all && parameter.rounded_.size() == 0) parameter.rounded_ = SpaceMemory(*memory_, bytes);
  std::byte* const place = in_all ? rounded_.data() + parameter.offset_ * sizeof(bfloat16) : parameter.rounded_.data();
  const Tensor all(place, DType::bf16, whole);
  const std::int64_t count = parameter.value_.elements();
  const Tensor own = all.flat_slice(group * count, count).reshaped(parameter.value_.shape());
  ops.run(Cast{.from = parameter.value_, .to = own});
  return own;
}

Tensor Parameters::rounded(const OperatorTable& ops, Parameter& parameter) {
  if (values_.size() == 0) return rounded_frozen(ops, parameter);
  if (rounded_.size() == 0) rounded_ = SpaceMemory(*memory_, elements_ * sizeof(bfloat16));
  if (rounded_version_ != version_) {
    const auto count = static_cast<std::int64_t>(elements_);
    ops.run(Cast{.from = as_tensor(values()), .to = Tensor(rounded_.data(), DType::bf16, Shape{count})});
    rounded_version_ = version_;
  }
  return {rounded_.data() + parameter.offset_ * sizeof(bfloat16), DType::bf16, parameter.shape_};
}

Parameter* Parameters::find(std::string_view name) {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& parameter) { return parameter.name() == name; });
  return found == parameters_.end() ? nullptr : &*found;
}

Tensor Parameters::part(const Tensor& flat_buffer, const Parameter& parameter) const {
  assert(flat_buffer.elements() == elements());
  return {flat_buffer.raw() + parameter.offset_ * size_of(flat_buffer.dtype()), flat_buffer.dtype(), parameter.shape_};
}

Tensor Parameters::buffer(ParameterBuffer which) const {
  switch (which) {
    case ParameterBuffer::values:
      return as_tensor(values());
    case ParameterBuffer::gradients:
      return as_tensor(gradients());
    case ParameterBuffer::first_moments:
      return first_moments();
    case ParameterBuffer::second_moments:
      return second_moments();
  }
  return {};
}

std::vector<std::span<float>> Parameters::gradients_of(Holding holding) const {
  std::vector<std::span<float>> spans;
  if (gradients().empty()) return spans;
  for (const HeldRange& range : held_) {
    if (range.holding == holding) spans.push_back(gradients().subspan(range.elements.first, range.elements.count));
  }
  return spans;
}

std::span<float> Parameters::flat(const SpaceMemory& memory) const {
  if (memory.size() == 0) return {};
  return {reinterpret_cast<float*>(memory.data()), elements_};
}

Tensor Parameters::kept(const SpaceMemory& memory) const {
  return {memory.data(), moments_dtype_, Shape{static_cast<std::int64_t>(kept_moments().count)}};
}

}  // namespace maestro
