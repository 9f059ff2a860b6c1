// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/other_tokens.hpp"

#include <algorithm>

#include "runtime/core/printable.hpp"
#include "runtime/model/hf_tokenizer.hpp"

namespace maestro {

namespace {

constexpr std::int32_t absent = -1;

bool is_special(const Tokenizer& tokenizer, std::int32_t token) {
  bool found = false;
  tokenizer.find_special(tokenizer.piece(token), [&](std::int32_t special) { found |= special == token; });
  return found;
}

/// Returns the id of a token by its text.
std::int32_t id_of(const Tokenizer& tokenizer, const std::string& piece) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(piece);
  return tokens.size() == 1 && tokenizer.piece(tokens.front()) == piece ? tokens.front() : absent;
}

std::string named(const ReadingModel& model, std::int32_t token) {
  return std::to_string(token) + " (" + printable(model.tokenizer->piece(token)) + ")";
}

/// Returns a text that determines an image's tokens.
std::string key_of(const ExpandedImage& image) {
  std::string key = image.text;
  for (const std::int64_t run : image.runs) key += "\n" + std::to_string(run);
  return key;
}

}  // namespace

Result<ReadingModel> read_reading_model(const std::filesystem::path& folder, std::shared_ptr<const Tokenizer> tokenizer,
                                        PassOrder order) {
  if (find_tokenizer(folder)) {
    Result<std::unique_ptr<Tokenizer>> own = open_tokenizer(folder);
    if (!own) return own.error();
    tokenizer = *std::move(own);
  }
  Result<ImageModel> images = read_image_model(folder, *tokenizer, order);
  if (!images) return images.error();
  return ReadingModel{folder, *std::move(images), std::move(tokenizer)};
}

OtherTokens::OtherTokens(ReadingModel own, ReadingModel other) : own_(std::move(own)), other_(std::move(other)) {
  const Tokenizer &mine = *own_.tokenizer, &theirs = *other_.tokenizer;
  const auto rows = static_cast<std::int32_t>(mine.vocabulary());
  for (std::int32_t id = 0; id < rows; ++id) {
    const std::string piece = mine.piece(id);
    const bool same = id < theirs.vocabulary() && theirs.piece(id) == piece;
    if (!same && !is_special(mine, id)) {  // OT-1
      throw JobError(printable(other_.folder.string()) + " has another tokenizer than the data: token " +
                     std::to_string(id) + " is " + printable(piece) + " in the data and " +
                     (id < theirs.vocabulary() ? printable(theirs.piece(id)) : "absent") +
                     " there; teacher and student need the same tokens but for special ones");
    }
    ids_.push_back(same ? id : id_of(theirs, piece));
    const bool image = id == own_.images.expander.image_token() && ids_.back() == image_token();
    moved_ += same || image ? 0 : 1;
  }
}

Result<std::vector<std::int32_t>> OtherTokens::tokens_of(const ReadingModel& model, const ExpandedImage& image) const {
  const ImageExpander& expander = model.images.expander;
  return expander.encode(expander.placeholder(), {&image, 1}, *model.tokenizer, false);
}

Result<std::shared_ptr<const OtherTokens::Expansion>> OtherTokens::expansion(const PreparedImage& image) const {
  std::vector<ExpandedImage> texts;
  for (const ReadingModel* model : {&own_, &other_}) {
    const Result<ImagePlan> plan = model->images.processor.plan(image.size, image.in_sample);
    if (!plan) return plan.error();
    Result<ExpandedImage> text = model->images.expander.expand(*plan);
    if (!text) return text.error();
    texts.push_back(*std::move(text));
  }
  const std::string key = key_of(texts.front()) + "\n\n" + key_of(texts.back());
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<const Expansion>& known = known_[key];
  if (known != nullptr) return known;
  Result<std::vector<std::int32_t>> own = tokens_of(own_, texts.front()), other = tokens_of(other_, texts.back());
  if (!own) return own.error();
  if (!other) return other.error();
  known = std::make_shared<const Expansion>(Expansion{*std::move(own), *std::move(other)});
  return known;
}

Result<bool> OtherTokens::keeps(std::span<const PreparedImage> images) const {
  if (moved_ > 0) return false;
  for (const PreparedImage& image : images) {
    const auto tokens = expansion(image);
    if (!tokens) return tokens.error();
    const auto marked = [](std::vector<std::int32_t> ids, std::int32_t image_token) {
      std::ranges::replace(ids, image_token, absent);
      return ids;
    };
    if (marked((*tokens)->own, own_.images.expander.image_token()) != marked((*tokens)->other, image_token())) {
      return false;
    }
  }
  return true;
}

Result<OtherTokens::Document> OtherTokens::rewritten(const Document& document,
                                                     std::span<const PreparedImage> images) const {
  Document made;
  const auto fail = [](std::string text) { return Error{ErrorCode::invalid_argument, std::move(text)}; };
  auto at = document.tokens.begin();
  const auto copy_until = [&](auto end) -> Status {
    for (; at != end; ++at) {
      const std::int32_t id = ids_[static_cast<std::size_t>(*at)];
      const std::uint8_t learned = document.learned[static_cast<std::size_t>(at - document.tokens.begin())];
      if (id == absent) {
        return fail("token " + named(own_, *at) + " is not one of the tokenizer in " +
                    printable(other_.folder.string()));
      }
      if (learned != 0 && id != *at) {  // OT-3
        return fail("answer token " + named(own_, *at) + " is " + named(other_, id) + " in " +
                    printable(other_.folder.string()) + "; teacher and student need the same ids in answers");
      }
      made.tokens.push_back(id);
      made.learned.push_back(learned);
    }
    return {};
  };
  for (const PreparedImage& image : images) {
    const auto tokens = expansion(image);
    if (!tokens) return tokens.error();
    const auto& [own, other] = **tokens;
    for (const auto& [model, ids] : {std::pair(&own_, &own), std::pair(&other_, &other)}) {
      if (is_special(*model->tokenizer, ids->front()) && is_special(*model->tokenizer, ids->back())) continue;
      return fail("the text of an image in " + printable(model->folder.string()) + " begins or ends with " +  // OT-2
                  named(*model, is_special(*model->tokenizer, ids->front()) ? ids->back() : ids->front()) +
                  ", which is not a special token; teacher and student need as many tokens for an image");
    }
    const auto first = std::ranges::find(own, own_.images.expander.image_token()) - own.begin();
    const auto place = std::find(at, document.tokens.end(), own_.images.expander.image_token());
    const bool whole = place - at >= first && document.tokens.end() - (place - first) >= std::ssize(own) &&
                       std::equal(own.begin(), own.end(), place - first);
    if (!whole) return fail("the tokens of an image are not those of the data's processor; prepare the data again");
    if (const Status copied = copy_until(place - first); !copied) return copied.error();
    at += std::ssize(own);
    made.tokens.insert(made.tokens.end(), other.begin(), other.end());
    made.learned.resize(made.tokens.size(), 0);
  }
  if (const Status copied = copy_until(document.tokens.end()); !copied) return copied.error();
  return made;
}

}  // namespace maestro
