#include "sections/transformer_block.hpp"

#include <cassert>

#include "runtime/ops/rank_part.hpp"

namespace maestro {

Var block_norm(Tape& tape, const Var& x, const Affine& weights, double epsilon) {
  if (weights.bias == nullptr) return rms_norm(tape, x, *weights.weight, epsilon);
  return layer_norm(tape, x, *weights.weight, *weights.bias, epsilon);
}

Var transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, const Var& x,
                      const SequenceLayout& layout) {
  return transformer_block(tape, weights, options, x, layout, Block());
}

namespace {

/// Rows of the rank's context part.
std::int64_t context_rows(const BlockOptions& options, const SequenceLayout& layout) {
  return options.context_group == nullptr ? layout.rows() : rank_part(layout.rows(), *options.context_group).count;
}

/// Row-parallel product: (M_c, K of the rank) -> (M_t, N). The bias must enter the sum over the group once.
Var product_of_parts(Tape& tape, const Var& x, const Affine& weights, Communicator* group) {
  const bool first = group == nullptr || group->rank() == 0;
  return sum_to_parts(tape, linear(tape, x, *weights.weight, first ? weights.bias : nullptr), group);
}

}  // namespace

Var transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, const Var& x,
                      const SequenceLayout& layout, const Block& wanted) {
  assert(!wanted.defined() || options.tensor_group == nullptr);
  const std::int64_t rows = context_rows(options, layout);
  Var branch = block_norm(tape, x, weights.attention_norm, options.norm_epsilon);
  branch = gather_rows(tape, branch, options.tensor_group, rows);
  branch = linear(tape, branch, *weights.qkv.weight, weights.qkv.bias);
  branch = context_attention(tape, branch, options.attention, layout, options.context_group);
  Var stream = x;
  if (wanted.defined()) {
    branch = select_rows(tape, branch, wanted);
    stream = select_rows(tape, stream, wanted);
  }
  branch = product_of_parts(tape, branch, weights.attention_out, options.tensor_group);
  const Var middle = add(tape, stream, branch);
  branch = block_norm(tape, middle, weights.ffn_norm, options.norm_epsilon);
  branch = gather_rows(tape, branch, options.tensor_group, rows);
  branch = linear(tape, branch, *weights.ffn_in.weight, weights.ffn_in.bias);
  const bool gated = branch.value().columns() == 2 * weights.ffn_out.weight->shape()[1];
  branch = gated ? swiglu(tape, branch) : gelu(tape, branch);
  branch = product_of_parts(tape, branch, weights.ffn_out, options.tensor_group);
  return add(tape, middle, branch);
}

std::vector<Parameter*> product_matrices(const std::vector<BlockWeights>& layers) {
  std::vector<Parameter*> matrices;
  for (const BlockWeights& each : layers) {
    for (const Affine* product : {&each.qkv, &each.attention_out, &each.ffn_in, &each.ffn_out}) {
      matrices.push_back(product->weight);
    }
  }
  return matrices;
}

}  // namespace maestro
