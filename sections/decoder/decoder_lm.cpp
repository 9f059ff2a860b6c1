#include "sections/decoder/decoder_lm.hpp"

namespace maestro {

void DecoderLm::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const Var state = hidden(tape, inputs);
  const Tensor targets = targets_of(inputs);
  outputs.losses(cross_entropy_loss(tape, state, head(), {&targets, inputs.loss_scale()}), false);
}

}  // namespace maestro
