// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/generator.hpp"

#include <stdexcept>

namespace maestro {

void Generator::forward(Tape& /*tape*/, const Inputs& /*inputs*/, Outputs& /*outputs*/) {
  throw std::logic_error("a generator does not compute micro-batches");
}

}  // namespace maestro
