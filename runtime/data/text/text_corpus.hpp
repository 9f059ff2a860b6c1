// SPDX-License-Identifier: Apache-2.0
// Samples from text: a file, or the text files of a folder, read and tokenized once. Each file begins with the
// begin-of-text tokens of the tokenizer, unless begin_of_text = false. Two files are separated by the token that ends a
// text, or by a newline if the tokenizer lacks such a token, like `bytes`.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/data/text/text_files.hpp"
#include "runtime/data/text/token_store.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// read_text_files decides which files of a folder count as text. Validation is the last `validation_fraction` of a
/// single file. The tail of a folder differs from its head (`tests/` comes after `src/`), so there every k-th block of
/// 16 sequences is validation instead. See SampleIndex for the exact layout and its invariants: no token is read by
/// both splits, and the last sample of a run may be shorter than `sequence`.
class TextCorpus final : public Corpus {
 public:
  /// Uses path, max_file_mb, as_text, tokenizer, begin_of_text, sequence and validation_fraction. Throws JobError; see
  /// read_text_files and SampleIndex.
  explicit TextCorpus(const DataConfig& config);

  [[nodiscard]] std::uint64_t samples(Split split) const override { return index_.samples(split); }
  [[nodiscard]] std::uint64_t train_samples() const { return samples(Split::train); }
  [[nodiscard]] std::uint64_t validation_samples() const { return samples(Split::validation); }
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override;
  [[nodiscard]] std::int64_t max_length() const override { return config_.sequence; }
  [[nodiscard]] std::string origin(SampleId sample) const override;
  [[nodiscard]] std::int64_t vocabulary() const override { return tokenizer_->vocabulary(); }
  [[nodiscard]] std::string describe() const override;
  /// Returns a fingerprint whose content covers all tokens.
  [[nodiscard]] DataFingerprint fingerprint() const override;
  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] std::uint64_t tokens() const { return tokens_.size(); }

 private:
  [[nodiscard]] SampleIndex load();
  void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override;

  DataConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenStore tokens_;
  std::vector<std::pair<std::uint64_t, std::string>> files_;  // first token, path
  TextFilesFound found_;
  SampleIndex index_;  // last: load() makes it and fills the members above
};

}  // namespace maestro
