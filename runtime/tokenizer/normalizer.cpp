// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/normalizer.hpp"

#include <utf8proc.h>

#include <cstdlib>

#include "runtime/tokenizer/character.hpp"

namespace maestro {

namespace {

/// Every sequence of characters below it is in form C.
constexpr char32_t first_combining = 0x300;

bool ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

int options_of(UnicodeForm::Form form) {
  const int base = UTF8PROC_STABLE;
  switch (form) {
    case UnicodeForm::Form::nfc:
      return base | UTF8PROC_COMPOSE;
    case UnicodeForm::Form::nfd:
      return base | UTF8PROC_DECOMPOSE;
    case UnicodeForm::Form::nfkc:
      return base | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case UnicodeForm::Form::nfkd:
      return base | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return base;
}

void append_mapped(std::string& out, std::string_view text, UnicodeForm::Form form) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(options_of(form)));
  if (length < 0) throw JobError(std::string("normalizing text: ") + utf8proc_errmsg(length));
  out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(length));
  std::free(made);
}

/// Appends a form, cut before each U+11A7, which composes with nothing: utf8proc takes it for a final consonant of
/// Hangul and loses it.
void append_form(std::string& out, std::string_view text, UnicodeForm::Form form) {
  constexpr std::string_view no_final = "\xE1\x86\xA7";
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(no_final, 1));
    append_mapped(out, part, form);
    text.remove_prefix(part.size());
  }
}

/// Normalizes between ASCII characters, which stay and compose with nothing before them.
std::string applied(const UnicodeForm& step, std::string_view text) {
  const bool composed = step.form == UnicodeForm::Form::nfc;
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;  // everything before is in `out`
  std::size_t at = 0;
  while (at < text.size()) {
    if (ascii(text[at])) {
      ++at;
      continue;
    }
    // A run of other characters, with the ASCII character that the run's first may compose with.
    std::size_t end = at;
    bool changes = !composed;
    while (end < text.size() && !ascii(text[end])) {
      const Character c = character_at(text, end);
      changes = changes || c.point >= first_combining;
      end += c.bytes;
    }
    if (changes) {
      const std::size_t begin = at > done ? at - 1 : at;
      out += text.substr(done, begin - done);
      append_form(out, text.substr(begin, end - begin), step.form);
      done = end;
    }
    at = end;
  }
  out += text.substr(done);
  return out;
}

std::string applied(const Prepend& step, std::string_view text) {
  return text.empty() ? std::string() : step.text + std::string(text);
}

std::string applied(const Replace& step, std::string_view text) {
  return replace_all(text, *step.pattern, step.content);
}

std::string applied(const StripSpace& step, std::string_view text) {
  const auto space = [&](std::size_t at) { return character_at(text, at).kind.is(CharacterClass::space); };
  while (step.left && !text.empty() && space(0)) text.remove_prefix(character_at(text, 0).bytes);
  while (step.right && !text.empty()) {
    const std::size_t last = character_before(text, text.size());
    if (!space(last)) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

}  // namespace

std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t from = 0; from <= text.size();) {
    const auto match = pattern.next(text, from);
    if (!match) break;
    out += text.substr(done, match->begin - done);
    out += content;
    done = match->end;
    from = done;
    if (match->begin == match->end) from += from < text.size() ? character_at(text, from).bytes : 1;
  }
  out += text.substr(done);
  return out;
}

std::string Normalizer::normalize(std::string_view text) const {
  std::string now(text);
  for (const Step& step : steps_) now = std::visit([&](const auto& each) { return applied(each, now); }, step);
  return now;
}

}  // namespace maestro
