// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding (Sennrich et al. 2016): a word's symbols, initially its characters or bytes, are merged in pairs,
// the lowest rank first and the leftmost of equals, until no pair has a merge.
//
// BE-1 (bounded time): a word of n characters takes O(n log n) time for every text: a document may be a single word.
// BE-2 (cut words): a word is cut between two characters if no token of the vocabulary spans their border; no merge
//       could cross it, so the tokens do not change.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

struct BpeOptions {
  std::unordered_map<std::string, std::int32_t> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  ///< pairs by rank
  std::optional<std::string> unknown;                       ///< token for characters without a token
  bool fuse_unknown = false;                                ///< a run of unknown characters is a single token
  bool byte_fallback = false;  ///< unknown characters become the tokens <0x00> to <0xFF> of their bytes
  bool ignore_merges = false;  ///< a word that is a token needs no merges
  bool byte_level = false;     ///< words are bytes; tokens are written in GPT-2's alphabet, byte_alphabet()
};

/// Returns the characters that stand for the 256 bytes in the files of byte-level tokenizers (GPT-2): printable bytes
/// of Latin-1 for themselves, the others from U+0100 on.
[[nodiscard]] const std::array<std::string, 256>& byte_alphabet();
/// Returns the bytes of a byte-level tokenizer's token; nothing if a character is not in the alphabet.
[[nodiscard]] std::optional<std::string> bytes_of_token(std::string_view token);

/// A map from numbers other than ~0, with open addressing: filled once, then only read.
template <class Value>
class NumberMap {
 public:
  explicit NumberMap(std::size_t most = 0)
      : slots_(std::bit_ceil(2 * most + 2), {no_key, {}}), mask_(slots_.size() - 1) {}
  /// Puts a value; at most `most` values.
  void put(std::uint64_t key, const Value& value) { slots_[slot(key)] = {key, value}; }
  [[nodiscard]] const Value* find(std::uint64_t key) const {
    const auto& found = slots_[slot(key)];
    return found.first == key ? &found.second : nullptr;
  }

 private:
  static constexpr std::uint64_t no_key = ~std::uint64_t{0};
  [[nodiscard]] std::size_t slot(std::uint64_t key) const {
    std::size_t at = (key * 0x9E3779B97F4A7C15ULL) >> 32U & mask_;
    while (slots_[at].first != key && slots_[at].first != no_key) at = (at + 1) & mask_;
    return at;
  }
  std::vector<std::pair<std::uint64_t, Value>> slots_;
  std::size_t mask_;
};

/// The tokens of earlier words. Belongs to a single thread.
class WordCache {
 public:
  /// Holds up to 2^16 words, fewer for a short text.
  explicit WordCache(std::size_t text_bytes);
  /// Returns whether a cache made for a text of this size would hold no more words.
  [[nodiscard]] bool suffices(std::size_t text_bytes) const;
  /// Returns the tokens of a word, or null. Valid until the next put().
  [[nodiscard]] const std::vector<std::int32_t>* find(std::string_view word, std::size_t hash) const;
  void put(std::string_view word, std::size_t hash, const std::int32_t* tokens, std::size_t count);

 private:
  struct Entry {
    std::string word;
    std::vector<std::int32_t> tokens;
  };
  std::vector<Entry> entries_;  // a word has a single place; later words replace earlier
};

/// Caches that outlive a text, so that short texts profit from words of earlier texts. Thread-safe.
class WordCaches {
 public:
  /// Returns a cache that suffices for the text; the caller has it exclusively until give_back().
  [[nodiscard]] std::unique_ptr<WordCache> take(std::size_t text_bytes);
  void give_back(std::unique_ptr<WordCache> cache);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> free_;  // guarded by mutex_; as many as texts were encoded at once
};

/// Immutable after construction: thread-safe, with a cache for each thread.
class BpeModel {
 public:
  /// Makes a model. An error (invalid_argument) names the option by its key in tokenizer.json: a merge whose parts or
  /// result are not tokens, an unknown token outside the vocabulary.
  [[nodiscard]] static Result<std::unique_ptr<BpeModel>> make(BpeOptions options);

  /// Appends the tokens of a word, which is valid UTF-8.
  void encode(std::string_view word, WordCache& cache, std::vector<std::int32_t>& tokens) const;
  [[nodiscard]] const std::unordered_map<std::string, std::int32_t>& vocabulary() const { return vocabulary_; }

 private:
  struct Symbol {
    std::int32_t token;
    std::int32_t next;      // index, -1: last
    std::int32_t previous;  // index, -1: first
    bool merged = false;    // into the previous symbol
  };
  struct Merge {
    std::uint32_t rank;
    std::int32_t token;
  };
  BpeModel() = default;
  [[nodiscard]] Status add_merges(const BpeOptions& options);
  [[nodiscard]] bool may_cut(const BpeOptions& options) const;
  void note_characters();
  void encode_part(std::string_view part, WordCache& cache, std::vector<std::int32_t>& tokens) const;
  void encode_uncached(std::string_view part, std::vector<std::int32_t>& tokens) const;
  /// Appends the tokens of a part's characters or bytes.
  void first_symbols(std::string_view part, std::vector<std::int32_t>& symbols) const;
  bool fall_back_to_bytes(std::string_view character, std::vector<std::int32_t>& symbols) const;
  void merge_short(std::vector<std::int32_t>& symbols) const;
  void merge_long(std::vector<std::int32_t>& symbols) const;

  std::unordered_map<std::string, std::int32_t> vocabulary_;  // keys are bytes if byte_level
  NumberMap<Merge> merges_;                                   // by token pair
  NumberMap<std::int32_t> characters_;                        // tokens of single characters
  std::array<std::int32_t, 256> byte_tokens_{};               // byte_level: tokens of single bytes; -1: none
  std::array<std::int32_t, 256> fallback_{};                  // tokens <0x00> to <0xFF>; -1: none
  NumberMap<bool> spanned_;                                   // pairs of characters inside tokens (BE-2)
  std::int32_t unknown_ = -1;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  bool byte_level_ = false;
  bool cuts_words_ = false;
};

}  // namespace maestro
