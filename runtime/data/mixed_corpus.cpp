// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/mixed_corpus.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

MixedCorpus::MixedCorpus(std::vector<MixedPart> parts) : parts_(std::move(parts)) {
  if (parts_.empty()) throw JobError("[data.mix] needs a source");
  const std::string& first = parts_.front().corpus->index().tokenizer_fingerprint;
  for (const MixedPart& part : parts_) {
    if (part.corpus->index().tokenizer_fingerprint == first) continue;
    throw JobError("[data.mix." + part.name + "] was prepared with the tokenizer " +
                   printable(part.corpus->index().tokenizer) + ", but [data.mix." + parts_.front().name + "] with " +
                   printable(parts_.front().corpus->index().tokenizer) + "; prepare both with the same");
  }
  check_processors();
}

void MixedCorpus::check_processors() const {
  const MixedPart* first = nullptr;
  for (const MixedPart& part : parts_) {
    const auto& images = part.corpus->index().images;
    if (!images) continue;
    if (first == nullptr) first = &part;
    if (images->processor_fingerprint == first->corpus->index().images->processor_fingerprint) continue;
    throw JobError("[data.mix." + part.name + "] was prepared with the processor " + printable(images->description()) +
                   ", but [data.mix." + first->name + "] with " +
                   printable(first->corpus->index().images->description()) + "; prepare both with the same");
  }
}

bool MixedCorpus::prompts_only() const {
  return std::ranges::any_of(parts_, [](const MixedPart& part) { return part.corpus->prompts_only(); });
}

std::int64_t MixedCorpus::patch_columns() const {
  std::int64_t columns = 0;
  for (const MixedPart& part : parts_) columns = std::max(columns, part.corpus->patch_columns());
  return columns;
}

std::int64_t MixedCorpus::max_patches() const {
  std::int64_t most = 0;
  for (const MixedPart& part : parts_) most = std::max(most, part.corpus->max_patches());
  return most;
}

std::int64_t MixedCorpus::max_visual() const {
  std::int64_t most = 0;
  bool more = false;
  for (const MixedPart& part : parts_) {
    most = std::max(most, part.corpus->max_visual());
    more |= part.corpus->max_visual() > part.corpus->max_patches();
  }
  return more ? std::max(most, max_patches() + 1) : most;
}

bool MixedCorpus::mixes_rows() const {
  return std::ranges::any_of(parts_, [](const MixedPart& part) { return part.corpus->mixes_rows(); });
}

bool MixedCorpus::has_marks() const {
  return std::ranges::any_of(parts_, [](const MixedPart& part) { return part.corpus->has_marks(); });
}

std::int64_t MixedCorpus::vocabulary() const {
  std::int64_t most = 0;
  for (const MixedPart& part : parts_) most = std::max(most, part.corpus->vocabulary());
  return most;
}

bool MixedCorpus::rewrites_tokens() const {
  return std::ranges::any_of(parts_, [](const MixedPart& part) { return part.corpus->rewrites_tokens(); });
}

PictureGrids MixedCorpus::picture_grids() const {
  PictureGrids sum;
  for (const MixedPart& part : parts_) sum.merge(part.corpus->picture_grids());
  return sum;
}

std::uint64_t MixedCorpus::samples(Split split) const {
  std::uint64_t sum = 0;
  for (const MixedPart& part : parts_) sum += part.corpus->samples(split);
  return sum;
}

std::vector<SampleSource> MixedCorpus::sources() const {
  std::vector<SampleSource> sources;
  for (const MixedPart& part : parts_) sources.push_back({part.corpus->samples(Split::train), part.weight});
  return sources;
}

std::vector<SourceTeachers> MixedCorpus::teachers() const {
  std::vector<SourceTeachers> teachers;
  for (const MixedPart& part : parts_) teachers.push_back({part.name, part.teachers});
  return teachers;
}

MixedCorpus::Place MixedCorpus::place(Split split, SampleId sample) const {
  std::uint64_t left = sample.value();
  for (std::uint32_t at = 0; at < parts_.size(); ++at) {
    const PreparedCorpus* corpus = parts_[at].corpus.get();
    const std::uint64_t samples = corpus->samples(split);
    if (left < samples) return {corpus, SampleId(left), at};
    left -= samples;
  }
  throw std::out_of_range("sample " + std::to_string(sample.value()) + " of " + std::to_string(samples(split)));
}

std::int64_t MixedCorpus::length(Split split, SampleId sample) const {
  const Place at = place(split, sample);
  return at.corpus->length(split, at.sample);
}

std::int64_t MixedCorpus::max_length() const {
  std::int64_t longest = 0;
  for (const MixedPart& part : parts_) longest = std::max(longest, part.corpus->max_length());
  return longest;
}

std::int64_t MixedCorpus::targets(Split split, SampleId sample) const {
  const Place at = place(split, sample);
  return at.corpus->targets(split, at.sample);
}

void MixedCorpus::read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                             std::span<std::int32_t> targets) const {
  const Place at = place(split, sample);
  at.corpus->read(split, at.sample, tokens, targets);
}

std::string MixedCorpus::describe() const {
  double sum = 0;
  for (const MixedPart& part : parts_) sum += part.weight;
  std::string text = std::to_string(parts_.size()) + " sources";
  for (const MixedPart& part : parts_) {
    text += "; " + part.name + " (" + number_text(std::round(1000 * part.weight / sum) / 10) +
            "%): " + part.corpus->describe();
    for (const std::string& teacher : part.teachers) {
      text += (teacher == part.teachers.front() ? "; taught by " : ", ") + teacher;
    }
  }
  return text;
}

DataFingerprint MixedCorpus::fingerprint() const {
  DataFingerprint made = Corpus::fingerprint();
  for (const MixedPart& part : parts_) {
    made["data.mix." + part.name + ".weight"] = number_text(part.weight);
    for (const auto& [key, value] : part.corpus->fingerprint()) made["data.mix." + part.name + ": " + key] = value;
  }
  return made;
}

}  // namespace maestro
