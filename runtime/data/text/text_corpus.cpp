// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/text_corpus.hpp"

#include <algorithm>
#include <iterator>

#include "runtime/core/result.hpp"
#include "runtime/files/checksum.hpp"

namespace maestro {

TextCorpus::TextCorpus(const DataConfig& config)
    : config_(config),
      tokenizer_(make_tokenizer(config.tokenizer)),
      tokens_(tokenizer_->vocabulary()),
      index_(load()) {}

SampleIndex TextCorpus::load() {
  SampleIndexOptions options;
  options.sequence = config_.sequence;
  options.validation_fraction = config_.validation_fraction;
  SampleIndex::check(options);  // before a long read
  const auto keep = [&](std::span<const std::int32_t> piece) { tokens_.append(piece); };
  const std::optional<std::int32_t> end = tokenizer_->end_of_text();
  const TextFileOptions files{config_.max_file_mb, config_.as_text};
  found_ = read_text_files(config_.path, files, [&](const std::string& path, std::string_view text) {
    if (tokens_.size() > 0) end ? keep(std::span(&*end, 1)) : tokenizer_->encode("\n", keep);
    files_.emplace_back(tokens_.size(), path);
    tokenizer_->encode_text(text, config_.begin_of_text, keep);
  });
  tokens_.shrink();
  options.tokens = static_cast<std::int64_t>(tokens_.size());
  options.mode = found_.folder ? SplitMode::interleaved : SplitMode::tail;
  try {
    return SampleIndex(options);
  } catch (const JobError& error) {
    throw JobError("[data] path: " + config_.path + ": " + error.what(), error.code());
  }
}

std::int64_t TextCorpus::length(Split split, SampleId sample) const {
  return index_.window(split, sample).length;
}

std::string TextCorpus::origin(SampleId sample) const {
  const auto begin = static_cast<std::uint64_t>(index_.window(Split::train, sample).begin);
  const auto after = std::ranges::upper_bound(files_, begin, {}, &std::pair<std::uint64_t, std::string>::first);
  const auto& [first, path] = *std::prev(after);  // the first file's first token is 0
  return path + ", token " + std::to_string(begin - first);
}

void TextCorpus::read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                            std::span<std::int32_t> targets) const {
  const auto begin = static_cast<std::size_t>(index_.window(split, sample).begin);
  tokens_.read(begin, tokens);
  tokens_.read(begin + 1, targets);
}

DataFingerprint TextCorpus::fingerprint() const {
  DataFingerprint made = Corpus::fingerprint();
  Checksum content;
  content.add(tokens_.bytes());
  made.insert({{"data.kind", "text"},
               {"data.tokenizer", tokenizer_->fingerprint()},
               {"data.sequence", std::to_string(config_.sequence)},
               {"data.validation_fraction", std::to_string(config_.validation_fraction)},
               {"folder", found_.folder ? "yes" : "no"},
               {"tokens", std::to_string(tokens_.size())},
               {"content", content.text()}});
  return made;
}

std::string TextCorpus::describe() const {
  std::string text = config_.path;
  if (found_.folder) {
    text += ": " + std::to_string(found_.read) + " text files (left out: " + found_.left_out() + ")";
  }
  return text + ": " + std::to_string(tokens_.size()) + " tokens (" + std::string(tokenizer_->name()) + "), " +
         std::to_string(train_samples()) + " training and " + std::to_string(validation_samples()) +
         " validation samples of up to " + std::to_string(config_.sequence) + " tokens";
}

}  // namespace maestro
