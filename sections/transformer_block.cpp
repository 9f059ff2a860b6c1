// SPDX-License-Identifier: Apache-2.0
#include "sections/transformer_block.hpp"

#include <cassert>
#include <string>
#include <utility>

#include "runtime/collective/rank_part.hpp"
#include "runtime/core/result.hpp"
#include "runtime/ops/cuda_head_sizes.hpp"
#include "sections/decoder/gated_delta.hpp"
#include "sections/decoder/short_convolution.hpp"

namespace maestro {

void check_attention(const SectionContext& context, const AttentionShape& shape) {
  const std::string refusal = context.for_cuda         ? cuda_head_size_refusal(shape.head_size)
                              : context.ops == nullptr ? ""
                                                       : context.ops->attention_refusal(shape);
  if (!refusal.empty()) throw JobError(context.name + ": " + refusal);
}

Var whole(Tape& tape, const Stream& stream) {
  return stream.branch.defined() ? add(tape, stream.sum, stream.branch) : stream.sum;
}

Var block_norm(Tape& tape, Stream& stream, const Affine& weights, const NormTerms& terms) {
  Parameter& weight = *weights.weight;
  const double epsilon = terms.epsilon;
  if (!stream.branch.defined()) {
    if (weights.bias == nullptr) return rms_norm(tape, stream.sum, weight, epsilon, terms.offset);
    return layer_norm(tape, stream.sum, weight, *weights.bias, epsilon);
  }
  const Var branch = std::exchange(stream.branch, Var());
  const NormedSum both = weights.bias == nullptr
                             ? add_rms_norm(tape, stream.sum, branch, weight, epsilon, terms.offset)
                             : add_layer_norm(tape, stream.sum, branch, weight, *weights.bias, epsilon);
  stream.sum = both.sum;
  return both.normed;
}

Stream transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, Stream x,
                         const SequenceLayout& layout) {
  return transformer_block(tape, weights, options, std::move(x), layout, Block());
}

namespace {

/// Returns the rows of the rank's context part.
std::int64_t context_rows(const BlockOptions& options, const SequenceLayout& layout) {
  return options.context_group == nullptr ? layout.rows() : rank_part(layout.rows(), *options.context_group).count;
}

/// Returns the part of a row-parallel product: the bias must enter the sum over the group once.
Affine part_of(Affine product, const Communicator* group) {
  if (group != nullptr && group->rank() > 0) product.bias = nullptr;
  return product;
}

/// Returns the input of a branch, (M_t, C) act: the stream, normed if the branch has a norm before it.
Var branch_input(Tape& tape, Stream& stream, const Affine& norm, const NormTerms& terms) {
  if (norm.weight != nullptr) return block_norm(tape, stream, norm, terms);
  stream = whole(tape, stream);
  return converted(tape, stream.sum, tape.compute());
}

/// Returns `product` of the tensor group's rows of x (M_t, C), (M_c, N). The gathered rows are not kept: the backward
/// pass gathers them again (Korthikanti et al. 2022, arXiv 2205.05198).
template <class Product>
Var of_gathered(Tape& tape, const Var& x, Communicator* group, std::int64_t rows, Product product) {
  const Var all = all_gather_rows(tape, x, group, rows);
  Var y = product(all);
  if (group == nullptr || !y.needs_gradient()) return y;
  const Shape shape = all.value().shape();
  tape.forget(all);
  tape.record(y, [&tape, x, all, shape, group] {  // runs before the steps of `product`
    const Block again = tape.scratch(shape, x.value().dtype());
    group->all_gather_rows(x.value(), again.tensor());
    tape.remember(all, again);
  });
  return y;
}

/// Returns the tensor group's sum of `parts` (M_c, C), the result of a product, by rows: (M_t, C).
Var scattered(Tape& tape, const Var& parts, Communicator* group) {
  Var y = reduce_scatter_rows(tape, parts, group);
  if (group != nullptr && y.needs_gradient()) tape.forget(parts);
  return y;
}

/// Returns the result of a branch, (M_t, C) act.
Var branch_result(Tape& tape, const Var& branch, const Affine& norm, Parameter* scale, const NormTerms& terms) {
  const Var y = norm.weight == nullptr ? branch : rms_norm(tape, branch, *norm.weight, terms.epsilon, terms.offset);
  return scale == nullptr ? y : mul(tape, y, *scale);
}

/// The first product of gated attention, taken apart.
struct GatedQueries {
  Var qkv;   ///< (M_c, (H + 2G) D) act
  Var gate;  ///< (M_c, H D) act
};

/// Takes x (M_c, (2H + 2G) D) act apart, whose first columns are [query | gate] head by head.
GatedQueries gated_queries(Tape& tape, const Var& x, const AttentionShape& shape) {
  const std::int64_t rows = x.value().rows(), queries = shape.out_columns(), size = shape.head_size;
  const Var pairs = reshaped(tape, slice(tape, x, 0, 2 * queries), Shape{rows * shape.heads, 2 * size});
  const Var query = reshaped(tape, slice(tape, pairs, 0, size), Shape{rows, queries});
  const Var keys = slice(tape, x, 2 * queries, 2 * shape.kv_heads * size);
  return {concat(tape, {query, keys}), reshaped(tape, slice(tape, pairs, size, size), Shape{rows, queries})};
}

/// Mixes the rows of samples: the result of a layer's first product, (M_c, N), becomes the input of its second.
Var mixed(Tape& tape, Var x, const BlockWeights& weights, const BlockOptions& options, const SequenceLayout& layout) {
  if (weights.delta.a_log != nullptr) return gated_delta(tape, x, weights, options, layout);
  if (weights.filter.weight != nullptr) return short_convolution(tape, x, weights.filter, options, layout);
  if (options.output_gate) {
    const GatedQueries parts = gated_queries(tape, x, options.attention.shape);
    BlockOptions plain = options;
    plain.output_gate = false;
    return mul(tape, mixed(tape, parts.qkv, weights, plain, layout), sigmoid(tape, parts.gate));
  }
  if (weights.query_norm != nullptr) {
    const HeadNorms norms{weights.query_norm, weights.key_norm, options.whole_head_norms, options.norm.epsilon,
                          options.norm.offset};
    x = head_norm(tape, x, norms, options.attention.shape, options.tensor_group);
  }
  AttentionOptions attention = options.attention;
  attention.sinks = weights.sinks;
  const Var out = options.cache != nullptr ? cached_attention(tape, x, attention, layout, *options.cache)
                                           : context_attention(tape, x, attention, layout, options.context_group);
  return weights.latent.given() ? value_columns(tape, out, options.latent) : out;
}

ExpertOptions expert_options(const BlockOptions& options) {
  return {options.experts_per_token, options.router, options.gate,
          options.balance,           options.routes, options.expert_group};
}

/// Computes (M_c, C) -> the rank's part of the tensor group's sum, (M_c, C).
Var feed_forward(Tape& tape, const Var& x, const BlockWeights& weights, const BlockOptions& options) {
  Communicator* const group = options.tensor_group;
  if (weights.experts.router != nullptr) {
    ExpertWeights own = weights.experts;
    if (group != nullptr && group->rank() > 0) own.out_bias = nullptr;
    return expert_network(tape, x, own, expert_options(options));
  }
  const Affine& in = weights.ffn_in;
  const Affine out = part_of(weights.ffn_out, group);
  const bool gated = in.weight->shape()[0] == 2 * out.weight->shape()[1];
  return gated ? linear(tape, glu(tape, linear(tape, x, in), options.gate), out)
               : gelu_network(tape, x, in, out, options.activation);
}

/// Computes the layer's network for the rank's rows, (M_t, C), of its context part's `rows`.
Var network_of_rows(Tape& tape, const Var& x, const BlockWeights& weights, const BlockOptions& options,
                    std::int64_t rows) {
  Communicator* const group = options.tensor_group;
  const auto over_group = [&](auto network) {
    return scattered(tape, of_gathered(tape, x, group, rows, network), group);
  };
  const ExpertWeights& experts = weights.experts;
  if (experts.router == nullptr || options.expert_group == nullptr) {
    return over_group([&](const Var& all) { return feed_forward(tape, all, weights, options); });
  }
  const Var y = routed_experts(tape, x, experts, expert_options(options));
  if (experts.shared_in.weight == nullptr) return y;
  const Var shared = over_group([&](const Var& all) { return shared_expert(tape, all, experts, options.gate); });
  return converted(tape, add(tape, y, shared), tape.compute());
}

}  // namespace

Stream transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, Stream x,
                         const SequenceLayout& layout, const Block& wanted) {
  assert(!wanted.defined() || options.tensor_group == nullptr);
  Communicator* const group = options.tensor_group;
  const std::int64_t rows = context_rows(options, layout);
  const NormTerms& terms = options.norm;
  Var branch = branch_input(tape, x, weights.attention_norm, terms);
  branch = of_gathered(tape, branch, group, rows, [&](const Var& all) {
    return weights.latent.given() ? latent_products(tape, all, weights.latent, options.latent)
                                  : linear(tape, all, weights.qkv);
  });
  branch = mixed(tape, std::move(branch), weights, options, layout);
  Var stream = x.sum;
  if (wanted.defined()) {
    branch = index_select(tape, branch, wanted);
    stream = index_select(tape, stream, wanted);
  }
  branch = linear(tape, branch, part_of(weights.attention_out, group));
  branch = scattered(tape, branch, group);
  branch = branch_result(tape, branch, weights.behind_attention, weights.attention_scale, terms);
  Stream middle(stream, branch);
  branch = branch_input(tape, middle, weights.ffn_norm, terms);
  branch = network_of_rows(tape, branch, weights, options, rows);
  return {middle.sum, branch_result(tape, branch, weights.behind_ffn, weights.ffn_scale, terms)};
}

std::vector<Parameter*> product_matrices(const std::vector<BlockWeights>& layers) {
  std::vector<Parameter*> matrices;
  for (const BlockWeights& each : layers) {
    const ExpertWeights& experts = each.experts;
    const LatentWeights& latent = each.latent;
    for (Parameter* matrix :
         {each.qkv.weight, each.attention_out.weight, each.ffn_in.weight, each.ffn_out.weight, experts.in, experts.out,
          experts.shared_in.weight, experts.shared_out.weight, experts.shared_gate, latent.query_in.weight,
          latent.query_out.weight, latent.key_in.weight, latent.key_out.weight}) {
      if (matrix != nullptr) matrices.push_back(matrix);
    }
  }
  return matrices;
}

}  // namespace maestro
