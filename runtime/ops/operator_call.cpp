// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/operator_call.hpp"

#include <algorithm>
#include <initializer_list>

namespace maestro {

namespace {

using Sizes = std::initializer_list<std::int64_t>;

OperatorCall made(std::string_view op, DType dtype, Sizes sizes, double flops,
                  std::initializer_list<ConstTensor> tensors) {
  OperatorCall call{std::string(op), dtype, {}, flops, 0};
  std::ranges::copy(sizes, call.sizes.begin());
  for (const ConstTensor& tensor : tensors) call.bytes += tensor.defined() ? static_cast<double>(tensor.bytes()) : 0;
  return call;
}

double product(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

/// Returns the call of an operator that passes over its tensors once.
OperatorCall pointwise(std::string_view op, const ConstTensor& largest, double flops_per_element,
                       std::initializer_list<ConstTensor> tensors, std::int64_t kind = 0) {
  return made(op, largest.dtype(), {largest.rows(), largest.columns(), kind},
              flops_per_element * static_cast<double>(largest.elements()), tensors);
}

/// Returns the keys that the first `queries` queries of a sequence see under a causal mask, added up.
double seen_keys(const AttentionShape& shape, double queries) {
  const double window = shape.window > 0 ? std::min(static_cast<double>(shape.window), queries) : queries;
  return window * (queries - window) + window * (window + 1) / 2;
}

/// Returns the (query, key) pairs that a part's attention scores, for one head.
double scored_pairs(const AttentionShape& shape, const SequenceLayout& layout, const QueryPart& part) {
  double pairs = 0;
  for (std::int64_t at = 0; at < layout.sequences(); ++at) {
    const auto index = static_cast<std::size_t>(at);
    const std::int64_t length = layout.offsets[index + 1] - layout.offsets[index];
    const QueryTiles tiles(part, at, length);
    for (std::int64_t round = 0; tiles.first_row(round) < length; ++round) {
      const auto begin = static_cast<double>(tiles.first_row(round));
      const auto end = static_cast<double>(std::min(tiles.first_row(round) + tiles.rows, length));
      pairs +=
          shape.causal ? seen_keys(shape, end) - seen_keys(shape, begin) : (end - begin) * static_cast<double>(length);
    }
  }
  return pairs;
}

/// Returns attention's call; `products` counts its products per scored pair.
template <class Op>
OperatorCall attention(std::string_view name, const Op& op, double products,
                       std::initializer_list<ConstTensor> tensors) {
  const AttentionShape& shape = op.shape;
  const double pairs = scored_pairs(shape, op.layout, op.queries);
  const double flops = 2 * products * pairs * static_cast<double>(shape.heads * shape.head_size);
  return made(name, op.qkv.dtype(),
              {op.qkv.rows(), shape.heads, shape.kv_heads, shape.head_size, static_cast<std::int64_t>(pairs),
               op.layout.sequences(), shape.softcap > 0 ? 1 : 0},
              flops, tensors);
}

/// Returns the call of a convolution; `sums`: how many of its cost it has.
template <class Op>
OperatorCall convolution(std::string_view op, const Op& call, const Tensor& y, double sums,
                         std::initializer_list<ConstTensor> tensors) {
  const ConvolutionShape& shape = call.shape;
  return made(op, y.dtype(),
              {y.rows(), y.columns(), shape.width, shape.dilation, (shape.gated ? 1 : 0) + (shape.silu ? 2 : 0)},
              2 * sums * static_cast<double>(y.elements() * shape.width), tensors);
}

/// Returns the call of a delta rule. Per row and value head: `states` products with a state, and `pairs` with a chunk's
/// rows; keys and queries meet once a key head.
OperatorCall delta(std::string_view op, const Tensor& qkv, const DeltaShape& shape, std::int64_t chunks, double states,
                   double pairs, std::initializer_list<ConstTensor> tensors) {
  const auto key = static_cast<double>(shape.key_columns()), value = static_cast<double>(shape.value_columns());
  const auto chunk = static_cast<double>(delta_chunk);
  const double flops =
      4 * chunk * key + 2 * states * static_cast<double>(shape.key_size) * value + 2 * pairs * chunk * value;
  return made(op, qkv.dtype(),
              {qkv.rows(), shape.key_heads, shape.value_heads, shape.key_size, shape.value_size, chunks},
              flops * static_cast<double>(qkv.rows()), tensors);
}

std::int64_t chunks_of(const SequenceLayout& layout) {
  std::int64_t chunks = 0;
  for (std::size_t i = 1; i < layout.offsets.size(); ++i) {
    chunks += (layout.offsets[i] - layout.offsets[i - 1] + delta_chunk - 1) / delta_chunk;
  }
  return chunks;
}

std::int64_t rows_with_target(const Tensor& targets, bool readable) {
  if (!readable) return targets.elements();
  const auto values = targets.span<std::int32_t>();
  return std::ranges::count_if(values, [](std::int32_t target) { return target >= 0; });
}

/// Returns the FLOPs for a row of an output layer and its gradients.
double head_flops(const CrossEntropyHead& head) {
  const double passes = 1 + (head.dhidden.defined() ? 1 : 0) + (head.dhead.defined() ? 1 : 0);
  return passes * product(1, head.vocabulary, head.hidden.columns());
}

std::int64_t gradients_of(const CrossEntropyHead& head) {
  return (head.dhidden.defined() ? 1 : 0) + (head.dhead.defined() ? 2 : 0);
}

std::int64_t kind_of(GeluKind kind) {
  return static_cast<std::int64_t>(kind);
}

double head_bytes(const CrossEntropyHead& head) {
  return static_cast<double>(head.vocabulary * head.hidden.columns()) * sizeof(float) * (head.dhead.defined() ? 3 : 1);
}

/// Returns the call of a product of rows in groups, (R, K) with (R, N); weights of as many groups as can have rows are
/// read.
OperatorCall grouped(std::string_view op, const Tensor& x, const Tensor& y, const Tensor& offsets) {
  const std::int64_t rows = x.rows(), n = y.columns(), k = x.columns(), groups = offsets.elements() - 1;
  OperatorCall call = made(op, x.dtype(), {rows, n, k, groups}, product(rows, n, k), {x, y});
  call.bytes += static_cast<double>(std::min(rows, groups) * n * k) * static_cast<double>(size_of(x.dtype()));
  return call;
}

}  // namespace

template <>
OperatorCall call_of(const Zero& op, bool) {
  return pointwise("zero", op.to, 0, {op.to});
}
template <>
OperatorCall call_of(const Copy& op, bool) {
  return pointwise("copy", op.from, 0, {op.from, op.to});
}
template <>
OperatorCall call_of(const Upload& op, bool) {
  return pointwise("upload", op.from, 0, {op.from, op.to});
}
template <>
OperatorCall call_of(const Download& op, bool) {
  return pointwise("download", op.from, 0, {op.from, op.to});
}
template <>
OperatorCall call_of(const Put& op, bool) {
  return pointwise("put", op.to, 0, {op.to});
}
template <>
OperatorCall call_of(const Linear& op, bool) {
  const std::int64_t m = op.x.rows(), n = op.y.columns(), k = op.x.columns();
  OperatorCall call =
      made("linear", op.x.dtype(), {m, n, k, op.activation ? 1 + kind_of(*op.activation) : 0, op.pre.defined() ? 1 : 0},
           product(m, n, k), {op.x, op.y, op.pre, op.bias});
  call.bytes += static_cast<double>(n * k) * static_cast<double>(size_of(op.x.dtype()));
  return call;
}
template <>
OperatorCall call_of(const LinearBackwardInput& op, bool) {
  const std::int64_t m = op.dy.rows(), n = op.dy.columns(), k = op.dx.columns();
  OperatorCall call = made("linear_backward_input", op.dy.dtype(),
                           {m, n, k, op.accumulate ? 1 : 0, op.pre.defined() ? 1 + kind_of(op.activation) : 0},
                           product(m, n, k), {op.dy, op.dx, op.pre});
  call.bytes += static_cast<double>(n * k) * static_cast<double>(size_of(op.dy.dtype()));
  return call;
}
template <>
OperatorCall call_of(const LinearBackwardWeight& op, bool) {
  const std::int64_t m = op.dy.rows(), n = op.dy.columns(), k = op.x.columns();
  return made("linear_backward_weight", op.dy.dtype(), {m, n, k, op.dbias.defined() ? 1 : 0}, product(m, n, k),
              {op.dy, op.x, op.dw, op.dw, op.dbias});
}
template <>
OperatorCall call_of(const Norm& op, bool) {
  return pointwise("norm", op.x, 8, {op.x, op.added, op.sum, op.y}, op.added.defined() ? 1 : 0);
}
template <>
OperatorCall call_of(const NormBackward& op, bool) {
  return pointwise("norm_backward", op.x, 16, {op.dy, op.x, op.dx, op.rounded},
                   (op.accumulate ? 1 : 0) + (op.dweight.defined() ? 2 : 0) + (op.rounded.defined() ? 4 : 0));
}
template <>
OperatorCall call_of(const HeadNorm& op, bool) {
  return pointwise("head_norm", op.x, 8, {op.x, op.y}, static_cast<std::int64_t>(op.phase));
}
template <>
OperatorCall call_of(const HeadNormBackward& op, bool) {
  return pointwise("head_norm_backward", op.x, 16, {op.dy, op.x, op.dx}, static_cast<std::int64_t>(op.phase));
}
template <>
OperatorCall call_of(const Gelu& op, bool) {
  return pointwise("gelu", op.x, 12, {op.x, op.y}, kind_of(op.kind));
}
template <>
OperatorCall call_of(const GeluBackward& op, bool) {
  return pointwise("gelu_backward", op.x, 20, {op.dy, op.x, op.dx}, kind_of(op.kind));
}
template <>
OperatorCall call_of(const Glu& op, bool) {
  return pointwise("glu", op.x, 8, {op.x, op.y}, static_cast<std::int64_t>(op.gate.kind));
}
template <>
OperatorCall call_of(const GluBackward& op, bool) {
  return pointwise("glu_backward", op.x, 12, {op.dy, op.x, op.dx}, static_cast<std::int64_t>(op.gate.kind));
}
template <>
OperatorCall call_of(const Softcap& op, bool) {
  return pointwise("softcap", op.x, 10, {op.x, op.x});
}
template <>
OperatorCall call_of(const Add& op, bool) {
  return pointwise("add", op.a, 1, {op.a, op.b, op.out});
}
template <>
OperatorCall call_of(const Cast& op, bool) {
  return pointwise("cast", op.from, 1, {op.from, op.to}, static_cast<std::int64_t>(op.to.dtype()));
}
template <>
OperatorCall call_of(const Embedding& op, bool) {
  return pointwise("embedding", op.y, 1, {op.y, op.y}, op.positions_table.defined() ? 1 : 0);
}
template <>
OperatorCall call_of(const EmbeddingBackward& op, bool) {
  return pointwise("embedding_backward", op.dy, 1, {op.dy, op.dy, op.dy}, op.dpositions.defined() ? 1 : 0);
}
template <>
OperatorCall call_of(const ShiftIds& op, bool) {
  return pointwise("shift_ids", op.ids, 1, {op.ids, op.out});
}
template <>
OperatorCall call_of(const PickColumns& op, bool) {
  return pointwise("pick_columns", op.to, 1, {op.columns, op.to, op.to});
}
template <>
OperatorCall call_of(const IndexSelect& op, bool) {
  return pointwise("index_select", op.to, 0, {op.to, op.to});
}
template <>
OperatorCall call_of(const IndexAdd& op, bool) {
  return pointwise("index_add", op.rows, 1, {op.rows, op.rows, op.rows});
}
template <>
OperatorCall call_of(const Rotary& op, bool) {
  return pointwise("rotary", op.qkv, 4, {op.qkv, op.qkv}, op.direction);
}
template <>
OperatorCall call_of(const Attention& op, bool) {
  return attention("attention", op, 2, {op.qkv, op.out, op.lse});
}
template <>
OperatorCall call_of(const AttentionBackward& op, bool) {
  return attention("attention_backward", op, 5, {op.dout, op.qkv, op.out, op.dqkv});
}
template <>
OperatorCall call_of(const CachedAttention& op, bool readable) {
  std::int64_t keys = op.qkv.rows() * (op.first + op.qkv.rows());
  if (readable) {
    for (const CachedSequence& each : op.sequences) keys += each.rows;
  }
  const auto pairs = static_cast<double>(keys);
  return made("cached_attention", op.qkv.dtype(),
              {op.qkv.rows(), op.shape.heads, op.shape.kv_heads, op.shape.head_size, op.first},
              4 * pairs * static_cast<double>(op.shape.heads * op.shape.head_size), {op.qkv, op.out});
}
template <>
OperatorCall call_of(const CausalConv& op, bool) {
  return convolution("causal_conv", op, op.y, 1, {op.x, op.y});
}
template <>
OperatorCall call_of(const CausalConvBackward& op, bool) {
  return convolution("causal_conv_backward", op, op.dy, 3, {op.dy, op.x, op.dx});
}
template <>
OperatorCall call_of(const CachedConv& op, bool) {
  return convolution("cached_conv", op, op.y, 1, {op.x, op.y, op.tail});
}
template <>
OperatorCall call_of(const CrossEntropyLoss& op, bool readable) {
  const std::int64_t rows = rows_with_target(op.head.targets, readable);
  OperatorCall call = made(
      "cross_entropy_loss", op.head.hidden.dtype(),
      {rows, op.head.vocabulary, op.head.hidden.columns(), gradients_of(op.head), op.part.group == nullptr ? 0 : 1},
      static_cast<double>(rows) * head_flops(op.head), {op.head.hidden, op.head.dhidden});
  call.bytes += head_bytes(op.head);
  return call;
}
template <>
OperatorCall call_of(const DistillationLoss& op, bool readable) {
  const DistillationHead& head = op.head;
  const std::int64_t rows = rows_with_target(head.student.targets, readable);
  const bool of_hidden = head.boundary == TeacherOutput::hidden;
  const std::int64_t width = of_hidden                                ? head.teacher_hidden.columns()
                             : head.boundary == TeacherOutput::logits ? head.teacher_logits.columns()
                             : names_tokens(head.boundary)            ? head.teacher_values.columns()
                                                                      : 1;
  const double teacher = of_hidden ? product(1, head.teacher_vocabulary, width) : 0;
  OperatorCall call =
      made("distillation_loss", head.student.hidden.dtype(),
           {rows, head.student.vocabulary, head.student.hidden.columns(), gradients_of(head.student), width,
            static_cast<std::int64_t>(head.boundary) + 8 * static_cast<std::int64_t>(head.divergence),
            op.part.group == nullptr ? 0 : 1},
           static_cast<double>(rows) * (head_flops(head.student) + teacher),
           {head.student.hidden, head.student.dhidden, head.teacher_hidden, head.teacher_logits, head.teacher_values});
  call.bytes += head_bytes(head.student);
  return call;
}
template <>
OperatorCall call_of(const TopK& op, bool) {
  return pointwise("top_k", op.logits, 2, {op.logits, op.values, op.indices}, op.values.columns());
}
template <>
OperatorCall call_of(const AdamW& op, bool) {
  const auto elements = static_cast<std::int64_t>(op.value.size());
  OperatorCall call = made("adamw", op.mean.dtype(), {elements, op.rounded.empty() ? 0 : 1},
                           16.0 * static_cast<double>(elements), {op.mean, op.mean, op.variance, op.variance});
  call.bytes += 4.0 * sizeof(float) * static_cast<double>(elements);
  return call;
}
template <>
OperatorCall call_of(const StepCounts& op, bool) {
  const auto elements = static_cast<double>(op.value.size());
  return {"step_counts", DType::f32, {static_cast<std::int64_t>(op.value.size())}, elements, 16 * elements};
}
template <>
OperatorCall call_of(const SumOfSquares& op, bool) {
  const auto elements = static_cast<double>(op.values.size());
  return {"sum_of_squares", DType::f32, {static_cast<std::int64_t>(op.values.size())}, 2 * elements, 4 * elements};
}
template <>
OperatorCall call_of(const AddInto& op, bool) {
  const auto elements = static_cast<double>(op.into.size());
  return {"add_into", DType::f32, {static_cast<std::int64_t>(op.into.size())}, elements, 12 * elements};
}

OperatorCall pack_call(const Tensor& w, DType compute, bool backward) {
  return pointwise("pack", w, 0, {w, w}, 2 * static_cast<std::int64_t>(compute) + (backward ? 1 : 0));
}

std::string text_of(const OperatorCall& call) {
  std::string text = call.op + " ";
  const auto last = std::ranges::find_if(call.sizes.rbegin(), call.sizes.rend(), [](auto size) { return size != 0; });
  const auto count = std::max<std::ptrdiff_t>(call.sizes.rend() - last, 1);
  for (std::ptrdiff_t at = 0; at < count; ++at) {
    text += (at == 0 ? "" : "x") + std::to_string(call.sizes[static_cast<std::size_t>(at)]);
  }
  return text + " " + std::string(name_of(call.dtype));
}

template <>
OperatorCall call_of(const Scale& op, bool) {
  return pointwise("scale", op.x, 1, {op.x, op.y});
}
template <>
OperatorCall call_of(const Multiply& op, bool) {
  const bool by_element = op.b.elements() == op.a.elements();
  return pointwise("multiply", op.a, 1, {op.a, op.b, op.out}, by_element ? 0 : op.b.columns() == 1 ? 1 : 2);
}
template <>
OperatorCall call_of(const Curved& op, bool) {
  return pointwise("curved", op.x, 8, {op.x, op.y}, static_cast<std::int64_t>(op.curve));
}
template <>
OperatorCall call_of(const CurvedBackward& op, bool) {
  return pointwise("curved_backward", op.dy, 3, {op.dy, op.y, op.dx}, static_cast<std::int64_t>(op.curve));
}
template <>
OperatorCall call_of(const MemoryGate& op, bool) {
  return pointwise("memory_gate", op.scores, 12, {op.scores, op.gate});
}
template <>
OperatorCall call_of(const MemoryGateBackward& op, bool) {
  return pointwise("memory_gate_backward", op.dgate, 16, {op.dgate, op.scores, op.dscores});
}
template <>
OperatorCall call_of(const Softmax& op, bool) {
  return pointwise("softmax", op.x, 8, {op.x, op.y}, op.log ? 1 : 0);
}
template <>
OperatorCall call_of(const SoftmaxBackward& op, bool) {
  return pointwise("softmax_backward", op.dy, 4, {op.dy, op.y, op.dx}, op.log ? 1 : 0);
}
template <>
OperatorCall call_of(const RowDot& op, bool) {
  return pointwise("row_dot", op.a, 2, {op.a, op.b, op.y});
}
template <>
OperatorCall call_of(const Cosine& op, bool) {
  return pointwise("cosine", op.a, 6, {op.a, op.b, op.y});
}
template <>
OperatorCall call_of(const CosineBackward& op, bool) {
  return pointwise("cosine_backward", op.a, 6, {op.a, op.b, op.da, op.db},
                   (op.da.defined() ? 1 : 0) + (op.db.defined() ? 2 : 0));
}
template <>
OperatorCall call_of(const CopyColumns& op, bool) {
  const double elements = static_cast<double>(op.from.rows() * op.columns);
  OperatorCall call = made("copy_columns", op.from.dtype(), {op.from.rows(), op.columns, op.accumulate ? 1 : 0},
                           op.accumulate ? elements : 0, {});
  call.bytes = elements * static_cast<double>(size_of(op.from.dtype()) + size_of(op.to.dtype()));
  return call;
}
template <>
OperatorCall call_of(const SumLoss& op, bool) {
  return pointwise("sum_loss", op.values, 1, {op.values});
}
template <>
OperatorCall call_of(const Route& op, bool) {
  return made("route", DType::f32, {op.logits.rows(), op.logits.columns(), op.experts.columns()},
              10.0 * static_cast<double>(op.logits.elements()), {op.logits, op.experts, op.weights});
}
template <>
OperatorCall call_of(const RouteBackward& op, bool) {
  return made("route_backward", DType::f32, {op.logits.rows(), op.logits.columns(), op.experts.columns()},
              10.0 * static_cast<double>(op.logits.elements()), {op.logits, op.dlogits, op.dweights});
}
template <>
OperatorCall call_of(const CountRoutes& op, bool) {
  return made("count_routes", DType::i32, {op.experts.rows(), op.experts.columns(), op.counts.rows()}, 0,
              {op.experts, op.starts, op.counts});
}
template <>
OperatorCall call_of(const SortRoutes& op, bool) {
  return made("sort_routes", DType::i32, {op.experts.rows(), op.experts.columns(), op.offsets.elements()}, 0,
              {op.experts, op.offsets, op.tokens, op.routes, op.places});
}
template <>
OperatorCall call_of(const GroupedLinear& op, bool) {
  return grouped("grouped_linear", op.x, op.y, op.offsets);
}
template <>
OperatorCall call_of(const GroupedLinearBackwardInput& op, bool) {
  return grouped("grouped_linear_backward_input", op.dx, op.dy, op.offsets);
}
template <>
OperatorCall call_of(const GroupedLinearBackwardWeight& op, bool) {
  OperatorCall call = grouped("grouped_linear_backward_weight", op.x, op.dy, op.offsets);
  call.bytes += 2 * static_cast<double>(op.dw.bytes());  // of gradients, which are read and written
  return call;
}
template <>
OperatorCall call_of(const CombineRows& op, bool) {
  return pointwise("combine_rows", op.rows, 1, {op.rows, op.y});
}
template <>
OperatorCall call_of(const DeltaRule& op, bool) {
  return delta("delta_rule", op.qkv, op.shape, chunks_of(op.layout), 3, 1.5, {op.qkv, op.gates, op.out, op.states});
}
template <>
OperatorCall call_of(const DeltaRuleBackward& op, bool) {
  return delta("delta_rule_backward", op.qkv, op.shape, chunks_of(op.layout), 7, 6,
               {op.dout, op.qkv, op.gates, op.states, op.dqkv, op.dgates});
}
template <>
OperatorCall call_of(const CachedDelta& op, bool) {
  const auto states = static_cast<std::int64_t>(op.sequences.size());
  return delta("cached_delta", op.qkv, op.shape, states, 3, 1.5, {op.qkv, op.gates, op.out, op.state});
}
template <>
OperatorCall call_of(const LatentHeads& op, bool) {
  return pointwise("latent_heads", op.qkv, 0, {op.queries, op.keys, op.rope, op.qkv}, op.shape.heads);
}
template <>
OperatorCall call_of(const LatentHeadsBackward& op, bool) {
  return pointwise("latent_heads_backward", op.dqkv, 0, {op.dqkv, op.dqueries, op.dkeys, op.drope}, op.shape.heads);
}
template <>
OperatorCall call_of(const GroupedBias& op, bool) {
  return pointwise("grouped_bias", op.y, 2, {op.y, op.y}, op.weights.defined() ? 1 : 0);
}
template <>
OperatorCall call_of(const GroupedBiasBackward& op, bool) {
  return pointwise("grouped_bias_backward", op.dy, 2, {op.dy, op.dbias},
                   (op.dbias.defined() ? 1 : 0) + (op.dweights.defined() ? 2 : 0));
}
template <>
OperatorCall call_of(const AttentionSinks& op, bool) {
  return pointwise("attention_sinks", op.lse, 10, {op.lse, op.lse, op.factors});
}
template <>
OperatorCall call_of(const AttentionSinksBackward& op, bool) {
  return pointwise("attention_sinks_backward", op.lse, 6, {op.lse, op.dots});
}
template <>
OperatorCall call_of(const Custom& op, bool) {
  OperatorCall call = pointwise(op.op->name, op.tensors.front(), op.op->flops_per_element, {});
  for (const Tensor& tensor : op.tensors) call.bytes += tensor.defined() ? static_cast<double>(tensor.bytes()) : 0;
  return call;
}

}  // namespace maestro
