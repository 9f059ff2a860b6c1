// SPDX-License-Identifier: Apache-2.0
// Continuations of prompts by a decoder, several at a time. Runs on the caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/tokenizer/tokenizer.hpp"
#include "sections/decoder/generation.hpp"
#include "sections/decoder/token_sampler.hpp"

namespace maestro {

/// Reason for the end of a continuation.
enum class FinishReason : std::uint8_t {
  stop,   ///< a stop token was chosen
  length  ///< limit of tokens reached, or no position left
};

struct ContinuationLimits {
  std::int64_t max_tokens = 256;
  std::vector<std::int32_t> stop_tokens = {};  ///< tokens that end a continuation and are not part of it
  std::int64_t vocabulary = 0;                 ///< only ids below it are chosen; 0: all of the model's
};

/// Returns the limits with these stop tokens, or with the end-of-text token of `tokenizer` if there are none, and with
/// the ids of `tokenizer`: a model may have more rows than that.
[[nodiscard]] ContinuationLimits continuation_limits(std::vector<std::int32_t> stop_tokens, const Tokenizer& tokenizer,
                                                     std::int64_t max_tokens);

struct Prompt {
  std::span<const std::int32_t> tokens = {};
  PromptImages images = {};
  std::uint64_t seed = 0;                                 ///< seed for its draws, in place of SamplingOptions::seed
  std::optional<std::int64_t> max_tokens = std::nullopt;  ///< in place of ContinuationLimits::max_tokens
};

struct Completion {
  std::vector<std::int32_t> tokens = {};              ///< so far, without a stop token
  std::vector<float> log_probabilities = {};          ///< values for `tokens` and the stop token (TokenSampler::Choice)
  std::optional<FinishReason> finish = std::nullopt;  ///< absent while it grows
  std::int32_t stop_token = -1;                       ///< with FinishReason::stop
};

/// Continues prompts in the slots of a Generation: gives them to slots in turn; a block of a prompt and a token of
/// every sequence alternate. A completion is a function of weights, its prompt and seed, limits and sampling, to the
/// bit (GN-2). Not thread-safe.
class Completions {
 public:
  /// `generation`, with the memory that the prompts need (Generation::reserve), outlives it.
  Completions(Generation& generation, ContinuationLimits limits, const SamplingOptions& sampling)
      : generation_(generation),
        limits_(std::move(limits)),
        sampling_(sampling),
        work_(static_cast<std::size_t>(generation.slots())) {}

  /// Adds a prompt, whose tokens and images live until its completion has ended. Throws JobError for a prompt with a
  /// refusal().
  void add(const Prompt& prompt);
  /// Returns whether all completions have ended.
  [[nodiscard]] bool idle() const { return ended_ == completions_.size(); }
  /// Computes a block of a prompt and a token of every sequence: read() and write().
  void advance() {
    read();
    write();
  }
  /// Computes the next block of a prompt; false: no prompt has a slot and a block left. Throws as TokenSampler.
  bool read();
  /// Computes the rows of the tokens that were chosen, and chooses the next; false: no sequence has such a token.
  /// Throws as TokenSampler.
  bool write();
  /// Returns the number of sequences that the next write() continues.
  [[nodiscard]] std::size_t writing() const { return active_.size(); }
  /// Returns the completions in the order of their prompts.
  [[nodiscard]] const std::vector<Completion>& all() const { return completions_; }

 private:
  struct Work {
    enum class State : std::uint8_t { free, reading, writing };
    State state = State::free;
    std::size_t prompt = 0;
    std::optional<TokenSampler> sampler;
    std::vector<std::int32_t> sequence;  // prompt and completion, for the sampler
  };
  [[nodiscard]] std::optional<std::int64_t> slot_in(Work::State state) const;
  void begin_next();
  /// Chooses the next token of the sequence in `slot` from row `row` of the logits.
  void choose(std::int64_t slot, std::int64_t row);
  void finish(std::int64_t slot, FinishReason how);

  Generation& generation_;
  ContinuationLimits limits_;
  SamplingOptions sampling_;
  std::vector<Prompt> prompts_;
  std::vector<Completion> completions_;
  std::size_t next_ = 0;           // prompt
  std::size_t ended_ = 0;          // completions
  std::vector<Work> work_;         // by slot
  std::vector<NextToken> active_;  // last tokens of the sequences that go on
};

/// Called with all completions after some have changed.
using CompletionSink = std::function<void(std::span<const Completion>)>;

/// Returns the continuation of each prompt, of which `slots` are computed at a time. Takes the memory of `generation`
/// that they need. Throws as Completions.
[[nodiscard]] std::vector<Completion> complete(Generation& generation, std::span<const Prompt> prompts,
                                               const ContinuationLimits& limits, const SamplingOptions& sampling,
                                               std::int64_t slots, const CompletionSink& sink = {});

}  // namespace maestro
