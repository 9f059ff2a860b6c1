// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/short_convolution.hpp"

namespace maestro {

Var short_convolution(Tape& tape, const Var& x, const Affine& filter, const BlockOptions& options,
                      const SequenceLayout& layout) {
  if (options.cache != nullptr) return cached_conv(tape, x, filter, options.convolution, *options.cache);
  return context_conv(tape, x, filter, options.convolution, layout, options.context_group);
}

}  // namespace maestro
