// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/llava_corpus.hpp"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "runtime/core/listed_error.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/random.hpp"
#include "runtime/data/image/image_resize.hpp"
#include "runtime/data/text/chat_template.hpp"
#include "runtime/files/checksum.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t bad_samples_listed = 20;

/// Returns a hash of the text (FNV-1a, mixed).
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix64(hash);
}

/// Returns the row's content as a single text.
std::string content_of(const Conversation& conversation) {
  std::string all = conversation.id + '\0' + conversation.system;
  for (const std::string& turn : conversation.turns) all += '\0' + turn;
  for (const std::string& image : conversation.images) all += '\0' + image;
  return all;
}

std::string sample_name(const std::string& file, const std::string& id) {
  return file + ": sample '" + id + "'";
}

}  // namespace

/// State that is needed only while the files are read.
struct LlavaCorpus::Opening {
  /// An entry near the border between training and validation.
  struct Nearest {
    double share;
    std::size_t entry;
  };

  std::unordered_map<std::string, std::uint32_t> numbers;  ///< index in pictures_, by path
  std::vector<std::string> bad;                            ///< lines about the first bad samples
  std::unordered_set<std::uint64_t> ids;                   ///< hashes of the ids so far
  std::optional<Nearest> training, validation;             ///< entry of each side that is nearest to the other side

  /// Returns the conversation's place in [0, 1): the lowest places are validation (LL-2).
  [[nodiscard]] double share_of(Conversation& conversation) {
    std::uint64_t hash = hash_of(conversation.id);
    if (!ids.insert(hash).second) {
      conversation.repairs.push_back(RowRepair::equal_id);
      hash = hash_of(content_of(conversation));
    }
    return static_cast<double>(hash >> 11) * 0x1p-53;
  }

  [[noreturn]] void throw_too_many(std::uint64_t found, std::int64_t allowed) const {
    if (found == 1) throw JobError("[data] " + bad.front() + "; max_bad_samples = 1 skips it");
    std::vector<std::string> entries = bad;
    if (found > bad.size()) entries.push_back("and " + std::to_string(found - bad.size()) + " more");
    throw ListedError("[data] " + std::to_string(found) +
                          " bad samples, more than max_bad_samples = " + std::to_string(allowed) + ":",
                      std::move(entries));
  }
};

LlavaCorpus::LlavaCorpus(const DataConfig& config, std::size_t cache_bytes)
    : config_(config),
      patch_settings_{config.patch, config.image_size, config.max_image_size},
      tokenizer_(make_tokenizer(config.tokenizer)),
      cache_(cache_bytes) {
  if (config.sequence < 2) {
    throw JobError("[data] sequence = " + std::to_string(config.sequence) + " is too short; the least is 2");
  }
  const bool own_file = !config.validation_path.empty();
  train_.file = config.path;
  validation_.file = own_file ? config.validation_path : config.path;
  Opening opening;
  load(train_, !own_file, opening);
  if (own_file) load(validation_, false, opening);
  if (!own_file) give_each_side_a_sample(opening);
  if (left_out_ > static_cast<std::uint64_t>(config.max_bad_samples)) {
    opening.throw_too_many(left_out_, config.max_bad_samples);
  }
  if (!own_file && samples(Split::train) + samples(Split::validation) == 1) {
    throw JobError("[data] path: " + config.path +
                   " has 1 sample, but training and validation (validation_fraction = " +
                   number_text(config.validation_fraction) + ") need one each; give more samples or a validation_path");
  }
  if (train_.entries.empty()) throw JobError("[data] path: " + config.path + " contains no training sample");
  if (validation_.entries.empty()) throw JobError("[data] " + validation_.file + " contains no validation sample");
}

void LlavaCorpus::give_each_side_a_sample(const Opening& opening) {
  const auto move = [](Side& from, Side& to, const std::optional<Opening::Nearest>& nearest) {
    if (!to.entries.empty() || from.entries.size() < 2) return;
    const auto at = from.entries.begin() + static_cast<std::ptrdiff_t>(nearest->entry);
    to.entries.push_back(std::move(*at));
    from.entries.erase(at);
  };
  move(train_, validation_, opening.training);
  move(validation_, train_, opening.validation);
}

void LlavaCorpus::load(Side& whole, bool split_off, Opening& opening) {
  const std::string& file = whole.file;
  const fs::path folder = config_.images.empty() ? fs::path(file).parent_path() / "images" : fs::path(config_.images);
  unread_ += read_conversations(file, [&](const std::string& id, Result<Conversation> conversation) {
    const double share = conversation && split_off ? opening.share_of(*conversation) : 1.0;
    Result<Entry> kept = conversation ? checked(*std::move(conversation), folder, opening) : conversation.error();
    if (!kept) {
      if (++left_out_ <= bad_samples_listed) opening.bad.push_back(sample_name(file, id) + ": " + kept.error().message);
      return;
    }
    const bool validates = share < config_.validation_fraction;
    Side& to = validates ? validation_ : whole;
    auto& nearest = validates ? opening.validation : opening.training;
    if (!nearest || (validates ? share > nearest->share : share < nearest->share)) nearest = {share, to.entries.size()};
    for (const RowRepair repair : kept->conversation.repairs) {
      Repaired& kind = repaired_[static_cast<std::size_t>(repair)];
      if (kind.rows++ == 0) kind.first = id;
    }
    max_patches_ = std::max<std::int64_t>(max_patches_, kept->patches);
    if (kept->patches > 0) ++with_pictures_;
    for (const std::uint32_t number : kept->pictures) grids_.add(pictures_[number].grid);
    to.entries.push_back(*std::move(kept));
  });
}

Result<LlavaCorpus::Entry> LlavaCorpus::checked(Conversation conversation, const fs::path& folder, Opening& opening) {
  Entry out;
  if (!conversation.archive.empty() && !config_.images.empty()) {
    throw JobError("[data] images = " + printable(config_.images) + " is not used: the images of " +
                   printable(conversation.archive.string()) + " are in that archive; remove the key");
  }
  for (std::size_t at = 0; at < conversation.images.size(); ++at) {
    const auto number = conversation.archive.empty() ? picture_at(folder, conversation.images[at], opening)
                                                     : picture_in(conversation.archive, conversation.members[at]);
    if (!number) return number.error();
    out.pictures.push_back(*number);
  }
  out.conversation = std::move(conversation);
  const Result<ChatTokens> chat = tokens_of(out);
  if (!chat) return chat.error();
  if (!chat->ended) {
    ++unended_;
  } else if (chat->turns < out.conversation.turns.size()) {
    ++cut_;
  }
  out.conversation.turns.resize(chat->turns);
  out.pictures.resize(chat->pictures);
  out.length = static_cast<std::int32_t>(chat->tokens.size());
  out.targets = static_cast<std::int32_t>(chat->learned);
  for (const std::int64_t count : patches_of(out)) out.patches += static_cast<std::int32_t>(count);
  out.conversation.images = {};
  out.conversation.archive.clear();
  out.conversation.members = {};
  return out;
}

Result<std::uint32_t> LlavaCorpus::picture_at(const fs::path& folder, const std::string& name, Opening& opening) {
  const fs::path path = folder / name;
  const auto known = opening.numbers.find(path.string());
  if (known != opening.numbers.end()) return known->second;
  const auto size = image_size(path);
  if (!size) return Error{size.error().code, "image " + size.error().message};
  const auto number = static_cast<std::uint32_t>(pictures_.size());
  opening.numbers.emplace(path.string(), number);
  std::error_code failure;  // the header was readable; without the file size, the fingerprint has 0
  const std::uintmax_t bytes = fs::file_size(path, failure);
  pictures_.push_back({{path, name}, patch_grid(*size, patch_settings_), failure ? 0 : bytes});
  return number;
}

Result<std::uint32_t> LlavaCorpus::picture_in(const fs::path& archive, const TarImage& member) {
  const std::string name = archive.string() + ": " + member.name;
  auto size = image_size(member.head, name);
  if (member.bytes > member.head.size() && !(size && size_stands_first(member.head))) {
    const Result<std::string> whole = read_tar_image(archive, *member.position);
    if (!whole) return whole.error();
    size = image_size(*whole, name);
  }
  if (!size) return Error{size.error().code, "image " + size.error().message};
  pictures_.push_back({{archive, member.name, member.position}, patch_grid(*size, patch_settings_), member.bytes});
  return static_cast<std::uint32_t>(pictures_.size() - 1);
}

const LlavaCorpus::Entry& LlavaCorpus::entry(Split split, SampleId sample) const {
  const std::vector<Entry>& entries = side(split).entries;
  if (sample.value() >= entries.size()) {
    throw std::out_of_range("sample " + std::to_string(sample.value()) + " of " + std::to_string(entries.size()));
  }
  return entries[static_cast<std::size_t>(sample.value())];
}

std::vector<std::int64_t> LlavaCorpus::patches_of(const Entry& entry) const {
  std::vector<std::int64_t> patches;
  for (const std::uint32_t number : entry.pictures) patches.push_back(pictures_[number].grid.patches());
  return patches;
}

Result<ChatTokens> LlavaCorpus::tokens_of(const Entry& entry) const {
  return chat_tokens(entry.conversation, patches_of(entry), *tokenizer_, config_.sequence, config_.begin_of_text);
}

std::int64_t LlavaCorpus::length(Split split, SampleId sample) const {
  return entry(split, sample).length;
}

std::int64_t LlavaCorpus::targets(Split split, SampleId sample) const {
  return entry(split, sample).targets;
}

SamplePictures LlavaCorpus::pictures(Split split, SampleId sample) const {
  const Entry& from = entry(split, sample);
  return {std::ssize(from.pictures), from.patches, from.patches};
}

/// Returns the image as a single tile, resized to the grid it had at opening (LL-3).
Result<ImageCache::Tiles> LlavaCorpus::load_image(const Picture& picture) const {
  const auto image = decode_image(picture.stored);
  if (!image) return image.error();
  return ImageCache::Tiles{resize(*image, picture.grid.columns * config_.patch, picture.grid.rows * config_.patch)};
}

Error LlavaCorpus::about(Split split, const Entry& entry, const Error& error) const {
  return {error.code, sample_name(side(split).file, entry.conversation.id) + ": image " + error.message};
}

std::string LlavaCorpus::origin(SampleId sample) const {
  return sample_name(train_.file, entry(Split::train, sample).conversation.id);
}

Status LlavaCorpus::prepare(Split split, SampleId sample) const {
  const Entry& from = entry(split, sample);
  for (const std::uint32_t number : from.pictures) {
    const Status ready = cache_.pin(number, [&] { return load_image(pictures_[number]); });
    if (!ready) return about(split, from, ready.error());
  }
  return {};
}

void LlavaCorpus::read_pictures(Split split, SampleId sample, std::span<float> pixels,
                                std::span<std::int32_t> places) const {
  const Entry& from = entry(split, sample);
  const auto columns = static_cast<std::size_t>(patch_columns());
  const auto patches = static_cast<std::size_t>(from.patches);
  if (pixels.size() != patches * columns || places.size() != patches * 3) {
    throw std::invalid_argument(std::to_string(patches) + " patches read into spans of " +
                                std::to_string(pixels.size()) + " and " + std::to_string(places.size()));
  }
  for (std::size_t at = 0; at < from.pictures.size(); ++at) {
    const Picture& picture = pictures_[from.pictures[at]];
    const auto image = cache_.take(from.pictures[at], [&] { return load_image(picture); });
    if (!image) throw std::runtime_error(about(split, from, image.error()).message);
    const auto count = static_cast<std::size_t>(picture.grid.patches());
    patchify((*image)->front(), config_.patch, static_cast<std::int32_t>(at), pixels.first(count * columns),
             places.first(count * 3));
    pixels = pixels.subspan(count * columns);
    places = places.subspan(count * 3);
  }
}

void LlavaCorpus::read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                             std::span<std::int32_t> targets) const {
  const Entry& from = entry(split, sample);
  const auto chat = tokens_of(from);
  std::ranges::copy(chat->tokens, tokens.begin());  // fits: checked at opening (LL-1)
  std::ranges::copy(chat->targets, targets.begin());
}

ConversationView LlavaCorpus::view(Split split, SampleId sample) const {
  const Entry& from = entry(split, sample);
  ConversationView out;
  out.id = from.conversation.id;
  out.question = chat_question(from.conversation);
  out.answer = from.conversation.turns[1];
  for (const std::uint32_t number : from.pictures) out.pictures.push_back(pictures_[number].stored);
  const auto chat = tokens_of(from);
  out.prompt.assign(chat->tokens.begin(), chat->tokens.begin() + static_cast<std::ptrdiff_t>(chat->prompt));
  out.patches = std::ranges::count(out.prompt, image_token);
  return out;
}

std::string LlavaCorpus::decode(std::span<const std::int32_t> prompt, std::span<const std::int32_t> written) const {
  return chat_answer(prompt, written, *tokenizer_);
}

DataFingerprint LlavaCorpus::fingerprint() const {
  Checksum content;
  const auto add = [&](const std::string& text) {
    const std::string ended = text + '\0';  // separates texts: "a", "bc" differs from "ab", "c"
    content.add(std::as_bytes(std::span(ended)));
  };
  for (const Side* side : {&train_, &validation_}) {
    for (const Entry& entry : side->entries) {
      add(entry.conversation.id);
      if (!entry.conversation.system.empty()) add(entry.conversation.system);
      for (const std::string& turn : entry.conversation.turns) add(turn);
      for (const std::uint32_t number : entry.pictures) {
        const Picture& picture = pictures_[number];
        add(picture.stored.name + " " + std::to_string(picture.bytes) + " " + std::to_string(picture.grid.rows) + "x" +
            std::to_string(picture.grid.columns));
      }
    }
  }
  if (tokenizer_->name() != "bytes") {  // the text does not determine its tokens
    add("whole texts");                 // LT-1; earlier versions encoded questions and answers separately
    for (std::int32_t id = 0; id < tokenizer_->vocabulary(); ++id) add(tokenizer_->piece(id));
  }
  DataFingerprint made = Corpus::fingerprint();
  made.insert({{"data.kind", "llava"},
               {"data.tokenizer", tokenizer_->fingerprint()},
               {"data.sequence", std::to_string(config_.sequence)},
               {"data.patch", std::to_string(config_.patch)},
               {"data.image_size", std::to_string(config_.image_size)},
               {"data.max_image_size", std::to_string(config_.max_image_size)},
               {"content", content.text()}});
  if (!tokenizer_->begin_of_text().empty()) {
    made["data.begin_of_text"] = config_.begin_of_text ? "true" : "false";
  }
  return made;
}

std::string LlavaCorpus::repairs() const {
  std::string text;
  for (std::size_t kind = 0; kind < repaired_.size(); ++kind) {
    const Repaired& repaired = repaired_[kind];
    if (repaired.rows == 0) continue;
    text += (text.empty() ? "; rows repaired: " : ", ") + std::string(row_repair_names[kind]) + " " +
            std::to_string(repaired.rows) + " (first '" + repaired.first + "')";
  }
  return text;
}

std::string LlavaCorpus::describe() const {
  const std::uint64_t held = samples(Split::train) + samples(Split::validation);
  const std::string more = validation_.file == train_.file ? "" : " and " + validation_.file;
  return config_.path + more + ": " + std::to_string(held) + " conversations (left out: " + std::to_string(left_out_) +
         " bad), " + std::to_string(with_pictures_) + " with images from " + std::to_string(pictures_.size()) +
         " files of up to " + std::to_string(max_patches_) + " patches a sample, " +
         std::to_string(samples(Split::train)) + " training and " + std::to_string(samples(Split::validation)) +
         " validation samples of up to " + std::to_string(config_.sequence) + " positions (" + std::to_string(cut_) +
         " cut after the last answer that fits, " + std::to_string(unended_) + " inside their first answer)" +
         (unread_ > 0 ? ", " + std::to_string(unread_) + " unused .json members next to captions" : "") + repairs();
}

}  // namespace maestro
