// SPDX-License-Identifier: Apache-2.0
// The steps that cut a normalized text into words: `pre_tokenizer` in a tokenizer.json. Merges never cross the border
// of a word.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/tokenizer/pattern.hpp"

namespace maestro {

/// Treatment of a pattern's matches and the text between them.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Cuts at the matches of a pattern, or, inverted, at the text between them.
struct Split {
  std::shared_ptr<const Pattern> pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
};
/// Cuts at numbers (\p{N}), or between all digits.
struct Digits {
  bool individual = false;
};
/// Cuts at punctuation.
struct Punctuation {
  SplitBehavior behavior = SplitBehavior::isolated;
};
/// Cuts at white space, which it removes.
struct WhitespaceSplit {};
/// Puts a space before every word without one (GPT-2's add_prefix_space).
struct PrefixSpace {};
/// Replaces spaces by a visible character, puts it before the text, and cuts before each.
struct Metaspace {
  enum class Prepend { never, first, always };
  std::string replacement = "\xE2\x96\x81";  // U+2581
  Prepend prepend = Prepend::always;
  bool split = true;
};

/// Immutable after construction: thread-safe. Without steps a text is a single word.
class PreTokenizer {
 public:
  using Step = std::variant<Split, Digits, Punctuation, WhitespaceSplit, PrefixSpace, Metaspace>;
  using Emit = std::function<void(std::string_view word)>;

  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}
  /// Passes the words of `text` to `emit`, in order; none is empty. `first`: the text begins the document.
  void split(std::string_view text, bool first, const Emit& emit) const { run(0, text, first, emit); }

 private:
  void run(std::size_t step, std::string_view text, bool first, const Emit& emit) const;

  std::vector<Step> steps_;
};

/// Passes the pieces into which the matches cut `text` to `emit`, in order; none is empty.
void split_by(const Pattern& pattern, SplitBehavior behavior, bool invert, std::string_view text,
              const PreTokenizer::Emit& emit);

}  // namespace maestro
