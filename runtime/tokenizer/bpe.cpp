// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/bpe.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <queue>
#include <set>

#include "runtime/core/json_text.hpp"
#include "runtime/tokenizer/character.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_cached_words = std::size_t{1} << 16;
constexpr std::size_t longest_cached_word = 64;  // bytes
constexpr std::size_t longest_short_word = 24;   // symbols: below it a scan for the best pair beats the queue

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32U | right;
}

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return pair_of(static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(right));
}

}  // namespace

const std::array<std::string, 256>& byte_alphabet() {
  static const auto made = [] {
    std::array<std::string, 256> alphabet;
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      alphabet[byte] = utf8_of(printable ? byte : next++);
    }
    return alphabet;
  }();
  return made;
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  static const auto byte_of = [] {
    std::map<char32_t, char> made;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      made[character_at(byte_alphabet()[byte], 0).point] = static_cast<char>(byte);
    }
    return made;
  }();
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const Character c = character_at(token, at);
    const auto found = byte_of.find(c.point);
    if (found == byte_of.end()) return std::nullopt;
    bytes += found->second;
    at += c.bytes;
  }
  return bytes;
}

namespace {

std::size_t words_for(std::size_t text_bytes) {
  return std::bit_ceil(std::clamp<std::size_t>(text_bytes / 16, 1, most_cached_words));
}

}  // namespace

WordCache::WordCache(std::size_t text_bytes) : entries_(words_for(text_bytes)) {}

bool WordCache::suffices(std::size_t text_bytes) const {
  return words_for(text_bytes) <= entries_.size();
}

std::unique_ptr<WordCache> WordCaches::take(std::size_t text_bytes) {
  constexpr std::size_t least_bytes = std::size_t{1} << 18;  // 2^14 words, about a megabyte
  std::unique_ptr<WordCache> cache;
  {
    const std::scoped_lock lock(mutex_);
    if (!free_.empty()) {
      cache = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (cache && cache->suffices(text_bytes)) return cache;
  return std::make_unique<WordCache>(std::max(text_bytes, least_bytes));
}

void WordCaches::give_back(std::unique_ptr<WordCache> cache) {
  const std::scoped_lock lock(mutex_);
  free_.push_back(std::move(cache));
}

const std::vector<std::int32_t>* WordCache::find(std::string_view word, std::size_t hash) const {
  const Entry& entry = entries_[hash & (entries_.size() - 1)];
  return entry.word == word ? &entry.tokens : nullptr;
}

void WordCache::put(std::string_view word, std::size_t hash, const std::int32_t* tokens, std::size_t count) {
  Entry& entry = entries_[hash & (entries_.size() - 1)];
  entry.word = word;
  entry.tokens.assign(tokens, tokens + count);
}

Result<std::unique_ptr<BpeModel>> BpeModel::make(BpeOptions options) {
  std::unique_ptr<BpeModel> model(new BpeModel);
  model->fuse_unknown_ = options.fuse_unknown;
  model->byte_fallback_ = options.byte_fallback;
  model->ignore_merges_ = options.ignore_merges;
  model->byte_level_ = options.byte_level;
  model->byte_tokens_.fill(-1);
  model->fallback_.fill(-1);
  if (const Status added = model->add_merges(options); !added.ok()) return added.error();
  if (options.unknown) {
    const auto found = options.vocabulary.find(*options.unknown);
    if (found == options.vocabulary.end()) {
      return Error{ErrorCode::invalid_argument,
                   "model.unk_token = " + shown(*options.unknown) + " is not in model.vocab"};
    }
    model->unknown_ = found->second;
  }
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string name = {'<', '0', 'x', digits[byte / 16], digits[byte % 16], '>'};
    if (const auto found = options.vocabulary.find(name); found != options.vocabulary.end())
      model->fallback_[byte] = found->second;
  }
  if (options.byte_level) {
    for (const auto& [token, id] : options.vocabulary) {
      const auto bytes = bytes_of_token(token);
      if (!bytes) continue;  // in no word
      if (bytes->size() == 1) model->byte_tokens_[static_cast<unsigned char>(bytes->front())] = id;
      model->vocabulary_.emplace(*bytes, id);
    }
  } else {
    model->vocabulary_ = std::move(options.vocabulary);
    model->cuts_words_ = model->may_cut(options);
    model->note_characters();
  }
  return model;
}

Status BpeModel::add_merges(const BpeOptions& options) {
  merges_ = NumberMap<Merge>(options.merges.size());
  for (std::size_t rank = 0; rank < options.merges.size(); ++rank) {
    const auto& [left, right] = options.merges[rank];
    std::int32_t ids[3] = {};
    const std::string tokens[3] = {left, right, left + right};
    for (std::size_t i = 0; i < 3; ++i) {
      const auto found = options.vocabulary.find(tokens[i]);
      if (found == options.vocabulary.end()) {
        return Error{ErrorCode::invalid_argument, "model.merges[" + std::to_string(rank) + "] needs the token " +
                                                      shown(tokens[i]) + ", which model.vocab lacks"};
      }
      ids[i] = found->second;
    }
    merges_.put(pair_of(ids[0], ids[1]), {static_cast<std::uint32_t>(rank), ids[2]});
  }
  return {};
}

/// Returns whether cuts keep the tokens: every character needs a separate token that no merge joins with others.
bool BpeModel::may_cut(const BpeOptions& options) const {
  const bool all_bytes =
      byte_fallback_ && std::ranges::all_of(fallback_, [](std::int32_t token) { return token >= 0; });
  if (!all_bytes && (unknown_ < 0 || fuse_unknown_)) return false;
  const auto stands_for_another = [&](const std::string& part) {
    const std::int32_t token = vocabulary_.at(part);
    return token == unknown_ || (byte_fallback_ && std::ranges::find(fallback_, token) != fallback_.end());
  };
  return std::ranges::none_of(options.merges, [&](const auto& merge) {
    return stands_for_another(merge.first) || stands_for_another(merge.second);
  });
}

void BpeModel::note_characters() {
  std::set<std::uint64_t> spanned;
  std::size_t characters = 0;
  for (const auto& [token, id] : vocabulary_) {
    std::optional<char32_t> before;
    for (std::size_t at = 0; at < token.size();) {
      const Character c = character_at(token, at);
      if (before) spanned.insert(pair_of(*before, c.point));
      before = c.point;
      at += c.bytes;
      if (c.bytes == token.size()) ++characters;
    }
  }
  spanned_ = NumberMap<bool>(spanned.size());
  for (const std::uint64_t pair : spanned) spanned_.put(pair, true);
  characters_ = NumberMap<std::int32_t>(characters);
  for (const auto& [token, id] : vocabulary_) {
    if (token.empty()) continue;
    const Character c = character_at(token, 0);
    if (c.bytes == token.size()) characters_.put(c.point, id);
  }
}

void BpeModel::encode(std::string_view word, WordCache& cache, std::vector<std::int32_t>& tokens) const {
  if (ignore_merges_) {
    if (const auto found = vocabulary_.find(std::string(word)); found != vocabulary_.end()) {
      tokens.push_back(found->second);
      return;
    }
  }
  if (!cuts_words_) return encode_part(word, cache, tokens);
  std::size_t begin = 0;
  char32_t before = 0;
  for (std::size_t at = 0; at < word.size();) {
    const Character c = character_at(word, at);
    if (at > begin && spanned_.find(pair_of(before, c.point)) == nullptr) {
      encode_part(word.substr(begin, at - begin), cache, tokens);
      begin = at;
    }
    before = c.point;
    at += c.bytes;
  }
  encode_part(word.substr(begin), cache, tokens);
}

void BpeModel::encode_part(std::string_view part, WordCache& cache, std::vector<std::int32_t>& tokens) const {
  if (part.size() > longest_cached_word) return encode_uncached(part, tokens);
  const std::size_t hash = std::hash<std::string_view>{}(part);
  if (const auto* known = cache.find(part, hash)) {
    tokens.insert(tokens.end(), known->begin(), known->end());
    return;
  }
  const std::size_t before = tokens.size();
  encode_uncached(part, tokens);
  cache.put(part, hash, tokens.data() + before, tokens.size() - before);
}

void BpeModel::encode_uncached(std::string_view part, std::vector<std::int32_t>& tokens) const {
  std::vector<std::int32_t> symbols;
  symbols.reserve(part.size());
  first_symbols(part, symbols);
  if (symbols.size() <= longest_short_word) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  tokens.insert(tokens.end(), symbols.begin(), symbols.end());
}

void BpeModel::first_symbols(std::string_view part, std::vector<std::int32_t>& symbols) const {
  if (byte_level_) {
    for (const char byte : part) {
      const std::int32_t token = byte_tokens_[static_cast<unsigned char>(byte)];
      if (token >= 0) symbols.push_back(token);
    }
    return;
  }
  bool unknown_before = false;
  for (std::size_t at = 0; at < part.size();) {
    const Character c = character_at(part, at);
    const std::string_view character = part.substr(at, c.bytes);
    at += c.bytes;
    if (const std::int32_t* token = characters_.find(c.point)) {
      symbols.push_back(*token);
      unknown_before = false;
    } else if (byte_fallback_ && fall_back_to_bytes(character, symbols)) {
      unknown_before = false;
    } else if (unknown_ >= 0) {
      if (!fuse_unknown_ || !unknown_before) symbols.push_back(unknown_);
      unknown_before = true;
    }
  }
}

bool BpeModel::fall_back_to_bytes(std::string_view character, std::vector<std::int32_t>& symbols) const {
  const auto token = [this](char byte) { return fallback_[static_cast<unsigned char>(byte)]; };
  if (std::ranges::any_of(character, [&](char byte) { return token(byte) < 0; })) return false;
  for (const char byte : character) symbols.push_back(token(byte));
  return true;
}

void BpeModel::merge_short(std::vector<std::int32_t>& symbols) const {
  while (symbols.size() > 1) {
    const Merge* best = nullptr;
    std::size_t best_at = 0;
    for (std::size_t at = 0; at + 1 < symbols.size(); ++at) {
      const Merge* merge = merges_.find(pair_of(symbols[at], symbols[at + 1]));
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        best_at = at;
      }
    }
    if (best == nullptr) return;
    symbols[best_at] = best->token;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

/// Merges by a queue of the pairs that have a merge; skips a pair whose symbols were meanwhile merged otherwise.
void BpeModel::merge_long(std::vector<std::int32_t>& symbols) const {
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at;
    std::int32_t token;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  const auto count = static_cast<std::int32_t>(symbols.size());
  std::vector<Symbol> chain(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) chain[i] = {symbols[i], i + 1 < count ? i + 1 : -1, i - 1};
  std::vector<Candidate> found;
  found.reserve(symbols.size());
  const auto merge_at = [&](std::int32_t at) -> const Merge* {
    if (at < 0 || chain[at].next < 0) return nullptr;
    return merges_.find(pair_of(chain[at].token, chain[chain[at].next].token));
  };
  for (std::int32_t at = 0; at < count; ++at) {
    if (const Merge* merge = merge_at(at)) found.push_back({merge->rank, at, merge->token});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(), std::move(found));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    if (chain[top.at].merged) continue;
    const Merge* merge = merge_at(top.at);
    if (merge == nullptr || merge->token != top.token) continue;
    Symbol& left = chain[top.at];
    Symbol& right = chain[left.next];
    left.token = top.token;
    right.merged = true;
    left.next = right.next;
    if (left.next >= 0) chain[left.next].previous = top.at;
    for (const std::int32_t at : {left.previous, top.at}) {
      if (const Merge* next = merge_at(at)) queue.push({next->rank, at, next->token});
    }
  }
  symbols.clear();
  for (std::int32_t at = 0; at >= 0; at = chain[at].next) symbols.push_back(chain[at].token);
}

}  // namespace maestro
