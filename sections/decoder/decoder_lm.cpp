// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/decoder_lm.hpp"

namespace maestro {

void DecoderLm::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  if (!last_stage()) return put_stream(tape, inputs, outputs);
  const Var state = gathered_hidden(tape, inputs, outputs);
  const Tensor targets = targets_of(inputs);
  const HeadLoss loss{&targets, inputs.loss_scale(), decoder().logit_softcap};
  report_losses(outputs, cross_entropy_loss(tape, state, head(), loss, head_part()), false, context().parallel);
}

}  // namespace maestro
