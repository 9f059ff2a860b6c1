// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/prepared_corpus.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/dataset/image_model.hpp"
#include "runtime/dataset/kept_text.hpp"
#include "runtime/files/checksum.hpp"

namespace maestro {

namespace {

constexpr std::int64_t shortest_sample = 2;                 // positions
constexpr std::size_t most_mapped = std::size_t{64} << 20;  // bytes read before memory is released

/// Returns "12 documents, 3400 tokens (TOKENIZER), ".
std::string contents_of(const PreparedIndex& index) {
  std::uint64_t documents = 0, tokens = 0;
  for (const auto* shards : {&index.train, &index.validation}) {
    for (const PreparedShard& shard : *shards) {
      documents += shard.documents;
      tokens += shard.tokens;
    }
  }
  return std::to_string(documents) + (index.conversations ? " conversations, " : " documents, ") +
         std::to_string(tokens) + " tokens (" + index.tokenizer + "), ";
}

/// Throws JobError if the data were prepared with another processor or order of passes than the job names. `where`
/// names the data in the message.
void check_processor(const PreparedImages& images, const Tokenizer& tokenizer, const DataConfig& config,
                     const std::string& where) {
  const bool horizontal = config.resample_order == ResampleOrder::horizontal;
  if (config.resample_order != ResampleOrder::automatic &&
      horizontal != (images.resample_order == PassOrder::horizontal)) {
    throw JobError(where + " was prepared with another data.resample_order; remove the key, or prepare the data again");
  }
  if (config.processor.empty()) return;
  const ImageModel model = read_image_model(config.processor, tokenizer, images.resample_order).value_or_throw();
  if (model.fingerprint() == images.processor_fingerprint) return;
  throw JobError(where + " was prepared with another processor (" + printable(images.processor) +
                 ") than data.processor = " + printable(config.processor) + "; prepare the data again with --model " +
                 printable(config.processor));
}

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
  if (index_.images) open_images();
  if (!index_.images && !config.processor.empty() && config.mix.empty()) {
    throw JobError(where +
                   " was prepared without images, so data.processor is without effect; prepare it with --model " +
                   printable(config.processor));
  }
  if (!index_.images && config.kind == DataKind::prepared && config.mix.empty() && config.max_bad_samples > 0) {
    throw JobError(where + " was prepared without images, so max_bad_samples is without effect; remove it");
  }
  std::uint64_t images = 0;
  train_ = open_side(index_.train, images);
  validation_ = open_side(index_.validation, images);
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
  throw JobError(where + " contains no training sample of " + std::to_string(shortest_sample) + " to " +
                 std::to_string(config.sequence) + " tokens with a target" +
                 (left_out_ + unfit_ > 0
                      ? "; " + std::to_string(left_out_ + unfit_) + " are left out, a larger sequence may keep them"
                      : "") +
                 (validation_.samples > 0 ? "; validation has all samples (" + std::to_string(validation_.samples) +
                                                "): prepare more documents, or prepare with another validation_fraction"
                                          : ""));
}

void PreparedCorpus::open_images() {
  const std::string where = "[data] " + printable(folder_.string());
  if (!index_.conversations) throw JobError(where + " has images, but no conversations; prepare the data again");
  if (config_.long_documents == LongDocuments::split) {
    throw JobError(where +
                   " has images, which long = \"split\" would divide; use \"cut\", which cuts at turns, or "
                   "\"drop\"");
  }
  tokenizer_ = make_tokenizer(own_tokenizer());
  images_.emplace(folder_, *index_.images);
  check_processor(*index_.images, *tokenizer_, config_, where);
}

PreparedCorpus::Side PreparedCorpus::open_side(const std::vector<PreparedShard>& shards, std::uint64_t& images) const {
  Side side;
  side.first.push_back(0);
  for (const PreparedShard& shard : shards) {
    side.shards.push_back(PreparedShardFile::open(folder_, shard, index_.conversations).value_or_throw());
    side.first.push_back(side.first.back() + shard.tokens);
    const ImageTable& table = side.shards.back().images();
    const auto containers = index_.images ? std::ssize(index_.images->containers) : 0;
    for (std::uint64_t image = 0; image < table.images(); ++image) {
      if (table.place(image).container < containers) continue;
      throw JobError(
          printable((folder_ / shard.file).string()) + ": an image lacks its container; prepare the data again",
          ErrorCode::corrupt);
    }
    side.first_image.push_back(images);
    images += table.images();
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
    if (images_) {
      add_conversation(side, shard, document, first);
    } else {
      add_document(side, shard, document, first);
    }
  }
}

void PreparedCorpus::add_conversation(Side& side, const PreparedShardFile& shard, std::uint64_t document,
                                      std::uint64_t first) {
  const std::int64_t begin = shard.begin(document);
  const std::int64_t positions = shard.begin(document + 1) - begin - 1;
  std::int64_t length = positions;
  if (positions > config_.sequence) {
    if (long_documents_ == LongDocuments::drop) {
      ++left_out_;
      return;
    }
    // The sample ends with the last answer's last token: a target whose next token is none.
    const std::span<const std::uint8_t> learned = shard.learned(begin, positions + 1);
    length = config_.sequence;
    const auto ends = [&](std::int64_t at) {
      return learned[static_cast<std::size_t>(at)] != 0 && learned[static_cast<std::size_t>(at) + 1] == 0;
    };
    while (length > 0 && !ends(length)) --length;
    if (length < shortest_sample) {
      ++unfit_;
      return;
    }
    ++cut_;
  }
  if (length < shortest_sample || shard.first_learned(document) > length) {
    ++left_out_;
    return;
  }
  side.begins.push_back(first + static_cast<std::uint64_t>(begin));
  side.lengths.push_back(static_cast<std::uint32_t>(length));
  longest_ = std::max(longest_, length);
  const Split split = &side == &train_ ? Split::train : Split::validation;
  side.samples = side.begins.size();
  const SamplePictures pictures = this->pictures(split, SampleId(side.samples - 1));
  most_rows_ = {std::max(most_rows_.images, pictures.images), std::max(most_rows_.patches, pictures.patches),
                std::max(most_rows_.visual, pictures.visual)};
  more_visual_ |= pictures.visual > pictures.patches;
  if (pictures.images > 0) {
    ++with_images_;
    for (const NumberedImage& image : images_of(split, SampleId(side.samples - 1))) {
      grids_.add(images_->tile_grid(image.image).value_or_throw());
    }
  }
}

std::vector<NumberedImage> PreparedCorpus::images_of(Split split, SampleId sample) const {
  if (!images_) return {};
  const Side& from = side(split);
  const Window at = window(split, sample);
  const std::size_t number = shard_of(from, at.begin);
  const PreparedShardFile& shard = from.shards[number];
  const ImageTable& table = shard.images();
  const auto begin = static_cast<std::int64_t>(at.begin - from.first[number]);
  const std::uint64_t document = shard.document_of(begin);
  const std::uint64_t first = table.first(document), end = table.first(document + 1);
  if (first == end) return {};
  std::int64_t rows = INT64_MAX;  // of the images that the sample has
  if (begin + at.length + 1 < shard.begin(document + 1)) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(at.length));
    shard.read(begin, tokens);
    rows = std::ranges::count(tokens, index_.images->image_token);
  }
  std::vector<NumberedImage> images;
  for (std::uint64_t image = first; image < end; ++image) {
    const PreparedImage each = table.image(image);
    rows -= each.visual_rows;
    if (rows < 0) break;
    images.push_back({static_cast<ImageCache::Key>(from.first_image[number] + image), each, table.place(image)});
  }
  return images;
}

SamplePictures PreparedCorpus::pictures(Split split, SampleId sample) const {
  SamplePictures sum;
  for (const NumberedImage& each : images_of(split, sample)) {
    sum.images += each.image.tiles;
    sum.patches += each.image.encoder_rows;
    sum.visual += each.image.visual_rows;
  }
  return sum;
}

std::string PreparedCorpus::place_of(Split split, SampleId sample) const {
  const Side& from = side(split);
  const std::uint64_t begin = window(split, sample).begin;
  const std::size_t shard = shard_of(from, begin);
  const std::vector<PreparedShard>& shards = split == Split::train ? index_.train : index_.validation;
  return (folder_ / shards[shard].file).string() + ", token " + std::to_string(begin - from.first[shard]);
}

Error PreparedCorpus::about(Split split, SampleId sample, const Error& error) const {
  return {error.code, printable(place_of(split, sample)) + ": image " + error.message};
}

Status PreparedCorpus::prepare(Split split, SampleId sample) const {
  for (const NumberedImage& image : images_of(split, sample)) {
    if (const Status ready = images_->prepare(image); !ready) return about(split, sample, ready.error());
  }
  return {};
}

void PreparedCorpus::read_pictures(Split split, SampleId sample, std::span<float> pixels,
                                   std::span<std::int32_t> places) const {
  if (!images_) return Corpus::read_pictures(split, sample, pixels, places);
  const Status read = images_->read(images_of(split, sample), pixels, places);
  if (!read) throw std::runtime_error(about(split, sample, read.error()).message);
}

void PreparedCorpus::read_mix(Split split, SampleId sample, std::span<std::int32_t> sources,
                              std::span<float> weights) const {
  if (!images_) return Corpus::read_mix(split, sample, sources, weights);
  const Status read = images_->mix(images_of(split, sample), sources, weights);
  if (!read) throw std::runtime_error(about(split, sample, read.error()).message);
}

void PreparedCorpus::read_marks(Split split, SampleId sample, std::span<std::int32_t> marks) const {
  if (!has_marks()) return Corpus::read_marks(split, sample, marks);
  const auto length = static_cast<std::size_t>(this->length(split, sample));
  std::vector<std::int32_t> tokens(length), targets(length);
  read(split, sample, tokens, targets);
  const auto learned = std::ranges::find_if(targets, [](std::int32_t target) { return target != ignored_target; });
  const auto prefix = std::min(std::ssize(targets), learned - targets.begin() + 1);
  const Status marked = images_->mark(images_of(split, sample), tokens, prefix, marks);
  if (!marked) throw std::runtime_error(about(split, sample, marked.error()).message);
}

ConversationView PreparedCorpus::view(Split split, SampleId sample) const {
  const auto length = static_cast<std::size_t>(this->length(split, sample));
  std::vector<std::int32_t> tokens(length), targets(length);
  read(split, sample, tokens, targets);
  const auto first = std::ranges::find_if(targets, [](std::int32_t target) { return target != ignored_target; });
  const auto end = std::find(first, targets.end(), ignored_target);
  ConversationView out;
  out.id = place_of(split, sample);
  out.prompt.assign(tokens.begin(), tokens.begin() + (first - targets.begin()) + 1);
  std::vector<std::int32_t> words = out.prompt;
  std::erase(words, image_token);
  out.question = decode({}, words);
  // Newlines between tiles remain from the text of an image.
  const auto twice = [](char left, char right) { return left == '\n' && right == '\n'; };
  out.question.erase(std::unique(out.question.begin(), out.question.end(), twice), out.question.end());
  out.answer = decode({}, std::span(targets).subspan(static_cast<std::size_t>(first - targets.begin()),
                                                     static_cast<std::size_t>(end - first)));
  // Images of later questions follow; the prompt has those before the answer.
  std::int64_t rows = std::ranges::count(out.prompt, image_token);
  for (const NumberedImage& image : images_of(split, sample)) {
    rows -= image.image.visual_rows;
    if (rows < 0) break;
    out.pictures.push_back(images_->stored(image));
    out.patches += image.image.encoder_rows;
  }
  return out;
}

std::string PreparedCorpus::decode(std::span<const std::int32_t> /*prompt*/,
                                   std::span<const std::int32_t> written) const {
  return std::string(trimmed(tokenizer_->decode(written, true)));
}

std::vector<std::int32_t> PreparedCorpus::ends() const {
  const auto end = tokenizer_->end_of_text();
  return end ? std::vector<std::int32_t>{*end} : std::vector<std::int32_t>();
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
  return place_of(Split::train, sample);
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
  if (images_) std::ranges::replace(tokens, index_.images->image_token, image_token);
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
  if (index_.images) made["data.processor"] = index_.images->processor_fingerprint;
  return made;
}

std::uint64_t PreparedCorpus::left_out() const {
  const auto bad = index_.counts.find("bad rows");
  return config_.kind == DataKind::prepared || bad == index_.counts.end() ? 0 : bad->second;
}

std::string PreparedCorpus::own_tokenizer() const {
  const std::filesystem::path own = folder_ / prepared_tokenizer_folder;
  std::error_code ignored;
  return std::filesystem::exists(own, ignored) ? own.string() : "bytes";
}

std::string PreparedCorpus::describe() const {
  std::string text = folder_.string() + ": " + contents_of(index_) + std::to_string(samples(Split::train)) +
                     " training and " + std::to_string(samples(Split::validation)) + " validation samples of up to " +
                     std::to_string(longest_) + " tokens";
  if (images_) {
    text += ", " + std::to_string(with_images_) + " samples with images of up to " +
            std::to_string(most_rows_.patches) + " patches a sample (" + printable(index_.images->processor) + ")";
    if (cut_ > 0) text += ", " + std::to_string(cut_) + " cut after the last answer that fits";
    if (unfit_ > 0) {
      text += ", " + std::to_string(unfit_) + " left out (the first answer does not fit " +
              std::to_string(config_.sequence) + " tokens)";
    }
  } else if (cut_ > 0) {
    text += ", " + std::to_string(cut_) + " cut to " + std::to_string(config_.sequence) + " tokens";
  }
  if (cut_answers_ > 0) {
    text += " (" + std::to_string(cut_answers_) + " of them " + (cut_answers_ == 1 ? "ends" : "end") +
            " inside of an answer, without its end)";
  }
  if (left_out_ > 0) text += ", " + std::to_string(left_out_) + " left out (too short, too long, or without a target)";
  return text;
}

}  // namespace maestro
