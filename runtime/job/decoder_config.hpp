// SPDX-License-Identifier: Apache-2.0
// The shape of a decoder, apart from config.hpp so that only sections and the readers of stored models parse it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/job/job_table.hpp"

namespace maestro {

/// Shape of a decoder: GPT-2 family (layer norm, learned positions, GELU, biases) or Llama family (RMS norm, rotary
/// positions, SwiGLU, grouped-query attention, no biases).
struct DecoderConfig {
  std::string family = "gpt2";  ///< gpt2, llama
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  std::int64_t ffn = 0;       ///< 0: 4 x width (gpt2), 8/3 x width rounded up to 64 (llama)
  std::int64_t vocabulary = 256;
  std::int64_t positions = 1024;  ///< longest sequence
  bool tied = true;               ///< output layer shares the embedding
  double rope_theta = 10000.0;
  double norm_epsilon = 1e-5;
  double init_std = 0.02;
};

/// Reads the shape keys of a decoder, flat in the section's table. kv_heads = 0 and ffn = 0 stay as they are: the
/// decoder resolves them.
[[nodiscard]] DecoderConfig read_decoder(const JobTable& section, DecoderConfig defaults = {});

}  // namespace maestro
