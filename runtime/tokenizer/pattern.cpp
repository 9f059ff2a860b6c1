// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/pattern.hpp"

#include <dlfcn.h>
#include <oniguruma.h>

#include <new>
#include <type_traits>
#include <utility>

namespace maestro {

namespace {

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}
  [[nodiscard]] std::optional<Match> next(std::string_view text, std::size_t from) const override {
    const std::size_t found = text.find(literal_, from);
    if (found == std::string_view::npos) return std::nullopt;
    return Match{found, found + literal_.size()};
  }

 private:
  std::string literal_;
};

/// Oniguruma's functions, in a library that is opened only for this source: if the program linked it, its regcomp()
/// would replace the C library's for all callers. Never closed.
class Oniguruma {
 public:
  /// Returns the library; an error (unavailable) if it is not on this machine.
  static const Result<Oniguruma>& get() {
    static const Result<Oniguruma> opened = open();
    return opened;
  }

  decltype(&onig_initialize) initialize = nullptr;
  decltype(&onig_new) make = nullptr;
  decltype(&onig_free) free = nullptr;
  decltype(&onig_search_with_param) search = nullptr;
  decltype(&onig_new_match_param) new_param = nullptr;
  decltype(&onig_free_match_param) free_param = nullptr;
  decltype(&onig_initialize_match_param) initialize_param = nullptr;
  decltype(&onig_set_retry_limit_in_search_of_match_param) limit_search = nullptr;
  decltype(&onig_region_free) free_region = nullptr;
  int (*complaint)(OnigUChar*, int, ...) = nullptr;
  OnigEncodingType* utf8 = nullptr;
  OnigSyntaxType* ruby = nullptr;

 private:
  static Result<Oniguruma> open() {
    void* library = dlopen(ONIGURUMA_LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return Error{ErrorCode::unavailable, std::string("needs Oniguruma: ") + dlerror()};
    Oniguruma made;
    const char* missing = nullptr;
    const auto find = [&](auto& member, const char* name) {
      member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(library, name));
      if (member == nullptr) missing = name;
    };
    find(made.initialize, "onig_initialize");
    find(made.make, "onig_new");
    find(made.free, "onig_free");
    find(made.search, "onig_search_with_param");
    find(made.new_param, "onig_new_match_param");
    find(made.free_param, "onig_free_match_param");
    find(made.initialize_param, "onig_initialize_match_param");
    find(made.limit_search, "onig_set_retry_limit_in_search_of_match_param");
    find(made.free_region, "onig_region_free");
    find(made.complaint, "onig_error_code_to_str");
    find(made.utf8, "OnigEncodingUTF8");
    find(made.ruby, "OnigSyntaxRuby");
    if (missing != nullptr) {
      return Error{ErrorCode::unavailable, std::string(ONIGURUMA_LIBRARY_NAME " has no ") + missing};
    }
    made.initialize(&made.utf8, 1);
    return made;
  }
};

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

std::string complaint(const Oniguruma& onig, int code, OnigErrorInfo* info) {
  std::string text(ONIG_MAX_ERROR_MESSAGE_LEN, '\0');
  const int length = onig.complaint(reinterpret_cast<OnigUChar*>(text.data()), code, info);
  text.resize(static_cast<std::size_t>(length));
  return text;
}

/// The limit for all starts of a search together. Oniguruma limits each start, so that a word of some thousand letters
/// could take minutes.
class SearchLimit {
 public:
  SearchLimit(const Oniguruma& onig, std::size_t bytes) : onig_(onig), param_(onig.new_param()) {
    constexpr unsigned long least = 1'000'000, of_byte = 16;  // steps back; a second has some hundred million
    if (param_ == nullptr) throw std::bad_alloc();
    onig_.initialize_param(param_);
    onig_.limit_search(param_, least + of_byte * bytes);
  }
  ~SearchLimit() { onig_.free_param(param_); }
  SearchLimit(const SearchLimit&) = delete;
  SearchLimit& operator=(const SearchLimit&) = delete;
  [[nodiscard]] OnigMatchParam* get() const { return param_; }

 private:
  const Oniguruma& onig_;
  OnigMatchParam* param_;
};

class OnigurumaPattern final : public Pattern {
 public:
  OnigurumaPattern(const Oniguruma& onig, regex_t* expression) : onig_(onig), expression_(expression) {}
  ~OnigurumaPattern() override { onig_.free(expression_); }
  OnigurumaPattern(const OnigurumaPattern&) = delete;
  OnigurumaPattern& operator=(const OnigurumaPattern&) = delete;

  [[nodiscard]] std::optional<Match> next(std::string_view text, std::size_t from) const override {
    const OnigUChar* const begin = bytes_of(text);
    const OnigUChar* const end = begin + text.size();
    OnigRegion region{};
    const SearchLimit limit(onig_, text.size() - from);
    const int found = onig_.search(expression_, begin, end, begin + from, end, &region, ONIG_OPTION_NONE, limit.get());
    std::optional<Match> match;
    if (found >= 0) match = Match{static_cast<std::size_t>(region.beg[0]), static_cast<std::size_t>(region.end[0])};
    onig_.free_region(&region, 0);
    if (found < ONIG_MISMATCH)
      throw JobError("a regular expression of the tokenizer fails: " + complaint(onig_, found, nullptr));
    return match;
  }

 private:
  const Oniguruma& onig_;
  regex_t* expression_;
};

}  // namespace

std::shared_ptr<const Pattern> make_literal_pattern(std::string literal) {
  return std::make_shared<LiteralPattern>(std::move(literal));
}

Result<std::shared_ptr<const Pattern>> make_oniguruma_pattern(const std::string& expression) {
  const Result<Oniguruma>& onig = Oniguruma::get();
  if (!onig) return onig.error();
  regex_t* made = nullptr;
  OnigErrorInfo info{};
  const OnigUChar* const begin = bytes_of(expression);
  const int code = onig->make(&made, begin, begin + expression.size(), ONIG_OPTION_NONE, onig->utf8, onig->ruby, &info);
  if (code != ONIG_NORMAL) return Error{ErrorCode::invalid_argument, complaint(*onig, code, &info)};
  return std::shared_ptr<const Pattern>(std::make_shared<OnigurumaPattern>(*onig, made));
}

Result<std::shared_ptr<const Pattern>> make_pattern(const std::string& expression) {
  if (auto own = make_word_pattern(expression)) return own;
  return make_oniguruma_pattern(expression);
}

}  // namespace maestro
