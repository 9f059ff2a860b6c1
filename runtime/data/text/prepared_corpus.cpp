// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/prepared_corpus.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/checksum.hpp"

namespace maestro {

namespace {

constexpr std::int64_t shortest_sample = 2;                 // positions
constexpr std::size_t most_mapped = std::size_t{64} << 20;  // bytes read before memory is released

}  // namespace

PreparedCorpus::PreparedCorpus(std::filesystem::path folder, const DataConfig& config)
    : folder_(std::move(folder)), config_(config), index_(read_prepared_index(folder_).value_or_throw()) {
  const std::string where = "[data] " + printable(folder_.string());
  if (config.sequence < shortest_sample) {
    throw JobError("[data] sequence = " + std::to_string(config.sequence) + " is too short; the least is 2");
  }
  if (index_.conversations && config.packing == Packing::stream) {
    throw JobError(where +
                   " holds conversations, which cannot be packed as a stream; packing = \"documents\" packs them, "
                   "each with a separate context");
  }
  stream_ = config.packing == Packing::stream || (config.packing == Packing::automatic && !index_.conversations);
  long_documents_ = config.long_documents;
  if (long_documents_ == LongDocuments::automatic) {
    long_documents_ = index_.conversations ? LongDocuments::cut : LongDocuments::split;
  }
  train_ = open_side(index_.train);
  validation_ = open_side(index_.validation);
  for (Side* side : {&train_, &validation_}) {
    if (stream_) {
      lay_stream(*side);
    } else {
      for (std::size_t at = 0; at < side->shards.size(); ++at) {
        add_documents(*side, side->shards[at], side->first[at]);
      }
      side->samples = side->begins.size();
    }
  }
  give_back(most_mapped);
  if (train_.samples > 0) return;
  throw JobError(
      where + " contains no training sample of " + std::to_string(shortest_sample) + " to " +
      std::to_string(config.sequence) + " tokens with a target" +
      (left_out_ > 0 ? "; " + std::to_string(left_out_) + " are left out, a larger sequence may keep them" : "") +
      (validation_.samples > 0 ? "; validation has all samples (" + std::to_string(validation_.samples) +
                                     "): prepare more documents, or prepare with another validation_fraction"
                               : ""));
}

PreparedCorpus::Side PreparedCorpus::open_side(const std::vector<PreparedShard>& shards) const {
  Side side;
  side.first.push_back(0);
  for (const PreparedShard& shard : shards) {
    side.shards.push_back(PreparedShardFile::open(folder_, shard, index_.conversations).value_or_throw());
    side.first.push_back(side.first.back() + shard.tokens);
  }
  return side;
}

void PreparedCorpus::lay_stream(Side& side) {
  side.positions = static_cast<std::int64_t>(side.first.back()) - 1;  // the last token is a target only
  if (side.positions % config_.sequence < shortest_sample) side.positions -= side.positions % config_.sequence;
  side.positions = std::max<std::int64_t>(side.positions, 0);
  side.samples = static_cast<std::uint64_t>((side.positions + config_.sequence - 1) / config_.sequence);
  longest_ = std::max(longest_, std::min(config_.sequence, side.positions));
}

void PreparedCorpus::add_documents(Side& side, const PreparedShardFile& shard, std::uint64_t first) {
  for (std::uint64_t document = 0; document < shard.documents(); ++document) {
    if (shard.begin(document + 1) < shard.begin(document)) {
      throw JobError(printable(folder_.string()) + ": the offsets of a shard fall; prepare the data again",
                     ErrorCode::corrupt);
    }
    add_document(side, shard, document, first);
  }
}

void PreparedCorpus::add_document(Side& side, const PreparedShardFile& shard, std::uint64_t document,
                                  std::uint64_t first) {
  const std::int64_t begin = shard.begin(document);
  const std::int64_t positions = shard.begin(document + 1) - begin - 1;
  if (positions > config_.sequence && long_documents_ == LongDocuments::drop) {
    ++left_out_;
    return;
  }
  if (positions > config_.sequence && long_documents_ == LongDocuments::cut) {
    ++cut_;
    if (index_.conversations && std::ranges::count(shard.learned(begin + config_.sequence, 2), 1) == 2) ++cut_answers_;
  }
  bool added = false;
  for (std::int64_t at = 0; at < positions; at += config_.sequence) {
    const std::int64_t length = std::min(config_.sequence, positions - at);
    if (length < shortest_sample) break;
    // True if the tokens after `at` contain a target. Only a long document's later parts must be searched.
    bool learns = shard.first_learned(document) <= at + length;
    if (learns && at > 0 && index_.conversations) {
      learns =
          std::ranges::find(shard.learned(begin + at + 1, length), 1) != shard.learned(begin + at + 1, length).end();
    }
    if (learns) {
      side.begins.push_back(first + static_cast<std::uint64_t>(begin + at));
      side.lengths.push_back(static_cast<std::uint32_t>(length));
      longest_ = std::max(longest_, length);
      added = true;
      split_ += at > 0 ? 1 : 0;
    }
    if (long_documents_ == LongDocuments::cut) break;
  }
  if (!added) ++left_out_;
}

std::size_t PreparedCorpus::shard_of(const Side& side, std::uint64_t token) {
  return static_cast<std::size_t>(std::ranges::upper_bound(side.first, token) - side.first.begin()) - 1;
}

PreparedCorpus::Window PreparedCorpus::window(Split split, SampleId sample) const {
  const Side& from = side(split);
  if (sample.value() >= from.samples) {
    throw std::out_of_range("sample " + std::to_string(sample.value()) + " of " + std::to_string(from.samples));
  }
  if (!stream_) return {from.begins[sample.value()], from.lengths[sample.value()]};
  const std::int64_t begin = static_cast<std::int64_t>(sample.value()) * config_.sequence;
  return {static_cast<std::uint64_t>(begin), std::min(config_.sequence, from.positions - begin)};
}

std::int64_t PreparedCorpus::length(Split split, SampleId sample) const {
  return window(split, sample).length;
}

std::string PreparedCorpus::origin(SampleId sample) const {
  const std::uint64_t begin = window(Split::train, sample).begin;
  const std::size_t shard = shard_of(train_, begin);
  return (folder_ / index_.train[shard].file).string() + ", token " + std::to_string(begin - train_.first[shard]);
}

std::int64_t PreparedCorpus::targets(Split split, SampleId sample) const {
  const Window of = window(split, sample);
  if (!index_.conversations) return of.length;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(of.length));
  std::vector<std::uint8_t> learned(tokens.size());
  read_tokens(side(split), of.begin + 1, tokens, learned);
  return std::ranges::count(learned, 1);
}

void PreparedCorpus::read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                                std::span<std::int32_t> targets) const {
  const std::uint64_t begin = window(split, sample).begin;
  std::vector<std::uint8_t> learned(index_.conversations ? targets.size() : 0);
  read_tokens(side(split), begin, tokens.first(1), {});
  read_tokens(side(split), begin + 1, targets, learned);
  std::ranges::copy(targets.first(targets.size() - 1), tokens.begin() + 1);
  for (std::size_t at = 0; at < learned.size(); ++at) {
    if (learned[at] == 0) targets[at] = ignored_target;
  }
  give_back(targets.size() * sizeof(std::int32_t));
}

void PreparedCorpus::read_tokens(const Side& side, std::uint64_t begin, std::span<std::int32_t> tokens,
                                 std::span<std::uint8_t> learned) const {
  std::size_t shard = shard_of(side, begin);
  for (std::size_t done = 0; done < tokens.size(); ++shard) {
    const auto offset = static_cast<std::int64_t>(begin + done - side.first[shard]);
    const auto count = std::min(tokens.size() - done, static_cast<std::size_t>(side.shards[shard].tokens() - offset));
    side.shards[shard].read(offset, tokens.subspan(done, count));
    if (!learned.empty()) {
      std::ranges::copy(side.shards[shard].learned(offset, static_cast<std::int64_t>(count)),
                        learned.begin() + static_cast<std::ptrdiff_t>(done));
    }
    done += count;
  }
  const auto [least, most] = std::ranges::minmax(tokens);
  if (least >= 0 && most < index_.vocabulary) return;
  throw std::runtime_error(printable(folder_.string()) + " has a token outside of its vocabulary of " +
                           std::to_string(index_.vocabulary) + ": a shard is damaged, prepare the data again");
}

void PreparedCorpus::give_back(std::size_t bytes) const {
  if (read_.fetch_add(bytes) + bytes < most_mapped) return;
  read_ = 0;
  for (const Side* side : {&train_, &validation_}) {
    for (const PreparedShardFile& shard : side->shards) shard.release();
  }
}

DataFingerprint PreparedCorpus::fingerprint() const {
  DataFingerprint made = Corpus::fingerprint();
  Checksum content;
  for (const auto* shards : {&index_.train, &index_.validation}) {
    for (const PreparedShard& shard : *shards) content.add(std::as_bytes(std::span(shard.checksum)));
  }
  made.insert({{"data.kind", "prepared"},
               {"data.tokenizer", index_.tokenizer_fingerprint},
               {"data.sequence", std::to_string(config_.sequence)},
               {"data.packing", stream_ ? "stream" : "documents"},
               {"content", content.text()}});
  return made;
}

std::string PreparedCorpus::own_tokenizer() const {
  const std::filesystem::path own = folder_ / prepared_tokenizer_folder;
  std::error_code ignored;
  return std::filesystem::exists(own, ignored) ? own.string() : "bytes";
}

std::string PreparedCorpus::describe() const {
  std::uint64_t documents = 0, tokens = 0;
  for (const auto* shards : {&index_.train, &index_.validation}) {
    for (const PreparedShard& shard : *shards) {
      documents += shard.documents;
      tokens += shard.tokens;
    }
  }
  std::string text = folder_.string() + ": " + std::to_string(documents) +
                     (index_.conversations ? " conversations, " : " documents, ") + std::to_string(tokens) +
                     " tokens (" + index_.tokenizer + "), " + std::to_string(samples(Split::train)) + " training and " +
                     std::to_string(samples(Split::validation)) + " validation samples of up to " +
                     std::to_string(longest_) + " tokens";
  if (cut_ > 0) text += ", " + std::to_string(cut_) + " cut to " + std::to_string(config_.sequence) + " tokens";
  if (cut_answers_ > 0) {
    text += " (" + std::to_string(cut_answers_) + " of them " + (cut_answers_ == 1 ? "ends" : "end") +
            " inside of an answer, without its end)";
  }
  if (left_out_ > 0) text += ", " + std::to_string(left_out_) + " left out (too short, too long, or without a target)";
  return text;
}

}  // namespace maestro
