// SPDX-License-Identifier: Apache-2.0
// A preparation's report about rows that it uses: each kind of finding once, with its number and the first place.
//
// RY-1 (same report): notes of batches, merged in the order of their rows, make the same lines as one set of notes for
//       all rows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maestro {

enum class RowNote : std::uint8_t {
  prompt_differs,  ///< an answer's text differs from its prompt; the example shows both
  next_turn_ends,  ///< an answer ends with the token that begins the next turn; the subject is the token
  end_appended,    ///< the template does not write an answer's end; the subject is the appended token
  unlearned,       ///< an answer with weight 0
  passed_over,     ///< an answer that has only keys that the template does not write
  spelled_token,   ///< a text spells a special token, the subject
  unknown_role,    ///< an unknown role, the subject
  answer_dropped,  ///< a row began with an answer
  question_cut,    ///< a row ended with a question
  system_kept,     ///< a list of questions and answers has a system text
  images_first,    ///< no question had a place for the row's images: they come before the first question
  json_unread,     ///< the .json of a caption in an archive is not read
};

/// Characters of texts, and characters that a template has left out.
struct TextShare {
  std::uint64_t characters = 0;
  std::uint64_t missing = 0;
  std::string first;  ///< first place with missing characters
};

/// A key of messages or rows that only the template can use.
struct KeyUse {
  std::uint64_t count = 0;
  int tried = 0;      ///< pairs of renderings with and without the key
  bool read = false;  ///< the renderings differed
  std::string first;  ///< first place of the key
};

class RowNotes {
 public:
  /// Sets the row's place for the following notes.
  void set_row(std::string where) { row_ = std::move(where); }
  void count_answers(std::uint64_t answers) { answers_ += answers; }
  /// Adds a note. `place` is within the row; `example` follows the place in the line.
  void add(RowNote note, const std::string& subject, const std::string& place, const std::string& example = "");
  /// Counts characters in a learned text, or in another message.
  void add_text(bool learned, std::uint64_t characters, std::uint64_t missing, const std::string& place);
  /// Counts a use of a key in a message or row, and returns its record.
  KeyUse& use_key(const std::string& key, const std::string& place);

  /// Adds the notes of later rows.
  void merge(const RowNotes& later);
  /// Returns a line for each finding.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// Returns the numbers for data.json.
  [[nodiscard]] std::map<std::string, std::uint64_t> counts() const;

 private:
  struct Found {
    std::uint64_t count = 0;
    std::string first;
    std::string example;
  };
  [[nodiscard]] std::string line_of(RowNote note, const std::string& subject, const Found& found) const;
  [[nodiscard]] std::string place_of(const std::string& place) const { return place + " at " + row_; }

  std::string row_;
  std::uint64_t answers_ = 0;
  std::map<std::pair<RowNote, std::string>, Found> found_;
  TextShare learned_text_;
  TextShare other_text_;
  std::map<std::string, KeyUse> keys_;
};

}  // namespace maestro
