// SPDX-License-Identifier: Apache-2.0
// How fast the pieces of an edge get from the sending ranks to the receiving ranks.
#pragma once

#include <string>

#include "benchmarks/reshard/edge_ends.hpp"

namespace maestro::bench {

struct TransferOptions {
  std::size_t chunk_bytes = std::size_t{1} << 20;  ///< as a job's default
  int repetitions = 40;                            ///< of the step; three more for warming up
};

/// Medians over the repetitions; each has a memcpy of as many bytes behind it.
struct TransferFigures {
  double step_us = 0;
  double memcpy_us = 0;
  double ratio = 0;         ///< memcpy time over step time
  double copied_share = 0;  ///< of the bytes, by the receiver, since its rows were not neighbours in memory
};

/// Moves by reference, on the calling thread: the cost of the receivers' rings and of gathering rows.
TransferFigures in_process(const EdgeStep& step, const TransferOptions& options);
/// Moves by RMA writes between two processes made for it, the first with all senders, the second with all receivers:
/// from the first write until the confirmation that all tensors were opened. Every row is checked once. The calling
/// process must have no other threads. Throws JobError.
TransferFigures write_between_processes(const EdgeStep& step, const std::string& provider,
                                        const TransferOptions& options);

}  // namespace maestro::bench
