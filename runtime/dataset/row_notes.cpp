// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/row_notes.hpp"

#include <cmath>

#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

std::string counted(std::uint64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

void add_share(TextShare& sum, const TextShare& part) {
  if (sum.missing == 0) sum.first = part.first;
  sum.characters += part.characters;
  sum.missing += part.missing;
}

std::string line_of(const TextShare& text, const std::string& owner) {
  const double share = 100.0 * static_cast<double>(text.missing) / static_cast<double>(text.characters);
  return "the template leaves out " + number_text(std::max(std::round(share * 10) / 10, 0.1)) + "% of the text of " +
         owner + " (" + std::to_string(text.missing) + " of " + std::to_string(text.characters) +
         " characters), first of " + text.first;
}

/// Returns the name of a note's number in data.json.
std::string name_of(RowNote note) {
  switch (note) {
    case RowNote::prompt_differs:
      return "answers beside their prompt";
    case RowNote::next_turn_ends:
      return "answers ended by the next turn";
    case RowNote::end_appended:
      return "ends appended";
    case RowNote::unlearned:
      return "answers of weight 0";
    case RowNote::passed_over:
      return "answers passed over";
    case RowNote::spelled_token:
      return "special tokens spelled";
    case RowNote::answer_dropped:
      return "first answers dropped";
    case RowNote::question_cut:
      return "last questions cut";
    case RowNote::system_kept:
      return "system texts kept";
    case RowNote::images_first:
      return "images put first";
    case RowNote::json_unread:
      return "unused .json of captions";
    case RowNote::unknown_role:
      break;
  }
  return "messages of unknown roles";
}

}  // namespace

void RowNotes::add(RowNote note, const std::string& subject, const std::string& place, const std::string& example) {
  Found& found = found_[{note, subject}];
  if (found.count++ > 0) return;
  found.first = place_of(place);
  found.example = example;
}

void RowNotes::add_text(bool learned, std::uint64_t characters, std::uint64_t missing, const std::string& place) {
  add_share(learned ? learned_text_ : other_text_,
            {characters, missing, missing > 0 ? place_of(place) : std::string()});
}

KeyUse& RowNotes::use_key(const std::string& key, const std::string& place) {
  KeyUse& use = keys_[key];
  if (use.count++ == 0) use.first = place_of(place);
  return use;
}

void RowNotes::merge(const RowNotes& later) {
  answers_ += later.answers_;
  for (const auto& [name, part] : later.found_) {
    Found& found = found_[name];
    if (found.count == 0) {
      found = part;
    } else {
      found.count += part.count;
    }
  }
  add_share(learned_text_, later.learned_text_);
  add_share(other_text_, later.other_text_);
  for (const auto& [key, part] : later.keys_) {
    KeyUse& use = keys_[key];
    if (use.count == 0) use.first = part.first;
    use.count += part.count;
    use.read = use.read || part.read;
  }
}

std::vector<std::string> RowNotes::lines() const {
  std::vector<std::string> lines;
  if (learned_text_.missing > 0) lines.push_back(maestro::line_of(learned_text_, "answers"));
  if (other_text_.missing > 0) lines.push_back(maestro::line_of(other_text_, "other messages"));
  for (const auto& [name, found] : found_) lines.push_back(line_of(name.first, name.second, found));
  for (const auto& [key, use] : keys_) {
    if (use.read) continue;
    lines.push_back("the template does not read \"" + printable(key) + "\", which " +
                    counted(use.count, "message or row has", "messages or rows have") + ", first " + use.first);
  }
  return lines;
}

std::string RowNotes::line_of(RowNote note, const std::string& subject, const Found& found) const {
  const std::string token = printable(subject);
  const std::string first = ", first " + found.first + found.example;
  switch (note) {
    case RowNote::prompt_differs:
      return "the text of " + std::to_string(found.count) + " of " + counted(answers_, "answer", "answers") +
             " does not begin with the template's prompt, and is learned from the end of their common prefix" + first;
    case RowNote::next_turn_ends:
      return "the template ends no turn: the end of " + counted(found.count, "answer", "answers") + " is " + token +
             ", which begins the next turn and stops generation" + first;
    case RowNote::end_appended:
      return "the template writes no end for " + counted(found.count, "answer", "answers") + ": " + token +
             " is appended" + first;
    case RowNote::unlearned:
      return counted(found.count, "answer has", "answers have") + " the weight 0 and " +
             (found.count == 1 ? "is" : "are") + " not learned" + first;
    case RowNote::passed_over:
      return "the template writes nothing of " + counted(found.count, "answer", "answers") +
             " with only tool calls or thoughts, which cannot be learned" + first;
    case RowNote::spelled_token:
      return "the special token " + token + " is spelled " + counted(found.count, "time", "times") +
             " in texts of messages and is encoded as that token" + first;
    case RowNote::answer_dropped:
      return "answers before the first question are dropped in " + counted(found.count, "row", "rows") + first;
    case RowNote::question_cut:
      return "the last question, without an answer, is cut in " + counted(found.count, "row", "rows") + first;
    case RowNote::system_kept:
      return "the system text is kept in " + counted(found.count, "row", "rows") + first;
    case RowNote::images_first:
      return "images come before the first question in " + counted(found.count, "row", "rows") +
             " without a place for them" + first;
    case RowNote::json_unread:
      return "the .json next to a caption is not read in " + counted(found.count, "row", "rows") + first;
    case RowNote::unknown_role:
      break;
  }
  return "the role \"" + token + "\" of " + counted(found.count, "message", "messages") +
         " is not known, and the template neither refuses nor names it" + first;
}

std::map<std::string, std::uint64_t> RowNotes::counts() const {
  std::map<std::string, std::uint64_t> counts;
  for (const auto& [name, found] : found_) counts[name_of(name.first)] += found.count;
  if (learned_text_.missing > 0) counts["answer characters left out"] = learned_text_.missing;
  if (other_text_.missing > 0) counts["other characters left out"] = other_text_.missing;
  return counts;
}

}  // namespace maestro
