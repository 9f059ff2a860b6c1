// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/prepared_corpus.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/dataset/conversation_template.hpp"
#include "runtime/dataset/image_model.hpp"
#include "runtime/dataset/kept_text.hpp"
#include "runtime/files/checksum.hpp"
#include "runtime/model/hf_tokenizer.hpp"

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
  throw JobError(where + " was prepared with another processor (" + printable(images.description()) +
                 ") than data.processor = " + printable(config.processor) + "; prepare the data again with --model " +
                 printable(config.processor));
}

/// Returns the end of the error for data without a training sample.
std::string nothing_to_train_on(std::int64_t sequence, std::uint64_t left_out, std::uint64_t validation) {
  return " contains no training sample of " + std::to_string(shortest_sample) + " to " + std::to_string(sequence) +
         " tokens with a target" +
         (left_out > 0 ? "; " + std::to_string(left_out) + " are left out, a larger sequence may keep them" : "") +
         (validation > 0 ? "; validation has all samples (" + std::to_string(validation) +
                               "): prepare more documents, or prepare with another validation_fraction"
                         : "");
}

/// Replaces the model's tokens for images and sounds by image_token and sound_token.
void mark_places(const PreparedImages& images, std::span<std::int32_t> tokens) {
  std::ranges::replace(tokens, images.image_token, image_token);
  if (images.sound_token) std::ranges::replace(tokens, *images.sound_token, sound_token);
}

/// Returns a document's number in its split, from 0, and its file.
std::string name_of(const PreparedSplit& split, const PreparedShardFile& shard, std::uint64_t document,
                    const PreparedIndex& index) {
  std::uint64_t number = document;
  for (std::size_t at = 0; &split.shard(at) != &shard; ++at) number += split.shard(at).documents();
  const auto source = static_cast<std::size_t>(shard.source(document));
  return "document " + std::to_string(number) +
         (source < index.sources.size() ? ", from " + printable(index.sources[source].path) : "");
}

/// Returns the most positions, at most `sequence`, that end with an answer's last token: a target whose next token is
/// none. 0: the first answer is longer. `learned` has a flag per token, at least `sequence` + 1.
std::int64_t positions_of_turns(std::span<const std::uint8_t> learned, std::int64_t sequence) {
  std::int64_t length = sequence;
  const auto ends = [&](std::int64_t at) {
    return learned[static_cast<std::size_t>(at)] != 0 && learned[static_cast<std::size_t>(at) + 1] == 0;
  };
  while (length > 0 && !ends(length)) --length;
  return length;
}

}  // namespace

PreparedCorpus::PreparedCorpus(std::filesystem::path folder, const DataConfig& config, std::filesystem::path reader,
                               Modality table)
    : folder_(std::move(folder)),
      config_(config),
      reader_(std::move(reader)),
      table_(table),
      index_(read_prepared_index(folder_).value_or_throw()) {
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
  train_ = PreparedSplit(folder_, index_, index_.train, images, table_);
  validation_ = PreparedSplit(folder_, index_, index_.validation, images, table_);
  for (PreparedSplit* side : {&train_, &validation_}) {
    if (stream_) {
      longest_ = std::max(longest_, side->lay_stream(config_.sequence, shortest_sample));
    } else {
      for (std::size_t at = 0; at < side->shards(); ++at) add_documents(*side, side->shard(at), side->first(at));
    }
  }
  if (other_tokens_) count_other_tokens();
  give_back(most_mapped);
  if (train_.samples() > 0) return;
  throw JobError(where + nothing_to_train_on(config.sequence, left_out_ + unfit_, validation_.samples()));
}

void PreparedCorpus::open_images() {
  const std::string where = "[data] " + printable(folder_.string());
  if (!index_.conversations) throw JobError(where + " has images, but no conversations; prepare the data again");
  if (config_.long_documents == LongDocuments::split) {
    throw JobError(where +
                   " has images, which long = \"split\" would divide; use \"cut\", which cuts at turns, or "
                   "\"drop\"");
  }
  tokenizer_ = make_prepared_tokenizer(data_tokenizer(), index_.images);
  if (reader_.empty()) {
    check_processor(*index_.images, *tokenizer_, config_, where);
  } else {
    open_reader();
  }
  images_.emplace(folder_, *index_.images, reader_, table_);
}

void PreparedCorpus::open_reader() {
  PreparedImages& images = *index_.images;
  ReadingModel own =
      read_reading_model(folder_ / prepared_processor_folder, tokenizer_, images.resample_order).value_or_throw();
  own.folder = images.processor;
  ReadingModel other = read_reading_model(reader_, tokenizer_, images.resample_order).value_or_throw();
  images.processor = reader_.string();
  images.processor_fingerprint = other.images.fingerprint();
  other_tokens_ = std::make_unique<OtherTokens>(std::move(own), std::move(other));
}

void PreparedCorpus::count_other_tokens() {
  const auto planned = [&](Split split, std::uint64_t sample) {
    std::vector<PreparedImage> images;
    for (const NumberedImage& image : images_of(split, SampleId(sample))) images.push_back(image.image);
    return images;
  };
  bool kept = true;
  for (const Split split : {Split::train, Split::validation}) {
    for (std::uint64_t sample = 0; sample < samples(split); ++sample) {
      const Result<bool> keeps = other_tokens_->keeps(planned(split, sample));
      if (!keeps) throw JobError(about(split, SampleId(sample), keeps.error()).message);
      kept &= *keeps;
    }
  }
  if (kept) return other_tokens_.reset();
  longest_ = 0;
  for (const Split split : {Split::train, Split::validation}) {
    for (std::uint64_t sample = 0; sample < samples(split); ++sample) {
      const auto document = rewritten(split, SampleId(sample));
      const std::string where = printable(side(split).place_of(SampleId(sample))) + ": ";
      if (!document) throw JobError(where + document.error().message);
      const std::int64_t length = std::ssize(document->tokens) - 1;
      if (length > other_tokens_->positions()) {
        throw JobError(where + "the sample has " + std::to_string(side(split).window(SampleId(sample)).length) +
                       " tokens, " + "but " + std::to_string(length) + " for " + printable(reader_.string()) +
                       ", which has " + std::to_string(other_tokens_->positions()) + " positions; lower data.sequence");
      }
      other_lengths_[split == Split::train ? 0 : 1].push_back(static_cast<std::uint32_t>(length));
      longest_ = std::max(longest_, length);
    }
  }
}

Result<OtherTokens::Document> PreparedCorpus::rewritten(Split split, SampleId sample) const {
  const PreparedSplit::Window at = side(split).window(sample);
  OtherTokens::Document document;
  document.tokens.resize(static_cast<std::size_t>(at.length) + 1);
  document.learned.resize(document.tokens.size());
  side(split).read(at.begin, document.tokens, document.learned);
  document.learned.front() = 0;  // never a target
  std::vector<PreparedImage> images;
  for (const NumberedImage& image : images_of(split, sample)) images.push_back(image.image);
  return other_tokens_->rewritten(document, images);
}

void PreparedCorpus::add_documents(PreparedSplit& side, const PreparedShardFile& shard, std::uint64_t first) {
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

void PreparedCorpus::add_conversation(PreparedSplit& side, const PreparedShardFile& shard, std::uint64_t document,
                                      std::uint64_t first) {
  const std::int64_t begin = shard.begin(document);
  const std::int64_t positions = shard.begin(document + 1) - begin - 1;
  std::int64_t length = positions;
  if (positions > config_.sequence) {
    if (long_documents_ == LongDocuments::drop) {
      ++left_out_;
      return;
    }
    length = positions_of_turns(shard.learned(begin, positions + 1), config_.sequence);
    if (length < shortest_sample) {
      if (unfit_++ == 0) first_unfit_ = name_of(side, shard, document, index_);
      return;
    }
    ++cut_;
  }
  if (length < shortest_sample || shard.first_learned(document) > length) {
    ++left_out_;
    return;
  }
  side.add({first + static_cast<std::uint64_t>(begin), length});
  longest_ = std::max(longest_, length);
  const Split split = &side == &train_ ? Split::train : Split::validation;
  const SamplePictures pictures = this->pictures(split, SampleId(side.samples() - 1));
  most_rows_ = {std::max(most_rows_.images, pictures.images), std::max(most_rows_.patches, pictures.patches),
                std::max(most_rows_.visual, pictures.visual)};
  more_visual_ |= pictures.visual > pictures.patches;
  if (pictures.images > 0) {
    ++with_images_;
    for (const NumberedImage& image : images_of(split, SampleId(side.samples() - 1))) {
      grids_.add(images_->tile_grid(image.image).value_or_throw());
    }
  }
}

std::vector<NumberedImage> PreparedCorpus::images_of(Split split, SampleId sample) const {
  if (!images_) return {};
  std::vector<NumberedImage> images = side(split).images_of(sample, model_token());
  for (NumberedImage& each : images) {
    if (!reader_.empty()) each.image = images_->planned(each.image).value_or_throw();
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

Error PreparedCorpus::about(Split split, SampleId sample, const Error& error) const {
  return {error.code,
          printable(side(split).place_of(sample)) + ": " + std::string(images_->medium().noun) + " " + error.message};
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
  out.id = side(split).place_of(sample);
  out.prompt.assign(tokens.begin(), tokens.begin() + (first - targets.begin()) + 1);
  std::vector<std::int32_t> words = out.prompt;
  std::erase_if(words, [](std::int32_t token) { return token == image_token || token == sound_token; });
  out.question = decode({}, words);
  if (index_.images && index_.images->scaled) out.question = first_question(out.question);
  // Newlines between tiles remain from the text of an image.
  const auto twice = [](char left, char right) { return left == '\n' && right == '\n'; };
  out.question.erase(std::unique(out.question.begin(), out.question.end(), twice), out.question.end());
  out.answer = decode({}, std::span(targets).subspan(static_cast<std::size_t>(first - targets.begin()),
                                                     static_cast<std::size_t>(end - first)));
  // Images of later questions follow; the prompt has those before the answer.
  std::int64_t rows = std::ranges::count(out.prompt, table_ == Modality::sound ? sound_token : image_token);
  for (const NumberedImage& image : images_of(split, sample)) {
    rows -= image.image.visual_rows;
    if (rows < 0) break;
    if (images_->medium() == image_medium) out.pictures.push_back(images_->stored(image));
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

void PreparedCorpus::add_document(PreparedSplit& side, const PreparedShardFile& shard, std::uint64_t document,
                                  std::uint64_t first) {
  const std::int64_t begin = shard.begin(document);
  const std::int64_t positions = shard.begin(document + 1) - begin - 1;
  const bool prompt = prompts_only();
  if (positions > config_.sequence && (prompt || long_documents_ == LongDocuments::drop)) {
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
    bool learns = prompt || shard.first_learned(document) <= at + length;
    if (learns && !prompt && at > 0 && index_.conversations) {
      learns =
          std::ranges::find(shard.learned(begin + at + 1, length), 1) != shard.learned(begin + at + 1, length).end();
    }
    if (learns) {
      side.add({first + static_cast<std::uint64_t>(begin + at), length});
      longest_ = std::max(longest_, length);
      added = true;
      split_ += at > 0 ? 1 : 0;
    }
    if (long_documents_ == LongDocuments::cut) break;
  }
  if (!added) ++left_out_;
}

std::int64_t PreparedCorpus::length(Split split, SampleId sample) const {
  const PreparedSplit::Window at = side(split).window(sample);
  return other_tokens_ ? other_lengths_[split == Split::train ? 0 : 1][sample.value()] : at.length;
}

std::string PreparedCorpus::origin(SampleId sample) const {
  return train_.place_of(sample);
}

std::int64_t PreparedCorpus::targets(Split split, SampleId sample) const {
  const PreparedSplit::Window of = side(split).window(sample);
  if (!index_.conversations) return of.length;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(of.length));
  std::vector<std::uint8_t> learned(tokens.size());
  side(split).read(of.begin + 1, tokens, learned);
  return std::ranges::count(learned, 1);
}

void PreparedCorpus::read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                                std::span<std::int32_t> targets) const {
  if (other_tokens_) {
    const auto document = rewritten(split, sample);
    if (!document) throw std::runtime_error(printable(side(split).place_of(sample)) + ": " + document.error().message);
    std::ranges::copy(std::span(document->tokens).first(tokens.size()), tokens.begin());
    std::ranges::replace(tokens, other_tokens_->image_token(), image_token);
    for (std::size_t at = 0; at < targets.size(); ++at) {
      targets[at] = document->learned[at + 1] != 0 ? document->tokens[at + 1] : ignored_target;
    }
    return give_back(targets.size() * sizeof(std::int32_t));
  }
  const std::uint64_t begin = side(split).window(sample).begin;
  std::vector<std::uint8_t> learned(index_.conversations ? targets.size() : 0);
  side(split).read(begin, tokens.first(1), {});
  side(split).read(begin + 1, targets, learned);
  std::ranges::copy(targets.first(targets.size() - 1), tokens.begin() + 1);
  for (std::size_t at = 0; at < learned.size(); ++at) {
    if (learned[at] == 0) targets[at] = ignored_target;
  }
  if (images_) mark_places(*index_.images, tokens);
  give_back(targets.size() * sizeof(std::int32_t));
}

void PreparedCorpus::give_back(std::size_t bytes) const {
  if (read_.fetch_add(bytes) + bytes < most_mapped) return;
  read_ = 0;
  train_.release();
  validation_.release();
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
  if (const auto& images = index_.images) {
    made[images->scaled ? "data.images" : "data.processor"] = images->processor_fingerprint;
  }
  return made;
}

std::uint64_t PreparedCorpus::left_out() const {
  const auto bad = index_.counts.find("bad rows");
  return config_.kind == DataKind::prepared || bad == index_.counts.end() ? 0 : bad->second;
}

std::string PreparedCorpus::own_tokenizer() const {
  return !reader_.empty() && find_tokenizer(reader_) ? reader_.string() : data_tokenizer();
}

std::string PreparedCorpus::data_tokenizer() const {
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
            std::to_string(most_rows_.patches) + " patches a sample (" + printable(index_.images->description()) + ")";
    if (sounds() != nullptr) {
      text += ", and sounds with at most " + std::to_string(sounds()->max_patches()) + " rows a sample";
    }
    if (cut_ > 0) text += ", " + std::to_string(cut_) + " cut after the last answer that fits";
    if (unfit_ > 0) {
      text += ", " + std::to_string(unfit_) + " left out (the first answer does not fit " +
              std::to_string(config_.sequence) + " tokens; the first is " + first_unfit_ + ")";
    }
  } else if (cut_ > 0) {
    text += ", " + std::to_string(cut_) + " cut to " + std::to_string(config_.sequence) + " tokens";
  }
  if (cut_answers_ > 0) {
    text += " (" + std::to_string(cut_answers_) + " of them " + (cut_answers_ == 1 ? "ends" : "end") +
            " inside of an answer, without its end)";
  }
  if (left_out() > 0) text += ", " + std::to_string(left_out()) + " bad rows left out";
  if (left_out_ > 0) text += ", " + std::to_string(left_out_) + " left out (too short, too long, or without a target)";
  return text;
}

}  // namespace maestro
