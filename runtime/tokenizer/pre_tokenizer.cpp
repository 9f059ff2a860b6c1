// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/pre_tokenizer.hpp"

#include "runtime/tokenizer/character.hpp"
#include "runtime/tokenizer/normalizer.hpp"

namespace maestro {

namespace {

/// Matches single characters that fulfil a condition.
class ClassPattern final : public Pattern {
 public:
  using Holds = bool (*)(const Character&);
  explicit ClassPattern(Holds holds) : holds_(holds) {}
  [[nodiscard]] std::optional<Match> next(std::string_view text, std::size_t from) const override {
    while (from < text.size()) {
      const Character c = character_at(text, from);
      if (holds_(c)) return Match{from, from + c.bytes};
      from += c.bytes;
    }
    return std::nullopt;
  }

 private:
  Holds holds_;
};

/// Returns whether a character is \p{P}, or a symbol of ASCII.
bool punctuates(const Character& c) {
  return c.kind.punctuation() || (c.point > 0x20 && c.point < 0x7F && c.kind.is(CharacterClass::other));
}

const ClassPattern numbers([](const Character& c) { return c.kind.is(CharacterClass::number); });
const ClassPattern punctuation(punctuates);
const ClassPattern spaces([](const Character& c) { return c.kind.is(CharacterClass::space); });

/// Joins matches and the text between them into the pieces of a SplitBehavior.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, std::string_view text, const PreTokenizer::Emit& emit)
      : behavior_(behavior), text_(text), emit_(emit) {}

  void add(std::size_t begin, std::size_t end, bool match) {
    if (begin == end) return;
    if (behavior_ == SplitBehavior::removed && match) return flush();
    if (!joins(match)) flush();
    if (begin_ == end_) begin_ = begin;
    end_ = end;
    last_match_ = match;
  }
  void flush() {
    if (begin_ < end_) emit_(text_.substr(begin_, end_ - begin_));
    begin_ = end_;
  }

 private:
  [[nodiscard]] bool joins(bool match) const {
    switch (behavior_) {
      case SplitBehavior::merged_with_previous:
        return match && !last_match_;
      case SplitBehavior::merged_with_next:
        return !match && last_match_;
      case SplitBehavior::contiguous:
        return match == last_match_;
      default:
        return false;
    }
  }

  SplitBehavior behavior_;
  std::string_view text_;
  const PreTokenizer::Emit& emit_;
  std::size_t begin_ = 0;  // begin of the piece that waits for its neighbours
  std::size_t end_ = 0;
  bool last_match_ = false;
};

std::string with_metaspace(const Metaspace& step, std::string_view text, bool first) {
  const std::string replaced = replace_all(text, *make_literal_pattern(" "), step.replacement);
  const bool prepend =
      step.prepend == Metaspace::Prepend::always || (step.prepend == Metaspace::Prepend::first && first);
  return prepend && !replaced.starts_with(step.replacement) ? step.replacement + replaced : replaced;
}

using Next = std::function<void(std::string_view text, bool first)>;

void apply(const Split& step, std::string_view text, bool first, const Next& next) {
  split_by(*step.pattern, step.behavior, step.invert, text,
           [&](std::string_view piece) { next(piece, first && piece.data() == text.data()); });
}

void apply_class(const Pattern& pattern, SplitBehavior behavior, std::string_view text, bool first, const Next& next) {
  split_by(pattern, behavior, false, text,
           [&](std::string_view piece) { next(piece, first && piece.data() == text.data()); });
}

void apply(const Digits& step, std::string_view text, bool first, const Next& next) {
  apply_class(numbers, step.individual ? SplitBehavior::isolated : SplitBehavior::contiguous, text, first, next);
}

void apply(const Punctuation& step, std::string_view text, bool first, const Next& next) {
  apply_class(punctuation, step.behavior, text, first, next);
}

void apply(const WhitespaceSplit&, std::string_view text, bool first, const Next& next) {
  apply_class(spaces, SplitBehavior::removed, text, first, next);
}

void apply(const PrefixSpace&, std::string_view text, bool first, const Next& next) {
  if (text.starts_with(' ')) return next(text, first);
  const std::string spaced = " " + std::string(text);
  next(spaced, first);
}

void apply(const Metaspace& step, std::string_view text, bool first, const Next& next) {
  const std::string marked = with_metaspace(step, text, first);
  if (!step.split) return next(marked, first);
  split_by(*make_literal_pattern(step.replacement), SplitBehavior::merged_with_next, false, marked,
           [&](std::string_view piece) { next(piece, first && piece.data() == marked.data()); });
}

}  // namespace

void split_by(const Pattern& pattern, SplitBehavior behavior, bool invert, std::string_view text,
              const PreTokenizer::Emit& emit) {
  Joiner joiner(behavior, text, emit);
  std::size_t done = 0;
  for (std::size_t from = 0; from < text.size();) {
    const auto match = pattern.next(text, from);
    if (!match) break;
    joiner.add(done, match->begin, invert);
    joiner.add(match->begin, match->end, !invert);
    done = match->end;
    from = done;
    if (match->begin == match->end && from < text.size()) from += character_at(text, from).bytes;
  }
  joiner.add(done, text.size(), invert);
  joiner.flush();
}

void PreTokenizer::run(std::size_t step, std::string_view text, bool first, const Emit& emit) const {
  if (text.empty()) return;
  if (step == steps_.size()) return emit(text);
  std::visit(
      [&](const auto& each) {
        apply(each, text, first, [&](std::string_view piece, bool begins) { run(step + 1, piece, begins, emit); });
      },
      steps_[step]);
}

}  // namespace maestro
