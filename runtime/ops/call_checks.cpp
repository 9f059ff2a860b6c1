// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/call_checks.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "runtime/ops/expert_functions.hpp"
#include "runtime/ops/parameters.hpp"

namespace maestro {

namespace {

struct Argument {
  Argument(const char* argument, const Tensor& tensor)
      : name(argument), text(std::string(name_of(tensor.dtype())) + " " + tensor.shape().to_string()) {}
  Argument(const char* argument, const Parameter& parameter)
      : name(argument), text("'" + parameter.name() + "' " + parameter.shape().to_string()) {}
  Argument(const char* argument, std::int64_t number) : name(argument), text(std::to_string(number)) {}
  const char* name;
  std::string text;
};

[[noreturn]] void fail(const char* op, const char* rule, std::initializer_list<Argument> arguments) {
  std::string text = std::string(op) + ": ";
  const char* separator = "";
  for (const Argument& argument : arguments) {
    text += std::string(separator) + argument.name + " is " + argument.text;
    separator = ", ";
  }
  throw ShapeError(text + "; " + rule);
}

/// Returns the columns of a weight whose dimensions but the first are folded, also if it has no rows.
std::int64_t columns_of(const Parameter& weight) {
  std::int64_t columns = 1;
  for (int axis = 1; axis < weight.shape().rank(); ++axis) columns *= weight.shape()[axis];
  return columns;
}

bool is_float(const Tensor& tensor) {
  return tensor.dtype() == DType::f32 || tensor.dtype() == DType::bf16;
}

bool same_rows_and_columns(const Tensor& a, const Tensor& b) {
  return a.columns() == b.columns() && a.elements() == b.elements();
}

void check_ids(const char* op, const char* name, const Tensor& ids) {
  if (ids.dtype() != DType::i32) fail(op, "ids are i32", {{name, ids}});
}

}  // namespace

void check_product(const char* op, DType compute, const Tensor& x, const Parameter& weight, const Parameter* bias) {
  if (x.columns() != columns_of(weight)) {
    fail(op, "x must have as many columns as the weight", {{"x", x}, {"the weight", weight}});
  }
  if (x.dtype() != compute) {
    fail(op, compute == DType::f32 ? "products of this section take fp32" : "products of this section take bf16",
         {{"x", x}, {"the weight", weight}});
  }
  if (bias != nullptr && bias->shape().elements() != weight.shape()[0]) {
    fail(op, "the bias must have an element for each row of the weight", {{"the weight", weight}, {"the bias", *bias}});
  }
}

void check_experts(DType compute, const Tensor& x, const Routes& routes, const ExpertMatrices& experts,
                   std::int64_t ranks) {
  check_product("expert_networks", compute, x, *experts.in, nullptr);
  const std::int64_t all = routes.offsets.tensor().elements() - 1, count = all / ranks;
  if (all % ranks != 0) {
    fail("expert_networks", "ranks must share the experts evenly", {{"the router's experts", all}, {"ranks", ranks}});
  }
  for (const Parameter* matrix : {experts.in, experts.out}) {
    if (matrix->groups() == count) continue;
    fail("expert_networks", "the router and the weights must have as many experts",
         {{"a weight", *matrix}, {"its groups", matrix->groups()}, {"the router's experts", count}});
  }
  if (experts.in->shape()[0] != 2 * count * experts.out->shape().columns() ||
      experts.out->shape()[0] != count * x.columns()) {
    fail("expert_networks", "of E experts, weights are (E 2F, C) and (E C, F)",
         {{"x", x}, {"in", *experts.in}, {"out", *experts.out}});
  }
  const auto fits = [](const Parameter* bias, const Shape& shape) { return bias == nullptr || bias->shape() == shape; };
  if (!fits(experts.in_bias, {count, experts.in->shape()[0] / count}) ||
      !fits(experts.out_bias, {count, x.columns()})) {
    fail("expert_networks", "of E experts, biases are (E, 2F) and (E, C)",
         {{"in's bias", experts.in_bias == nullptr ? Tensor() : experts.in_bias->value()},
          {"out's bias", experts.out_bias == nullptr ? Tensor() : experts.out_bias->value()}});
  }
  if (routes.tokens != x.rows()) {
    fail("expert_networks", "there must be routes for each row", {{"x", x}, {"rows with routes", routes.tokens}});
  }
}

void check_route(const Tensor& logits, std::int64_t chosen, const RouteOptions& options, const Tensor& bias) {
  const std::int64_t experts = logits.columns();
  if (logits.dtype() != DType::f32) fail("route", "logits are fp32", {{"logits", logits}});
  if (options.groups < 1 || options.groups > 32 || experts % options.groups != 0 || options.top_groups < 1 ||
      options.top_groups > options.groups) {
    fail("route", "groups, at most 32, must divide the experts, and top_groups be one of them",
         {{"logits", logits}, {"groups", options.groups}, {"top_groups", options.top_groups}});
  }
  if (chosen < 1 || chosen > experts / options.groups * options.top_groups) {
    fail("route", "as many experts must be open to choice", {{"logits", logits}, {"chosen", chosen}});
  }
  if (bias.defined() && bias.elements() != experts) {
    fail("route", "the bias must have an element for each expert", {{"logits", logits}, {"bias", bias}});
  }
}

void check_route_to(const Tensor& logits, std::int64_t chosen, std::span<const std::int32_t> experts) {
  check_route(logits, chosen, {}, {});
  if (std::ssize(experts) != logits.rows() * chosen) {
    fail("route_to", "each row must have as many experts",
         {{"logits", logits}, {"chosen", chosen}, {"the number of experts", std::ssize(experts)}});
  }
  const std::int64_t count = logits.columns();
  for (std::int64_t row = 0; row < logits.rows(); ++row) {
    const auto own = experts.subspan(static_cast<std::size_t>(row * chosen), static_cast<std::size_t>(chosen));
    for (auto each = own.begin(); each != own.end(); ++each) {
      if (*each >= 0 && *each < count && std::find(own.begin(), each, *each) == each) continue;
      fail("route_to", "a row's experts must be different columns of the logits",
           {{"logits", logits}, {"the row", row}, {"an expert", std::int64_t{*each}}});
    }
  }
}

void check_norm(const char* op, DType compute, const Tensor& x, const Parameter& weight, const Parameter* bias) {
  if (x.dtype() != DType::f32 && x.dtype() != compute)
    fail(op, "a norm takes fp32 or the section's precision", {{"x", x}});
  for (const Parameter* each : {&weight, bias}) {
    if (each == nullptr || each->shape().elements() == x.columns()) continue;
    fail(op, "weight and bias must have an element for each column of x",
         {{"x", x}, {each == bias ? "the bias" : "the weight", *each}});
  }
}

void check_sum(const char* op, const Tensor& a, const Tensor& b) {
  if (!is_float(a) || !is_float(b)) fail(op, "both must be fp32 or bf16", {{"residual", a}, {"branch", b}});
  if (!same_rows_and_columns(a, b)) fail(op, "both must have the same shape", {{"residual", a}, {"branch", b}});
}

void check_rows(const char* op, const Tensor& x, const Tensor& index, const Tensor& rows) {
  if (index.dtype() != DType::i32) fail(op, "the index is i32", {{"index", index}});
  if (!rows.defined()) return;
  if (rows.columns() != x.columns()) fail(op, "rows and x must have as many columns", {{"x", x}, {"rows", rows}});
  if (rows.rows() != index.elements()) {
    fail(op, "the index must have an element for each of the rows", {{"rows", rows}, {"index", index}});
  }
}

void check_pointwise(const char* op, const Tensor& x) {
  if (!is_float(x)) fail(op, "x must be fp32 or bf16", {{"x", x}});
}

void check_gate(const Tensor& x) {
  check_pointwise("glu", x);
  if (x.columns() % 2 != 0) fail("glu", "x holds gate and up, so its number of columns must be even", {{"x", x}});
}

void check_embedding(const Tensor& ids, const Parameter& table, const Parameter* positions_table,
                     std::size_t positions) {
  check_ids("embedding", "ids", ids);
  if (positions_table == nullptr) return;
  if (positions_table->shape().columns() != table.shape().columns()) {
    fail("embedding", "both tables must have as many columns", {{"table", table}, {"positions", *positions_table}});
  }
  if (static_cast<std::int64_t>(positions) < ids.elements()) {
    fail("embedding", "the layout must have a position for each id",
         {{"ids", ids}, {"the number of positions", static_cast<std::int64_t>(positions)}});
  }
}

void check_attention(const char* op, const Tensor& qkv, const AttentionOptions& options, const SequenceLayout& layout,
                     std::int64_t rows) {
  const AttentionShape& shape = options.shape;
  check_pointwise(op, qkv);
  if (shape.heads < 1 || shape.kv_heads < 1 || shape.heads % shape.kv_heads != 0) {
    fail(op, "kv_heads must divide heads", {{"heads", shape.heads}, {"kv_heads", shape.kv_heads}});
  }
  if (qkv.columns() != shape.qkv_columns()) {
    fail(op, "qkv must have (heads + 2 kv_heads) head_size columns",
         {{"qkv", qkv}, {"heads", shape.heads}, {"kv_heads", shape.kv_heads}, {"head_size", shape.head_size}});
  }
  if (qkv.rows() != rows) {
    fail(op, "qkv must have the layout's rows", {{"qkv", qkv}, {"the number of rows", rows}});
  }
  if (shape.window != 0 && !shape.causal) fail(op, "a window needs causal attention", {{"window", shape.window}});
  if (!layout.ends.empty() && (!shape.causal || std::ssize(layout.ends) != layout.rows())) {
    fail(op, "ends need causal attention, and the layout must have an end for each row",
         {{"causal", std::int64_t{shape.causal}}, {"the number of ends", std::ssize(layout.ends)}, {"qkv", qkv}});
  }
  if (options.sinks != nullptr && options.sinks->shape().elements() != shape.heads) {
    fail(op, "there must be a sink for each head", {{"sinks", *options.sinks}, {"heads", shape.heads}});
  }
  if (options.rotary == nullptr) return;
  const auto rotated = static_cast<std::int64_t>(2 * options.rotary->inverse.size());
  if (rotated > shape.head_size) {
    fail(op, "a head must hold the rotated columns",
         {{"head_size", shape.head_size}, {"the number of rotated columns", rotated}});
  }
  if (static_cast<std::int64_t>(layout.positions.size()) < rows * layout.axes) {
    fail(op, "the layout must have a position for each row and axis",
         {{"qkv", qkv},
          {"the number of axes", layout.axes},
          {"the number of positions", static_cast<std::int64_t>(layout.positions.size())}});
  }
  const std::vector<std::uint8_t>& axis = options.rotary->axis;
  if (axis.empty()) return;
  const bool known = layout.axes == 1 || std::ranges::max(axis) < layout.axes;
  if (axis.size() != options.rotary->inverse.size() || !known) {
    fail(op, "each rotated pair needs an axis in the layout",
         {{"the number of axes", layout.axes}, {"the number of pairs with an axis", std::ssize(axis)}});
  }
}

void check_head_norm(const Tensor& qkv, const Parameter& query, const Parameter& key, const AttentionShape& shape,
                     bool whole) {
  const std::int64_t queries = shape.head_size * (whole ? shape.heads : 1);
  const std::int64_t keys = shape.head_size * (whole ? shape.kv_heads : 1);
  check_pointwise("head_norm", qkv);
  const bool fits = query.shape().elements() == queries && key.shape().elements() == keys;
  if (fits && qkv.columns() == shape.qkv_columns()) return;
  fail("head_norm",
       "qkv must have (heads + 2 kv_heads) head_size columns, and the weights an element for each column of a head or "
       "of all heads",
       {{"qkv", qkv},
        {"the query weight", query},
        {"the key weight", key},
        {"heads", shape.heads},
        {"kv_heads", shape.kv_heads},
        {"head_size", shape.head_size}});
}

void check_cache(const Tensor& qkv, const AttentionOptions& options, const LayerCache& cache) {
  constexpr const char* op = "cached_attention";
  const std::int64_t columns = options.shape.kv_heads * options.shape.head_size;
  for (const Tensor* each : {&cache.keys, &cache.values}) {
    if (each->dtype() == qkv.dtype() && each->columns() == columns && each->rows() == cache.keys.rows()) continue;
    fail(op, "keys and values must have kv_heads head_size columns and the dtype of qkv",
         {{"qkv", qkv}, {"keys", cache.keys}, {"values", cache.values}});
  }
  if (!cache.sequences.empty()) {
    if (std::ssize(cache.sequences) == qkv.rows() && cache.first == 0) return;
    fail(op, "each new row must have a sequence", {{"qkv", qkv}, {"sequences", std::ssize(cache.sequences)}});
  }
  if (cache.first < 0 || cache.first + qkv.rows() > cache.keys.rows()) {
    fail(op, "the cache must hold the new rows", {{"first", cache.first}, {"qkv", qkv}, {"keys", cache.keys}});
  }
}

void check_convolution(const char* op, const Tensor& x, const Parameter& weight, const Parameter* bias,
                       const ConvolutionShape& shape) {
  check_pointwise(op, x);
  const std::int64_t channels = shape.channels(x.columns());
  if (x.columns() != (shape.gated ? 3 : 1) * channels || weight.shape()[0] != channels ||
      columns_of(weight) != shape.width || shape.width < 1 || shape.dilation < 1) {
    fail(op, "x must have the columns of the weight's rows, gated three times, and the weight `width` columns",
         {{"x", x}, {"the weight", weight}, {"width", shape.width}, {"dilation", shape.dilation}});
  }
  if (bias != nullptr && bias->shape().elements() != channels) {
    fail(op, "the bias must have an element for each row of the weight", {{"the weight", weight}, {"the bias", *bias}});
  }
}

void check_tail(const Tensor& x, const ConvolutionShape& shape, const LayerCache& cache) {
  constexpr const char* op = "cached_conv";
  const Tensor& tail = cache.tail;
  if (shape.reach() > 0 &&
      (tail.dtype() != x.dtype() || tail.columns() != shape.read_columns(x.columns()) || tail.rows() < shape.reach())) {
    fail(op, "the tail must have the dtype of x and hold `reach` rows of what later rows read",
         {{"x", x}, {"tail", tail}, {"reach", shape.reach()}});
  }
  if (cache.sequences.empty() || (std::ssize(cache.sequences) == x.rows() && cache.first == 0)) return;
  fail(op, "each new row must have a sequence", {{"x", x}, {"sequences", std::ssize(cache.sequences)}});
}

void check_latent(const Tensor& queries, const Tensor& keys, const Tensor& rope, const LatentShape& shape) {
  check_pointwise("latent_heads", queries);
  const bool fits = shape.rope_size % 2 == 0 && shape.rope_size <= shape.head_size &&
                    shape.value_size <= shape.head_size && queries.columns() == shape.query_columns() &&
                    keys.columns() == shape.key_columns() && rope.columns() == shape.rope_size;
  const auto like = [&](const Tensor& other) {
    return other.dtype() == queries.dtype() && other.rows() == queries.rows();
  };
  if (fits && like(keys) && like(rope)) return;
  fail("latent_heads", "queries, keys and rope must have the columns of their heads, and equal rows and dtype",
       {{"queries", queries},
        {"keys", keys},
        {"rope", rope},
        {"heads", shape.heads},
        {"head_size", shape.head_size},
        {"rope_size", shape.rope_size},
        {"value_size", shape.value_size}});
}

void check_delta(const char* op, const Tensor& qkv, const Tensor& gates, const Parameter& a_log,
                 const Parameter& dt_bias, const DeltaShape& shape) {
  check_pointwise(op, qkv);
  if (shape.key_heads < 1 || shape.value_heads < 1 || shape.value_heads % shape.key_heads != 0 ||
      qkv.columns() != shape.qkv_columns()) {
    fail(op, "qkv must have the columns of two key sides and the values, and key heads must divide value heads",
         {{"qkv", qkv},
          {"key_heads", shape.key_heads},
          {"key_size", shape.key_size},
          {"value_heads", shape.value_heads},
          {"value_size", shape.value_size}});
  }
  if (gates.dtype() != qkv.dtype() || gates.rows() != qkv.rows() || gates.columns() != 2 * shape.value_heads) {
    fail(op, "gates must have two columns for each value head, and the rows and dtype of qkv",
         {{"qkv", qkv}, {"gates", gates}, {"value_heads", shape.value_heads}});
  }
  for (const Parameter* weight : {&a_log, &dt_bias}) {
    if (weight->shape().elements() == shape.value_heads) continue;
    fail(op, "a_log and dt_bias have an element for each value head",
         {{"a weight", *weight}, {"value_heads", shape.value_heads}});
  }
}

void check_delta_state(const Tensor& qkv, const DeltaShape& shape, const LayerCache& cache) {
  constexpr const char* op = "cached_delta";
  const std::int64_t elements = shape.value_heads * shape.key_size * shape.value_size;
  const Tensor& state = cache.state;
  if (state.dtype() != DType::f32 || state.columns() != elements || state.rows() < 1) {
    fail(op, "the state must be fp32 with key_size x value_size elements for each value head",
         {{"the state", state}, {"elements", elements}});
  }
  if (cache.state_sequences.empty() || (std::ssize(cache.state_sequences) == qkv.rows() && cache.first == 0)) return;
  fail(op, "each new row must have a sequence", {{"qkv", qkv}, {"sequences", std::ssize(cache.state_sequences)}});
}

void check_loss(const char* op, DType compute, const Tensor& hidden, const Parameter& head, const HeadLoss& loss) {
  check_product(op, compute, hidden, head, nullptr);
  if (loss.targets == nullptr) fail(op, "HeadLoss::targets is null", {{"x", hidden}});
  check_ids(op, "targets", *loss.targets);
  if (loss.targets->elements() != hidden.rows()) {
    fail(op, "there must be a target for each row", {{"x", hidden}, {"targets", *loss.targets}});
  }
}

void check_teacher(const Tensor& hidden, const Parameter& head, const TeacherSignal& teacher,
                   const DistillationTerms& terms, const HeadLoss& loss, const VocabularyPart& part) {
  constexpr const char* op = "distillation_loss";
  const auto has_rows = [&](const char* name, const Tensor& given) {
    if (given.columns() == 0) return;  // a rank without tokens
    if (given.rows() != hidden.rows()) fail(op, "both must have as many rows", {{"x", hidden}, {name, given}});
  };
  const std::int64_t vocabulary = part.group == nullptr ? head.shape()[0] : part.vocabulary;
  if (terms.shared_vocabulary < 1 || terms.shared_vocabulary > vocabulary) {
    fail(op, "shared_vocabulary must be in [1, the student's vocabulary]",
         {{"shared_vocabulary", terms.shared_vocabulary}, {"the student's vocabulary", vocabulary}});
  }
  if (terms.divergence == Divergence::policy_gradient && terms.ratio_cap > 0 &&
      (!loss.sampled.defined() || loss.sampled.elements() != hidden.rows())) {
    fail(op, "sampled must have an element for each row if there is a ratio",
         {{"x", hidden}, {"sampled", loss.sampled}});
  }
  if (teacher.boundary == TeacherOutput::sampled) {
    if (teacher.sampled.elements() == hidden.rows()) return;
    fail(op, "the teacher's sampled must have an element for each row", {{"x", hidden}, {"sampled", teacher.sampled}});
  }
  if (names_tokens(teacher.boundary)) {
    has_rows("values", teacher.values);
    if (teacher.values.dtype() != DType::f32 || teacher.indices.dtype() != DType::i32 ||
        !same_rows_and_columns(teacher.values, teacher.indices)) {
      fail(op, "the teacher's values are fp32 and its indices i32, of the same shape",
           {{"values", teacher.values}, {"indices", teacher.indices}});
    }
    if (teacher.boundary == TeacherOutput::top_k_rest && teacher.rest.elements() != hidden.rows()) {
      fail(op, "rest must have an element for each row", {{"x", hidden}, {"rest", teacher.rest}});
    }
    return;
  }
  if (terms.shared_vocabulary > teacher.vocabulary) {
    fail(op, "shared_vocabulary must be in [1, the teacher's vocabulary]",
         {{"shared_vocabulary", terms.shared_vocabulary}, {"the teacher's vocabulary", teacher.vocabulary}});
  }
  if (teacher.boundary == TeacherOutput::hidden) {
    const Tensor& given = teacher.hidden.value();
    has_rows("the teacher's hidden", given);
    check_product(op, given.dtype(), given, *teacher.head, nullptr);
    return;
  }
  has_rows("logits", teacher.logits);
  if (part.group == nullptr && teacher.logits.columns() != teacher.vocabulary) {
    fail(op, "logits must have a column for each token of the teacher",
         {{"logits", teacher.logits}, {"the teacher's vocabulary", teacher.vocabulary}});
  }
}

void check_top_k(const Tensor& logits, const Tensor& values, const Tensor& indices) {
  const bool dtypes = is_float(logits) && values.dtype() == DType::f32 && indices.dtype() == DType::i32;
  if (dtypes && same_rows_and_columns(values, indices) && (values.rows() == logits.rows() || logits.columns() == 0)) {
    return;
  }
  fail("top_k", "values are fp32 and indices i32, of the same shape, with the rows of logits",
       {{"logits", logits}, {"values", values}, {"indices", indices}});
}

void check_values(const char* op, const Tensor& x) {
  check_pointwise(op, x);
  if (x.columns() == 0) fail(op, "x must have a column", {{"x", x}});
}

void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  if (!is_float(a) || !is_float(b)) fail(op, "both must be fp32 or bf16", {{"a", a}, {"b", b}});
  if (!same_rows_and_columns(a, b)) fail(op, "both must have the same shape", {{"a", a}, {"b", b}});
}

void check_factors(const Tensor& a, const Tensor& b) {
  const bool of_rows = b.columns() == 1 && b.rows() == a.rows();
  const bool of_columns = b.rows() == 1 && b.columns() == a.columns();
  const bool factors = (of_rows || of_columns) && is_float(a) && is_float(b);
  if (factors || same_rows_and_columns(a, b)) return check_pair("mul", a, factors ? a : b);
  fail("mul", "b must have the shape of a, a single column with a factor for each row, or a single row",
       {{"a", a}, {"b", b}});
}

void check_samples(const char* op, const Tensor& x, const SequenceLayout& layout) {
  check_pointwise(op, x);
  if (x.rows() == layout.rows()) return;
  fail(op, "x must have the layout's rows", {{"x", x}, {"the number of rows", layout.rows()}});
}

void check_concat(const std::vector<Tensor>& parts) {
  if (parts.empty()) throw ShapeError("concat: there must be a part");
  for (const Tensor& part : parts) {
    check_pointwise("concat", part);
    if (part.rows() == parts.front().rows() && part.dtype() == parts.front().dtype()) continue;
    fail("concat", "all parts must have as many rows and the same dtype",
         {{"the first part", parts.front()}, {"another", part}});
  }
}

void check_columns(const Tensor& x, std::int64_t first, std::int64_t count) {
  check_pointwise("slice", x);
  if (first >= 0 && count >= 1 && first <= x.columns() - count) return;
  fail("slice", "x must have the columns [first, first + count)", {{"x", x}, {"first", first}, {"count", count}});
}

void check_sum_loss(const Tensor& values) {
  if (values.dtype() == DType::f32 && values.columns() == 1) return;
  fail("sum_loss", "losses are fp32, a column with a value for each row", {{"values", values}});
}

void check_gradient(const Tensor& value, const Tensor& gradient) {
  if (gradient.elements() == value.elements() && is_float(gradient)) return;
  fail("add_gradient", "a gradient must have the shape of its value, in fp32 or bf16",
       {{"the value", value}, {"the gradient", gradient}});
}

void check_part(const char* op, const Tensor& part, std::int64_t expected_rows) {
  if (part.rows() == expected_rows) return;
  fail(op, "x must have the rows of this rank's part", {{"x", part}, {"the number of rows", expected_rows}});
}

}  // namespace maestro
