// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/added_tokens.hpp"

#include <utility>

#include "runtime/tokenizer/character.hpp"

namespace maestro {

namespace {

bool word_before(std::string_view text, std::size_t at) {
  return at > 0 && character_at(text, character_before(text, at)).kind.word();
}

bool word_at(std::string_view text, std::size_t at) {
  return at < text.size() && character_at(text, at).kind.word();
}

std::size_t without_space_before(std::string_view text, std::size_t at, std::size_t first) {
  while (at > first) {
    const std::size_t before = character_before(text, at);
    if (!character_at(text, before).kind.is(CharacterClass::space)) break;
    at = before;
  }
  return at;
}

std::size_t with_space_behind(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (!c.kind.is(CharacterClass::space)) break;
    at += c.bytes;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& contents)
    : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (contents[i].empty()) continue;
    if (nodes_.empty()) nodes_.emplace_back();
    std::size_t node = 0;
    for (const char c : contents[i]) {
      const auto [found, added] = nodes_[node].next.emplace(c, nodes_.size());
      node = found->second;
      if (added) nodes_.emplace_back();
    }
    if (nodes_[node].token < 0) nodes_[node].token = static_cast<std::ptrdiff_t>(i);
    first_[static_cast<unsigned char>(contents[i].front())] = true;
  }
}

AddedTokens::Found AddedTokens::longest_at(std::string_view text, std::size_t at) const {
  Found found;
  for (std::size_t node = 0; at < text.size(); ++at) {
    const auto next = nodes_[node].next.find(text[at]);
    if (next == nodes_[node].next.end()) break;
    node = next->second;
    if (nodes_[node].token >= 0) found = {nodes_[node].token, at + 1};
  }
  return found;
}

void AddedTokens::split(std::string_view text, const Emit& emit) const {
  std::size_t done = 0;
  for (std::size_t at = 0; !empty() && at < text.size();) {
    if (!first_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const Found found = longest_at(text, at);
    if (found.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(found.token)];
    std::size_t begin = std::exchange(at, found.end);
    std::size_t end = found.end;
    if (token.single_word && (word_before(text, begin) || word_at(text, end))) continue;
    if (token.left_strip) begin = without_space_before(text, begin, done);
    if (token.right_strip) end = with_space_behind(text, end);
    if (done < begin) emit(no_token, done, begin);
    emit(token.id, begin, end);
    done = end;
  }
  if (done < text.size()) emit(no_token, done, text.size());
}

}  // namespace maestro
