// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/cpu_operator_table.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/ops/adamw_coefficients.hpp"
#include "runtime/ops/cpu/attention/rotary_kernels.hpp"
#include "runtime/ops/cpu/convolution/causal_conv.hpp"
#include "runtime/ops/cpu/delta/delta_rule.hpp"
#include "runtime/ops/cpu/experts/expert_rows.hpp"
#include "runtime/ops/cpu/experts/grouped_bias.hpp"
#include "runtime/ops/cpu/latent/latent_heads.hpp"
#include "runtime/ops/cpu/losses/top_k.hpp"
#include "runtime/ops/cpu/operands.hpp"
#include "runtime/ops/cpu/pointwise/flat_kernels.hpp"
#include "runtime/ops/cpu/pointwise/head_norm_kernels.hpp"
#include "runtime/ops/cpu/pointwise/norm_kernels.hpp"
#include "runtime/ops/element_math.hpp"

namespace maestro::cpu {

namespace {

float* floats_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<float>() : nullptr;
}

/// Returns the arguments that HeadNorm and HeadNormBackward share.
template <class Op>
HeadNormCall head_norm_call(const Op& op) {
  const AttentionShape& shape = op.shape;
  assert(op.x.columns() == shape.qkv_columns() && (op.whole || op.ranks == 1));
  const std::int64_t queries = shape.heads * shape.head_size;
  const std::int64_t keys = shape.kv_heads * shape.head_size;
  const std::int64_t query_groups = op.whole ? 1 : shape.heads;
  const std::int64_t key_groups = op.whole ? 1 : shape.kv_heads;
  assert(op.query_weight.elements() == queries / query_groups && op.key_weight.elements() == keys / key_groups);
  assert(op.sums.elements() == op.x.rows() * (query_groups + key_groups));
  HeadNormCall call{};
  call.x = in(op.x);
  call.groups[0] = {0, query_groups, queries / query_groups, 0, op.query_weight.template data<float>(), nullptr};
  call.groups[1] = {queries, key_groups, keys / key_groups, query_groups, op.key_weight.template data<float>(),
                    nullptr};
  call.sums = op.sums.template data<float>();
  call.rows = op.x.rows();
  call.columns = op.x.columns();
  call.normed = queries + keys;
  call.ranks = op.ranks;
  call.epsilon = static_cast<float>(op.epsilon);
  call.offset = static_cast<float>(op.offset);
  return call;
}

Isa checked(Isa isa) {
  if (supported(isa)) return isa;
  throw JobError("CPU operators: this CPU cannot run " + std::string(name_of(isa)) + " kernels; the best it runs is " +
                     std::string(name_of(supported_isas().back())),
                 ErrorCode::unavailable);
}

Bf16Products checked(Bf16Products bf16) {
  if (bf16 == Bf16Products::converted || native_bf16_supported()) return bf16;
  throw JobError("CPU operators: this CPU has no bf16 dot products; use converted ones", ErrorCode::unavailable);
}

}  // namespace

CpuOperatorTable::CpuOperatorTable(Isa isa, Bf16Products bf16)
    : isa_(checked(isa)),
      bf16_(checked(bf16)),
      pointwise_(pointwise_kernels(isa)),
      products_(isa, bf16, scratch_),
      attention_(isa, fast_bf16_dots() ? bf16 : Bf16Products::converted, scratch_),
      losses_(isa, products_, scratch_) {}

std::unique_ptr<PackedWeight> CpuOperatorTable::pack(const Tensor& w, DType compute, PackFor use,
                                                     std::unique_ptr<PackedWeight> reuse, WeightGroup group) const {
  return products_.pack(w, compute, use, std::move(reuse), group);
}

void CpuOperatorTable::run(const Linear& op) const {
  if (!op.pre.defined()) return products_.linear(op.x, *op.w, op.bias, op.y, op.activation, op.rows_alone);
  products_.linear(op.x, *op.w, op.bias, op.pre, {}, op.rows_alone);
  run(Gelu{.x = op.pre, .y = op.y, .kind = op.activation.value()});
}

void CpuOperatorTable::run(const LinearBackwardInput& op) const {
  assert(!op.pre.defined() || !op.accumulate);
  products_.linear_backward_input(op.dy, *op.w, op.dx, op.accumulate);
  if (op.pre.defined()) run(GeluBackward{.dy = op.dx, .x = op.pre, .dx = op.dx, .kind = op.activation});
}

void CpuOperatorTable::run(const LinearBackwardWeight& op) const {
  products_.linear_backward_weight(op.dy, op.x, op.dw, op.dbias);
}

void CpuOperatorTable::run(const Norm& op) const {
  assert(op.offset == 0 || !op.bias.defined());
  assert(op.mean.defined() == op.bias.defined() && op.sum.defined() == op.added.defined());
  if (op.added.defined()) run(Add{.a = op.x, .b = op.added, .out = op.sum});
  const Tensor& x = op.added.defined() ? op.sum : op.x;
  const NormCall call{.x = in(x),
                      .y = out(op.y),
                      .weight = op.weight.data<float>(),
                      .bias = floats_or_null(op.bias),
                      .mean = floats_or_null(op.mean),
                      .rstd = op.rstd.data<float>(),
                      .rows = x.rows(),
                      .columns = x.columns(),
                      .epsilon = static_cast<float>(op.epsilon),
                      .offset = static_cast<float>(op.offset)};
  const NormKernels& kernels = norm_kernels(isa_);
  op.bias.defined() ? kernels.layer_norm(call) : kernels.rms_norm(call);
}

void CpuOperatorTable::run(const NormBackward& op) const {
  assert(op.dbias.defined() == (op.mean.defined() && op.dweight.defined()));
  const NormBackwardCall call{.dy = in(op.dy),
                              .x = in(op.x),
                              .weight = op.weight.data<float>(),
                              .mean = floats_or_null(op.mean),
                              .rstd = op.rstd.data<float>(),
                              .dx = out(op.dx),
                              .accumulate = op.accumulate,
                              .dweight = floats_or_null(op.dweight),
                              .dbias = floats_or_null(op.dbias),
                              .rows = op.x.rows(),
                              .columns = op.x.columns(),
                              .offset = static_cast<float>(op.offset)};
  const NormKernels& kernels = norm_kernels(isa_);
  op.mean.defined() ? kernels.layer_norm_backward(call) : kernels.rms_norm_backward(call);
  if (op.rounded.defined()) run(Cast{.from = op.dx, .to = op.rounded});
}

void CpuOperatorTable::run(const HeadNorm& op) const {
  HeadNormCall call = head_norm_call(op);
  call.sums_known = op.phase == HeadNormPhase::values;
  if (op.phase != HeadNormPhase::sums) call.y = out(op.y);
  head_norm_kernels(isa_).forward(call);
}

void CpuOperatorTable::run(const HeadNormBackward& op) const {
  HeadNormBackwardCall call{.norm = head_norm_call(op),
                            .dy = in(op.dy),
                            .dx = {},
                            .dots = op.dots.data<float>(),
                            .dots_known = op.phase == HeadNormPhase::values};
  call.norm.groups[0].dweight = floats_or_null(op.dquery_weight);
  call.norm.groups[1].dweight = floats_or_null(op.dkey_weight);
  if (op.phase != HeadNormPhase::sums) call.dx = out(op.dx);
  head_norm_kernels(isa_).backward(call);
}

void CpuOperatorTable::run(const Gelu& op) const {
  pointwise_.gelu(op.kind, in(op.x), out(op.y), op.x.elements());
}

void CpuOperatorTable::run(const GeluBackward& op) const {
  pointwise_.gelu_backward(op.kind, in(op.dy), in(op.x), out(op.dx), op.x.elements());
}

void CpuOperatorTable::run(const Glu& op) const {
  assert(op.x.columns() == 2 * op.y.columns());
  pointwise_.glu(op.gate, in(op.x), out(op.y), op.y.rows(), op.y.columns());
}

void CpuOperatorTable::run(const GluBackward& op) const {
  assert(op.x.columns() == 2 * op.dy.columns());
  pointwise_.glu_backward(op.gate, in(op.dy), in(op.x), out(op.dx), op.dy.rows(), op.dy.columns());
}

void CpuOperatorTable::run(const Softcap& op) const {
  pointwise_.softcap(out(op.x), op.x.elements(), static_cast<float>(op.cap));
}

void CpuOperatorTable::run(const Add& op) const {
  assert(op.a.elements() == op.b.elements() && op.a.elements() == op.out.elements());
  pointwise_.add(in(op.a), in(op.b), out(op.out), op.a.elements());
}

void CpuOperatorTable::run(const Cast& op) const {
  assert(op.from.elements() == op.to.elements());
  pointwise_.cast(in(op.from), out(op.to), op.from.elements());
}

void CpuOperatorTable::run(const Embedding& op) const {
  const std::int64_t columns = op.y.columns();
  const auto id = op.ids.span<std::int32_t>();
  ScratchPool::Lease scratch = scratch_.lease();
  float* unpacked = op.packed != nullptr ? scratch.floats(columns) : nullptr;
  const auto word = [&](std::int64_t number) -> const float* {
    if (unpacked == nullptr) return op.table.data<float>() + number * columns;
    products_.copy_row(*op.packed, number, unpacked);
    return unpacked;
  };
  assert(!op.positions_table.defined() || op.positions.size() >= id.size());
  const auto scale = static_cast<float>(op.scale);
  float* to = op.y.data<float>();
  for (std::size_t row = 0; row < id.size(); ++row, to += columns) {
    assert(op.packed != nullptr || id[row] < op.table.rows());
    std::fill_n(to, columns, 0.0F);
    if (op.positions_table.defined()) {
      assert(op.positions[row] >= 0 && op.positions[row] < op.positions_table.rows());
      std::copy_n(op.positions_table.data<float>() + op.positions[row] * columns, columns, to);
    }
    if (id[row] >= 0) pointwise_.add_scaled(word(id[row]), scale, to, columns);
  }
}

void CpuOperatorTable::run(const EmbeddingBackward& op) const {
  const std::int64_t columns = op.dy.columns();
  const auto id = op.ids.span<std::int32_t>();
  const auto add_row = [&](const Tensor& to, std::int32_t row, const float* from, double scale) {
    assert(row >= 0 && row < to.rows());
    pointwise_.add_scaled(from, static_cast<float>(scale), to.data<float>() + row * columns, columns);
  };
  for (std::size_t row = 0; row < id.size(); ++row) {
    const float* gradient = op.dy.data<float>() + static_cast<std::int64_t>(row) * columns;
    if (op.dtable.defined() && id[row] >= 0) add_row(op.dtable, id[row], gradient, op.scale);
    if (op.dpositions.defined()) add_row(op.dpositions, op.positions[row], gradient, 1);
  }
}

void CpuOperatorTable::run(const ShiftIds& op) const {
  assert(op.ids.elements() == op.out.elements());
  const std::span<const std::int32_t> from = op.ids.span<std::int32_t>();
  const std::span<std::int32_t> to = op.out.span<std::int32_t>();
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = element::shifted_id(from[i], op.by, op.limit);
}

void CpuOperatorTable::run(const PickColumns& op) const {
  const std::int64_t picked = op.columns.columns();
  assert(op.from.rows() == op.columns.rows() && op.columns.elements() == op.to.elements());
  for (std::int64_t row = 0; row < op.columns.rows(); ++row) {
    const std::int32_t* values = op.from.data<std::int32_t>() + row * op.from.columns();
    const std::int32_t* chosen = op.columns.data<std::int32_t>() + row * picked;
    std::int32_t* result = op.to.data<std::int32_t>() + row * picked;
    for (std::int64_t i = 0; i < picked; ++i) result[i] = values[chosen[i]];
  }
}

namespace {

/// Fetches the row that is selected some rows after `row`: rows of a large table are in no cache.
void prefetch_selected(const IndexSelect& op, std::size_t row) {
  constexpr std::size_t ahead = 16, line = 64, most_bytes = 1024;
  if (row + ahead >= op.index.size()) return;
  const ConstTensor later = op.from.row_slice(op.index[row + ahead], 1);
  for (std::size_t at = 0; at < std::min(later.bytes(), most_bytes); at += line) __builtin_prefetch(later.raw() + at);
}

}  // namespace

void CpuOperatorTable::run(const IndexSelect& op) const {
  const std::int64_t columns = op.from.columns();
  assert(op.to.columns() == columns && op.to.rows() == static_cast<std::int64_t>(op.index.size()));
  for (std::size_t row = 0; row < op.index.size(); ++row) {
    prefetch_selected(op, row);
    pointwise_.cast(in(op.from.row_slice(op.index[row], 1)), out(op.to.row_slice(static_cast<std::int64_t>(row), 1)),
                    columns);
  }
}

void CpuOperatorTable::run(const IndexAdd& op) const {
  const std::int64_t columns = op.to.columns();
  assert(op.rows.columns() == columns && op.rows.rows() == static_cast<std::int64_t>(op.index.size()));
  for (std::size_t row = 0; row < op.index.size(); ++row) {
    assert(op.index[row] >= 0 && op.index[row] < op.to.rows());
    const Tensor sum = op.to.row_slice(op.index[row], 1);
    pointwise_.add(in(sum), in(op.rows.row_slice(static_cast<std::int64_t>(row), 1)), out(sum), columns);
  }
}

void CpuOperatorTable::run(const Rotary& op) const {
  const AttentionShape& shape = op.shape;
  const auto half = static_cast<std::int64_t>(op.frequencies->inverse.size());
  assert(2 * half <= shape.head_size && op.qkv.columns() == shape.qkv_columns());
  assert(op.direction == 1 || op.direction == -1);
  const std::int64_t rows = op.qkv.rows();
  if (rows == 0) return;
  const auto positions = static_cast<std::int64_t>(op.positions.size());
  const std::vector<std::uint8_t>& axis = op.frequencies->axis;
  assert(positions >= rows && positions % rows == 0 && (axis.empty() || std::ssize(axis) == half));
  const std::int64_t last = *std::ranges::max_element(op.positions);
  const auto angles = rotary_.angles(*op.frequencies, last + 1);
  rotary_kernels(isa_).rotate({.qkv = out(op.qkv),
                               .rows = rows,
                               .stride = op.qkv.columns(),
                               .heads = shape.heads + shape.kv_heads,
                               .head_size = shape.head_size,
                               .half = half,
                               .positions = op.positions.data(),
                               .axes = positions / rows,
                               .axis = axis.empty() || positions == rows ? nullptr : axis.data(),
                               .cosines = angles->cosines.data(),
                               .sines = angles->sines.data(),
                               .direction = static_cast<float>(op.direction)});
}

void CpuOperatorTable::run(const Attention& op) const {
  attention_.forward({op.qkv, op.out, op.lse}, op.shape, {op.layout, op.queries});
}

void CpuOperatorTable::run(const AttentionBackward& op) const {
  attention_.backward({op.qkv, op.out, op.lse}, {op.dout, op.dqkv}, op.shape, {op.layout, op.queries});
}

void CpuOperatorTable::run(const CachedAttention& op) const {
  attention_.run(op);
}

void CpuOperatorTable::run(const CausalConv& op) const {
  causal_conv(isa_, scratch_, op);
}

void CpuOperatorTable::run(const CausalConvBackward& op) const {
  causal_conv_backward(isa_, scratch_, op);
}

void CpuOperatorTable::run(const CachedConv& op) const {
  cached_conv(isa_, scratch_, op);
}

void CpuOperatorTable::run(const Route& op) const {
  route(scratch_, op);
}

void CpuOperatorTable::run(const RouteBackward& op) const {
  route_backward(op);
}

void CpuOperatorTable::run(const CountRoutes& op) const {
  count_routes(op);
}

void CpuOperatorTable::run(const SortRoutes& op) const {
  sort_routes(scratch_, op);
}

void CpuOperatorTable::run(const GroupedLinear& op) const {
  products_.grouped_linear(op);
}

void CpuOperatorTable::run(const GroupedLinearBackwardInput& op) const {
  products_.grouped_linear_backward_input(op);
}

void CpuOperatorTable::run(const GroupedLinearBackwardWeight& op) const {
  products_.grouped_linear_backward_weight(op);
}

void CpuOperatorTable::run(const CombineRows& op) const {
  combine_rows(pointwise_, scratch_, op);
}

void CpuOperatorTable::run(const LatentHeads& op) const {
  latent_heads(op);
}

void CpuOperatorTable::run(const LatentHeadsBackward& op) const {
  latent_heads_backward(op);
}

Pending<LossSums> CpuOperatorTable::run(const CrossEntropyLoss& op) const {
  return losses_.cross_entropy(op.head, op.part);
}

Pending<LossSums> CpuOperatorTable::run(const DistillationLoss& op) const {
  return losses_.distillation(op.head, op.part);
}

void CpuOperatorTable::run(const TopK& op) const {
  top_k(isa_, op.logits, op.values, op.indices, op.columns);
}

void CpuOperatorTable::run(const AdamW& op) const {
  const auto count = static_cast<std::int64_t>(op.value.size());
  if (count == 0) return;
  assert(op.gradient.size() == op.value.size() && op.mean.elements() == count && op.variance.elements() == count);
  assert(op.mean.dtype() == op.variance.dtype());
  flat_kernels(isa_).adamw({.value = op.value.data(),
                            .gradient = op.gradient.data(),
                            .mean = out(op.mean),
                            .variance = out(op.variance),
                            .count = count,
                            .step = adamw_coefficients(op.step)});
  if (op.rounded.empty()) return;
  assert(op.rounded.size() == op.value.size());
  pointwise_.cast({op.value.data(), false}, {op.rounded.data(), true}, count);
}

void CpuOperatorTable::run(const StepCounts& op) const {
  step_counts(op);
}

Pending<double> CpuOperatorTable::run(const SumOfSquares& op) const {
  return flat_kernels(isa_).sum_of_squares(op.values.data(), static_cast<std::int64_t>(op.values.size()));
}

void CpuOperatorTable::run(const AddInto& op) const {
  assert(op.into.size() == op.values.size());
  pointwise_.add({op.into.data(), false}, {op.values.data(), false}, {op.into.data(), false},
                 static_cast<std::int64_t>(op.into.size()));
}

void CpuOperatorTable::run(const DeltaRule& op) const {
  delta_rule(isa_, scratch_, op);
}

void CpuOperatorTable::run(const DeltaRuleBackward& op) const {
  delta_rule_backward(isa_, scratch_, op);
}

void CpuOperatorTable::run(const CachedDelta& op) const {
  cached_delta(isa_, scratch_, op);
}

void CpuOperatorTable::run(const GroupedBias& op) const {
  grouped_bias(isa_, scratch_, op);
}

void CpuOperatorTable::run(const GroupedBiasBackward& op) const {
  grouped_bias_backward(isa_, scratch_, op);
}

void CpuOperatorTable::run(const AttentionSinks& op) const {
  const std::int64_t heads = op.sinks.elements();
  assert(op.lse.columns() == heads && op.factors.elements() == op.lse.elements());
  const float* sinks = op.sinks.data<float>();
  float *lse = op.lse.data<float>(), *factors = op.factors.data<float>();
  for (std::int64_t i = 0; i < op.lse.elements(); ++i) {
    const element::SinkTerm term = element::sink_term(lse[i], sinks[i % heads]);
    factors[i] = term.factor;
    lse[i] = term.lse;
  }
}

void CpuOperatorTable::run(const AttentionSinksBackward& op) const {
  const std::int64_t heads = op.sinks.elements();
  assert(op.lse.columns() == heads && op.dots.elements() == op.lse.elements() && op.dsinks.elements() == heads);
  const float *sinks = op.sinks.data<float>(), *lse = op.lse.data<float>(), *dots = op.dots.data<float>();
  float* dsinks = op.dsinks.data<float>();
  for (std::int64_t i = 0; i < op.lse.elements(); ++i) {
    dsinks[i % heads] -= element::exponential(sinks[i % heads] - lse[i]) * dots[i];
  }
}

}  // namespace maestro::cpu
