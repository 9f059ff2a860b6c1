// SPDX-License-Identifier: Apache-2.0
// How a decoder's layer reads a memory before its mixer (Qwen4ExpTextPLELayer of transformers 5.24 with one stream).
// For a row of the stream h (C) and of the memory e (E):
//   K = norm(W_k e), v = W_v e, q = norm(h), a = <K, q> / sqrt(C), gate as MemoryGate, m = gate v
//   h += m + silu(conv(norm(m)))      a causal convolution of 4 rows, `orders` rows apart, in the sample
// RMS norms have weights 1 + w. The filter and w begin at zero, as there.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "runtime/job/job_table.hpp"
#include "runtime/model/decoder_config.hpp"
#include "sections/parameter_builder.hpp"
#include "sections/transformer_block.hpp"

namespace maestro {

/// Reads how a decoder of this many layers uses a memory: key `memory_layer` and the section that key `memory` names.
/// Without `memory_layer` it uses none. Throws JobError.
[[nodiscard]] MemoryConfig read_memory(const JobTable& decoder, const JobTable& root, std::int64_t layers);
/// Returns the layer and the columns of the memory that the decoder in a folder of weights reads; orders are left at 0,
/// and columns if it reads none. Throws JobError for weights that cannot be read.
[[nodiscard]] MemoryConfig stored_memory(const std::filesystem::path& decoder);

inline constexpr std::int64_t filter_width = 4;

/// Null pointers: no layer of the stage reads a memory.
struct MemoryWeights {
  Parameter* key = nullptr;         ///< (C, E)
  Parameter* value = nullptr;       ///< (C, E)
  Parameter* key_norm = nullptr;    ///< (C)
  Parameter* query_norm = nullptr;  ///< (C)
  Parameter* value_norm = nullptr;  ///< (C)
  Parameter* filter = nullptr;      ///< (C, 1, 4)
};
/// Adds the weights. A name is memory_prefix, "layers.N.", and the name in transformers' Qwen4ExpTextPLELayer.
[[nodiscard]] MemoryWeights add_memory(ParameterBuilder& add, const DecoderConfig& config);

/// Returns the stream (M, C) after it has read `rows` (M, E) of a memory. `layout` is of all rows; its arrays must live
/// until the backward pass. With options.cache the rows continue sequences.
[[nodiscard]] Stream with_memory(Tape& tape, const Stream& x, const Var& rows, const MemoryWeights& weights,
                                 const MemoryConfig& config, BlockOptions options, const SequenceLayout& layout);

}  // namespace maestro
