// SPDX-License-Identifier: Apache-2.0
// The shape of a decoder, completed and checked, and its work. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/data/image/patches.hpp"
#include "runtime/job/job_table.hpp"
#include "runtime/model/decoder_config.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Returns the port for the rows of a tapped layer, counted from 0: "features_1" for the first.
[[nodiscard]] inline std::string tap_name(const std::string& port, std::int64_t tap) {
  return port + "_" + std::to_string(tap + 1);
}

/// The rows that a projector sends to a decoder.
struct VisualRows {
  std::optional<DType> precision = {};  ///< none: the decoder's
  std::int64_t taps = 0;                ///< rows of visual_1, ... are added after as many layers, from the first on
};

/// The expected shape of the data, as far as it is known when sections are built. Zero or empty: unknown, not checked.
struct DataShape {
  std::int64_t sequence = 0;       ///< tokens of the longest sample
  std::int64_t vocabulary = 0;     ///< bound of the token ids, which are below it
  std::string tokenizer;           ///< name of the tokenizer that made the ids
  std::int64_t patch_columns = 0;  ///< elements of an image patch, 3 x patch x patch
  PictureGrids pictures = {};      ///< grids of the images
  bool marks = false;              ///< positions have marks (Corpus::read_marks())
  VisualRows visual = {};          ///< rows that a decoder receives for images
  bool sounds = false;             ///< the data have sounds, in addition to images
  VisualRows heard = {};           ///< rows that a decoder receives for these sounds
};

/// Returns `config` with kv_heads, head_size and ffn filled in: ffn is 4 x width (gpt2), or 8/3 x width rounded up to a
/// multiple of 64 (others).
[[nodiscard]] DecoderConfig resolved(DecoderConfig config);

/// Reads the visual rows from the section that key `projector` names: by default NAME_projector, if the job has it,
/// else "projector". Throws JobError if the key is given, but the data are without images.
[[nodiscard]] VisualRows read_visual(const JobTable& table, const JobTable& root, const DataShape& data);
/// Returns the visual rows that the section with this table sends, a projector.
[[nodiscard]] VisualRows visual_rows_of(const JobTable& projector);

/// Reads the shape keys of a section's table. With `weights` given, the folder's config.json provides the keys that the
/// table leaves out. Throws JobError.
[[nodiscard]] DecoderConfig read_decoder_shape(const JobTable& table);

/// Raises the vocabulary of a decoder from random values to the corpus' tokens, if the table does not state it.
void default_vocabulary(const JobTable& table, DecoderConfig& decoder, const DataShape& data);

/// Throws JobError if `config` is not a decoder (a size below 1, heads that do not divide), or cannot take the samples
/// of the data source: longer than `positions`, or with token ids outside the vocabulary.
void check_decoder(const std::string& section, const DecoderConfig& config, const DataShape& data);

/// Returns a few words for a person: "qwen3, 28 layers x 1024, 16 heads of 128 (8 kv), q/k norms, rope 1e+06, tied,
/// vocabulary 151936". `config` must be resolved.
[[nodiscard]] std::string described(const DecoderConfig& config);

/// Returns the FLOPs of a layer in a forward pass over a sample with T tokens:
///   2 T C (H + 2G) D + 2 T H D C + 2 T C F n       matrix products, 2 M N K each; n = 2 (gpt2) or 3 (others)
///   2 T C (3 k F + 3 Fs + E)                       in a layer with E experts, k for a token, in place of C F n
///   2 T 2 E C                                      in the layer that reads a memory of E columns
///   2 * 2 * S * H D                                scores and their product with the values
/// with S = T^2 / 2, the causal half, or in a layer with windows of W < T keys W T - W^2 / 2, or with a convolution
///   2 T C 4 C + 2 T C F n + 2 T C w                its two products, the feed-forward network, its filter
/// after Kaplan et al. 2020, table 1, and Chowdhery et al. 2022, appendix B (who do not halve the causal part).
/// Embedding, norms and pointwise work are left out, as there. `config` must be resolved.
[[nodiscard]] double layer_flops(const DecoderConfig& config, std::int64_t layer, std::int64_t tokens);
/// Returns the FLOPs of all layers.
[[nodiscard]] double body_flops(const DecoderConfig& config, std::int64_t tokens);
/// Returns the FLOPs of an output layer: 2 T C V.
[[nodiscard]] double head_flops(std::int64_t tokens, std::int64_t width, std::int64_t vocabulary);
/// Returns the bytes of activations that a training pass of the body keeps until its backward pass, including the
/// stream before its layers and the final norm's result; `config` must be resolved. With `recompute` layers to a group:
/// the bytes of one group and the streams before all groups. Counts all tensor ranks together.
[[nodiscard]] double body_bytes(const DecoderConfig& config, std::int64_t tokens, DType precision,
                                std::int64_t recompute = 0);
/// Returns the bytes of a layer's values and gradients that a pass holds temporarily. Counts all `tensor` ranks
/// together; each holds the gathered input of a branch and its gradient, uncut.
[[nodiscard]] double body_working_bytes(const DecoderConfig& config, std::int64_t tokens, DType precision,
                                        std::int64_t tensor = 1);
/// Returns the final norm's share of body_bytes().
[[nodiscard]] double final_norm_bytes(const DecoderConfig& config, std::int64_t tokens, DType precision);

}  // namespace maestro
