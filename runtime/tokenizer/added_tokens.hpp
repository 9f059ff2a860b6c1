// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in a text before it is cut into words, such as <|im_start|>.
//
// AT-1 (leftmost, longest): tokens are found from left to right; of several that begin at a place the longest.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace maestro {

/// An entry of `added_tokens` in a tokenizer.json.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< not inside a word
  bool left_strip = false;   ///< includes the white space before it
  bool right_strip = false;  ///< includes the white space after it
  bool normalized = true;    ///< found in the normalized text
  bool special = false;      ///< left out of decoded text on request
};

/// A set of added tokens. Immutable after construction: thread-safe.
class AddedTokens {
 public:
  static constexpr std::int32_t no_token = -1;
  using Emit = std::function<void(std::int32_t token, std::size_t begin, std::size_t end)>;

  AddedTokens() = default;
  /// `contents`: searched text of each token; empty contents are never found.
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);
  [[nodiscard]] bool empty() const { return nodes_.empty(); }
  /// Passes the tokens in `text`, and with `no_token` the text between them, to `emit`, in order.
  void split(std::string_view text, const Emit& emit) const;

 private:
  struct Node {
    std::unordered_map<char, std::size_t> next;
    std::ptrdiff_t token = -1;  // index of the token that ends here
  };
  struct Found {
    std::ptrdiff_t token = -1;
    std::size_t end = 0;
  };
  [[nodiscard]] Found longest_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;                                  // a trie of the contents; the first node is the root
  std::vector<bool> first_ = std::vector<bool>(256, false);  // bytes that begin a token
};

}  // namespace maestro
