// SPDX-License-Identifier: Apache-2.0
// Continues sequences of tokens with a frozen decoder. Keys and values of all rows are kept, so that each further token
// costs a pass over a single row. Runs on the caller's thread.
//
// GN-1 (cached rows): logits equal the logits of a forward pass over the complete sequence, up to rounding, however the
//       sequence arrived.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "sections/decoder/decoder_section.hpp"
#include "sections/decoder/marked_layout.hpp"
#include "sections/decoder/token_sampler.hpp"
#include "sections/model_folder.hpp"

namespace maestro {

/// Reason for the end of a continuation.
enum class Finish : std::uint8_t {
  stop,   ///< a stop token was chosen
  length  ///< limit of tokens reached, or no position left
};

struct ContinuationLimits {
  std::int64_t max_tokens = 256;
  std::vector<std::int32_t> stop_tokens;  ///< tokens that end a continuation and are not part of it
};

/// Returns the limits with these stop tokens, or with the end-of-text token of `tokenizer` if there are none.
[[nodiscard]] ContinuationLimits continuation_limits(std::vector<std::int32_t> stop_tokens, const Tokenizer& tokenizer,
                                                     std::int64_t max_tokens);

/// The images of a prompt, as the decoder receives them.
struct PromptImages {
  Tensor visual = {};                        ///< (V, width) act: a row for each image token; undefined: none
  std::span<const std::int32_t> marks = {};  ///< (T, 4), as Corpus::read_marks(); empty: a text's
  std::vector<Tensor> taps = {};             ///< rows of visual_1, ..., each as `visual`
};

/// Not thread-safe.
class TextGenerator {
 public:
  /// Loads a Hugging Face folder, or adapters with the weights below them, for products in `precision`. Throws
  /// JobError.
  TextGenerator(const OperatorTable& ops, const std::filesystem::path& folder, DType precision);
  /// Takes a section with its values, frozen, on a single rank and stage, with an output layer.
  TextGenerator(const OperatorTable& ops, std::unique_ptr<DecoderSection> section, DType precision);

  [[nodiscard]] const DecoderConfig& decoder() const { return model_->decoder(); }
  /// Returns the reason why a prompt cannot be continued: it is empty, longer than the positions, has an id outside the
  /// vocabulary, another number of image tokens than `visual` has rows, or marks that do not fit; empty if it can.
  [[nodiscard]] std::string refusal(std::span<const std::int32_t> prompt, const PromptImages& images = {}) const;
  /// Begins a sequence with `prompt` and takes memory for at most `more` further tokens. Throws JobError for a prompt
  /// that has a refusal().
  void begin(std::span<const std::int32_t> prompt, std::int64_t more, const PromptImages& images = {});
  /// Appends a token. The sequence must not be full.
  void append(std::int32_t token);
  /// Returns whether position or memory (begin()) for a further token is missing.
  [[nodiscard]] bool full() const { return length_ == capacity_; }
  /// Returns the logits (vocabulary) of the token after the sequence, valid until the next change.
  [[nodiscard]] std::span<const float> logits() const { return logits_.value().span<float>(); }

  /// Passes the tokens after `prompt`, each as soon as it is chosen, to `sink`. Throws JobError as begin() and
  /// TokenSampler::choose().
  Finish continue_prompt(std::span<const std::int32_t> prompt, const ContinuationLimits& limits, TokenSampler& sampler,
                         const std::function<void(std::int32_t)>& sink, const PromptImages& images = {});

 private:
  TextGenerator(const OperatorTable& ops, const ModelFolder& folder, DType precision);
  void reserve(std::int64_t rows);
  /// Returns the columns of marks that the decoder reads. Throws std::invalid_argument for marks that do not fit.
  [[nodiscard]] MarkColumns columns_of(std::span<const std::int32_t> prompt, const PromptImages& images) const;
  /// Runs the sequence's next rows through the decoder, with their columns of marks.
  void run(std::span<const std::int32_t> tokens, std::span<const Tensor> visual, const MarkColumns& columns);

  Arena arena_;
  std::unique_ptr<DecoderSection> model_;
  AlignedMemory memory_;
  std::vector<AttentionCache> caches_;  // cache for each layer, in memory_
  std::int64_t capacity_ = 0;           // rows of the caches that this sequence may use
  std::int64_t length_ = 0;
  std::int64_t skipped_ = 0;  // positions that a prompt's images skip: of the token after it, minus its number
  Tape tape_;                 // after the arena it allocates from
  Var logits_;                // recorded on tape_
};

}  // namespace maestro
