// SPDX-License-Identifier: Apache-2.0
// Matchers of the expressions that most models use: every character of a text belongs to a match, so a match begins at
// the end of the previous match. Each function is an alternative of the expressions, tried in their order.
#include "runtime/tokenizer/character.hpp"
#include "runtime/tokenizer/pattern.hpp"

namespace maestro {

namespace {

using Kind = CharacterClass;

/// Text from a position on, character by character.
class Cursor {
 public:
  Cursor(std::string_view text, std::size_t at) : text_(text), at_(at) {}
  [[nodiscard]] bool ended() const { return at_ >= text_.size(); }
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] Character here() const { return character_at(text_, at_); }
  void pass(const Character& character) { at_ += character.bytes; }
  /// Passes characters while they fulfil the condition, and returns their number.
  template <class Condition>
  std::size_t pass_while(Condition holds, std::size_t most = static_cast<std::size_t>(-1)) {
    std::size_t count = 0;
    while (count < most && !ended()) {
      const Character character = here();
      if (!holds(character)) break;
      pass(character);
      ++count;
    }
    return count;
  }

 private:
  std::string_view text_;
  std::size_t at_;
};

bool letter(const Character& c) {
  return c.kind.letter();
}
bool number(const Character& c) {
  return c.kind.is(Kind::number);
}
bool space(const Character& c) {
  return c.kind.is(Kind::space);
}
bool line_end(const Character& c) {
  return c.point == U'\r' || c.point == U'\n';
}

constexpr std::size_t none = 0;  // every alternative matches something

/// Matches 's|'t|'re|'ve|'m|'ll|'d, of either case if `fold` is set; the long s folds to s.
std::size_t contraction(std::string_view text, std::size_t from, bool fold) {
  if (text[from] != '\'') return none;
  const auto folded = [&](std::size_t at) {
    const char c = at < text.size() ? text[at] : '\0';
    return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = folded(from + 1), second = folded(from + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return from + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) {
    return from + 3;
  }
  constexpr std::string_view long_s = "\xC5\xBF";
  return fold && text.substr(from + 1).starts_with(long_s) ? from + 1 + long_s.size() : none;
}

/// Matches \s+(?!\S)|\s+
std::size_t white_space(std::string_view text, std::size_t from) {
  Cursor cursor(text, from);
  const std::size_t count = cursor.pass_while(space);
  if (count == 0) return none;
  return cursor.ended() || count == 1 ? cursor.at() : character_before(text, cursor.at());
}

/// Matches \s*[\r\n]+
std::size_t line_ends(std::string_view text, std::size_t from) {
  Cursor cursor(text, from);
  std::size_t end = none;
  cursor.pass_while([&](const Character& c) {
    if (line_end(c)) end = cursor.at() + c.bytes;
    return space(c);
  });
  return end;
}

/// Matches " ?" and characters that fulfil the condition.
template <class Condition>
std::size_t after_space(std::string_view text, std::size_t from, Condition holds) {
  Cursor cursor(text, from + (text[from] == ' ' ? 1 : 0));
  return cursor.pass_while(holds) > 0 ? cursor.at() : none;
}

class Gpt2Pattern final : public Pattern {
 public:
  [[nodiscard]] std::optional<Match> next(std::string_view text, std::size_t from) const override {
    if (from >= text.size()) return std::nullopt;
    std::size_t end = contraction(text, from, false);
    if (end == none) end = after_space(text, from, letter);
    if (end == none) end = after_space(text, from, number);
    if (end == none)
      end = after_space(text, from, [](const Character& c) { return !space(c) && !letter(c) && !number(c); });
    if (end == none) end = white_space(text, from);
    return Match{from, end};
  }
};

/// Matches the expressions of Llama 3 and Qwen.
class LlamaPattern final : public Pattern {
 public:
  LlamaPattern(std::size_t most_digits, bool marks_in_words) : most_digits_(most_digits), marks_(marks_in_words) {}
  [[nodiscard]] std::optional<Match> next(std::string_view text, std::size_t from) const override {
    if (from >= text.size()) return std::nullopt;
    std::size_t end = contraction(text, from, true);
    if (end == none) end = word(text, from);
    if (end == none) end = digits(text, from);
    if (end == none) end = symbols(text, from);
    if (end == none) end = line_ends(text, from);
    if (end == none) end = white_space(text, from);
    return Match{from, end};
  }

 private:
  [[nodiscard]] bool of_word(const Character& c) const { return letter(c) || (marks_ && c.kind.is(Kind::mark)); }
  /// Matches [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+
  [[nodiscard]] std::size_t word(std::string_view text, std::size_t from) const {
    Cursor cursor(text, from);
    const Character first = cursor.here();
    if (number(first) || line_end(first)) return none;
    if (!of_word(first)) cursor.pass(first);
    return cursor.pass_while([this](const Character& c) { return of_word(c); }) > 0 ? cursor.at() : none;
  }
  [[nodiscard]] std::size_t digits(std::string_view text, std::size_t from) const {
    Cursor cursor(text, from);
    return cursor.pass_while(number, most_digits_) > 0 ? cursor.at() : none;
  }
  /// Matches " ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
  [[nodiscard]] std::size_t symbols(std::string_view text, std::size_t from) const {
    const std::size_t end =
        after_space(text, from, [this](const Character& c) { return !space(c) && !of_word(c) && !number(c); });
    if (end == none) return none;
    Cursor cursor(text, end);
    cursor.pass_while(line_end);
    return cursor.at();
  }

  std::size_t most_digits_;
  bool marks_;
};

class TekkenPattern final : public Pattern {
 public:
  [[nodiscard]] std::optional<Match> next(std::string_view text, std::size_t from) const override {
    if (from >= text.size()) return std::nullopt;
    std::size_t end = word(text, from);
    if (end == none) end = digit(text, from);
    if (end == none) end = symbols(text, from);
    if (end == none) end = line_ends(text, from);
    if (end == none) end = white_space(text, from);
    return Match{from, end};
  }

 private:
  static bool head(const Character& c) {
    return c.kind.is(Kind::upper) || c.kind.is(Kind::caseless) || c.kind.is(Kind::mark);
  }
  static bool tail(const Character& c) {
    return c.kind.is(Kind::lower) || c.kind.is(Kind::caseless) || c.kind.is(Kind::mark);
  }
  /// Tries the two alternatives of words, each with the optional character before the word and then without it.
  [[nodiscard]] static std::size_t word(std::string_view text, std::size_t from) {
    const Character first = character_at(text, from);
    const bool prefix = !letter(first) && !number(first) && !line_end(first);
    std::size_t end = prefix ? tail_word(text, from + first.bytes) : none;
    if (end == none) end = tail_word(text, from);
    if (end == none && prefix) end = head_word(text, from + first.bytes);
    if (end == none) end = head_word(text, from);
    return end;
  }
  /// Matches [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+: without lower-case letters after the first
  /// run, the run gives back characters until it has one that both classes hold.
  [[nodiscard]] static std::size_t tail_word(std::string_view text, std::size_t from) {
    Cursor cursor(text, from);
    std::size_t last_of_both = none;
    cursor.pass_while([&](const Character& c) {
      if (head(c) && tail(c)) last_of_both = cursor.at() + c.bytes;
      return head(c);
    });
    return cursor.pass_while(tail) > 0 ? cursor.at() : last_of_both;
  }
  /// Matches [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*
  [[nodiscard]] static std::size_t head_word(std::string_view text, std::size_t from) {
    Cursor cursor(text, from);
    if (cursor.pass_while(head) == 0) return none;
    cursor.pass_while(tail);
    return cursor.at();
  }
  [[nodiscard]] static std::size_t digit(std::string_view text, std::size_t from) {
    const Character first = character_at(text, from);
    return number(first) ? from + first.bytes : none;
  }
  /// Matches " ?[^\s\p{L}\p{N}]+[\r\n/]*"
  [[nodiscard]] static std::size_t symbols(std::string_view text, std::size_t from) {
    const std::size_t end =
        after_space(text, from, [](const Character& c) { return !space(c) && !letter(c) && !number(c); });
    if (end == none) return none;
    Cursor cursor(text, end);
    cursor.pass_while([](const Character& c) { return line_end(c) || c.point == U'/'; });
    return cursor.at();
  }
};

}  // namespace

std::shared_ptr<const Pattern> make_word_pattern(std::string_view expression) {
  if (expression == word_patterns::gpt2) return std::make_shared<Gpt2Pattern>();
  if (expression == word_patterns::llama3) return std::make_shared<LlamaPattern>(3, false);
  if (expression == word_patterns::qwen2) return std::make_shared<LlamaPattern>(1, false);
  if (expression == word_patterns::qwen3_5) return std::make_shared<LlamaPattern>(1, true);
  if (expression == word_patterns::tekken) return std::make_shared<TekkenPattern>();
  return nullptr;
}

}  // namespace maestro
