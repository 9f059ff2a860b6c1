#include "sections/transformer_block.hpp"

namespace maestro {

Var block_norm(Tape& tape, const Var& x, const Affine& weights, double epsilon) {
  if (weights.bias == nullptr) return rms_norm(tape, x, *weights.weight, epsilon);
  return layer_norm(tape, x, *weights.weight, *weights.bias, epsilon);
}

Var transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, const Var& x,
                      const SequenceLayout& layout) {
  return transformer_block(tape, weights, options, x, layout, Block());
}

Var transformer_block(Tape& tape, const BlockWeights& weights, const BlockOptions& options, const Var& x,
                      const SequenceLayout& layout, const Block& wanted) {
  Var branch = block_norm(tape, x, weights.attention_norm, options.norm_epsilon);
  branch = linear(tape, branch, *weights.qkv.weight, weights.qkv.bias);
  branch = attention(tape, branch, options.attention, layout);
  Var stream = x;
  if (wanted.defined()) {
    branch = select_rows(tape, branch, wanted);
    stream = select_rows(tape, stream, wanted);
  }
  branch = linear(tape, branch, *weights.attention_out.weight, weights.attention_out.bias);
  const Var middle = add(tape, stream, branch);
  branch = block_norm(tape, middle, weights.ffn_norm, options.norm_epsilon);
  branch = linear(tape, branch, *weights.ffn_in.weight, weights.ffn_in.bias);
  const bool gated = branch.value().columns() == 2 * weights.ffn_out.weight->shape()[1];
  branch = gated ? swiglu(tape, branch) : gelu(tape, branch);
  branch = linear(tape, branch, *weights.ffn_out.weight, weights.ffn_out.bias);
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
