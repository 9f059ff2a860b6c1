// SPDX-License-Identifier: Apache-2.0
// Times the transfer of an edge's pieces from the sending ranks to the receiving ranks.
#pragma once

#include <string>

#include "benchmarks/reshard/edge_ends.hpp"

namespace maestro::bench {

struct TransferOptions {
  std::size_t chunk_bytes = std::size_t{1} << 20;  ///< default of a job
  int repetitions = 40;                            ///< repetitions of the step, after three to warm up
};

/// Medians over the repetitions; a memcpy of as many bytes follows each repetition.
struct TransferFigures {
  double step_us = 0;
  double memcpy_us = 0;
  double ratio = 0;         ///< memcpy time / step time
  double copied_share = 0;  ///< share of the bytes that the receiver copied, because its rows were not contiguous
};

/// Moves the pieces by reference, on the calling thread, to measure the receivers' rings and the gathering of rows.
TransferFigures in_process(const EdgeStep& step, const TransferOptions& options);
/// Moves the pieces by RMA writes from a process with all senders to a process with all receivers, and times them from
/// the first write until the confirmation that all tensors were opened. Checks every row once. Starts the two processes
/// as copies of the calling process, which must be single-threaded. Throws JobError.
TransferFigures write_between_processes(const EdgeStep& step, const std::string& provider,
                                        const TransferOptions& options);

}  // namespace maestro::bench
