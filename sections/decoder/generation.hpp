// SPDX-License-Identifier: Apache-2.0
// Sequences of tokens that a frozen decoder continues, a sequence in each slot. Layers keep keys and values, a
// convolution's last rows or a delta rule's state, so that a further token costs a pass over a single row, and
// sequences share the reading of the weights. Runs on the caller's thread.
//
// GN-1 (cached rows): logits equal the logits of a forward pass over the complete sequence, up to rounding, however the
//       sequence arrived.
// GN-2 (alone): the logits of a sequence have the same bits in every slot, whichever other sequences there are.
//
// On a device with separate memory, images of prompts are not supported.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/memory_space.hpp"
#include "sections/decoder/decoder_section.hpp"
#include "sections/decoder/marked_layout.hpp"
#include "sections/memory/ngram_memory.hpp"
#include "sections/model_folder.hpp"

namespace maestro {

/// The images of a prompt, as the decoder receives them.
struct PromptImages {
  Tensor visual = {};                        ///< (V, width) act: a row for each image token; undefined: none
  std::span<const std::int32_t> marks = {};  ///< (T, 4), as Corpus::read_marks(); empty: a text's
  std::vector<Tensor> taps = {};             ///< rows of visual_1, ..., each as `visual`
  Tensor heard = {};                         ///< (H, width) act: a row for each token of a sound next to images
};

/// A token to append to the sequence in a slot.
struct NextToken {
  std::int64_t slot = 0;
  std::int32_t token = 0;
};

/// Not thread-safe.
class Generation {
 public:
  static constexpr std::int64_t block_rows = 512;  ///< most prompt rows at once: bounds the activations' memory
  /// Loads a Hugging Face folder, or adapters with the weights below them, for products in `precision`, and the memory
  /// that it reads: a folder of ngram_memory, in host memory; empty: none. Throws JobError, also for a decoder that
  /// reads another memory, or none.
  Generation(const OperatorTable& ops, const std::filesystem::path& folder, DType precision,
             const std::filesystem::path& memory = {});
  /// Takes a section with its values, frozen, on a single rank and stage, with an output layer. `complete` waits for
  /// the work that `ops` have received; empty: work is complete when they return.
  Generation(const OperatorTable& ops, std::shared_ptr<DecoderSection> section, DType precision,
             std::function<void()> complete = {});

  [[nodiscard]] const DecoderConfig& decoder() const { return model_->decoder(); }
  /// Returns the reason why a prompt cannot be continued: it is empty, longer than the positions, has an id outside the
  /// vocabulary, another number of image tokens than `visual` has rows, or marks that do not fit; empty if it can.
  [[nodiscard]] std::string refusal(std::span<const std::int32_t> prompt, const PromptImages& images = {}) const;

  /// Takes memory for `slots` sequences of at most `rows` tokens, but not more than the model has positions. Ends all
  /// sequences.
  void reserve(std::int64_t slots, std::int64_t rows);
  [[nodiscard]] DType precision() const { return tape_.compute(); }
  [[nodiscard]] std::int64_t slots() const { return std::ssize(sequences_); }
  /// Begins a sequence, in place of the sequence in `slot`. The prompt and the arrays of `images` must live until
  /// advance() has returned true. Throws JobError for a prompt that has a refusal() or is longer than reserve() allows.
  void begin(std::int64_t slot, std::span<const std::int32_t> prompt, const PromptImages& images = {});
  /// Computes the next block of the prompt in `slot`. Returns whether it was the last: logits() then has a row.
  bool advance(std::int64_t slot);
  /// Appends a token to each of these sequences, whose prompts are complete and which are not full; their slots are
  /// different. logits() then has their rows, in this order.
  void append(std::span<const NextToken> tokens);
  /// Returns whether the sequence in `slot` has all its rows.
  [[nodiscard]] bool full(std::int64_t slot) const { return at(slot).rows == rows_; }
  /// Returns row `row` of the logits (vocabulary) after the last call of advance() or append(), valid until the next.
  [[nodiscard]] std::span<const float> logits(std::int64_t row = 0) const;

 private:
  struct Sequence {
    std::span<const std::int32_t> prompt;  // its rows that are not computed yet
    PromptImages images;
    MarkColumns columns;                  // of the whole prompt
    std::int64_t rows = 0;                // computed
    std::int64_t visual_taken = 0;        // rows of images.visual
    std::int64_t heard_taken = 0;         // rows in images.heard
    std::vector<std::int32_t> last = {};  // tokens before the next, as many as an n-gram may have; with a memory
    std::int64_t skipped = 0;  // positions that the prompt's images skip: of the token after it, minus its number
  };
  Generation(const OperatorTable& ops, const ModelFolder& folder, DType precision, std::unique_ptr<NGramMemory> memory);
  /// Returns the rows of the memory for tokens that continue a sequence, and remembers them.
  void remember(Sequence& sequence, std::span<const std::int32_t> tokens, std::vector<std::int32_t>& rows) const;
  /// Returns these rows; undefined without a memory.
  [[nodiscard]] Var look_up(std::span<const std::int32_t> rows);
  /// Returns the columns of marks that the decoder reads. Throws std::invalid_argument for marks that do not fit.
  [[nodiscard]] MarkColumns columns_of(std::span<const std::int32_t> prompt, const PromptImages& images) const;
  [[nodiscard]] const Sequence& at(std::int64_t slot) const { return sequences_[static_cast<std::size_t>(slot)]; }
  /// Returns the rows that a convolution's tail holds of a sequence.
  [[nodiscard]] std::int64_t tail_rows() const { return std::max<std::int64_t>(decoder().conv_width, 1) - 1; }
  /// Returns the rows that the tail of the memory's filter holds of a sequence.
  [[nodiscard]] std::int64_t memory_rows() const { return (filter_width - 1) * decoder().memory.orders; }
  /// Makes a layer's tensor of this shape, unless it has as many rows.
  void hold(Tensor& tensor, SpaceMemory& memory, const Shape& shape, DType dtype);
  /// Returns each layer's cache: the rows of a slot, or the rows of all slots for sequences, which begin at other rows
  /// in `tails` and in `states`.
  [[nodiscard]] std::vector<LayerCache> of_slot(std::int64_t slot) const;
  [[nodiscard]] std::vector<LayerCache> of_sequences(std::span<const CachedSequence> rows,
                                                     std::span<const CachedSequence> tails,
                                                     std::span<const CachedSequence> states,
                                                     std::span<const CachedSequence> memories) const;
  /// Reads the logits of the last pass, if they are in other memory.
  void read_logits();

  std::function<void()> complete_;
  std::shared_ptr<DecoderSection> model_;
  Arena arena_;
  std::unique_ptr<NGramMemory> table_;  // null: no memory
  std::vector<SpaceMemory> memory_;     // two for each layer, and one for table_
  std::vector<LayerCache> caches_;   // cache for each layer, in memory_: keys (slots * rows, G D), tails of all slots
  LayerCache memory_cache_;          // all slots' tails for the memory's filter
  std::int64_t rows_ = 0;            // most of a sequence
  std::vector<Sequence> sequences_;  // by slot
  Tape tape_;                        // after the arena it allocates from
  Var logits_;                       // recorded on tape_
  AlignedMemory read_;               // logits_ of other memory than the host's
};

}  // namespace maestro
