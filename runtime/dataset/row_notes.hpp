// SPDX-License-Identifier: Apache-2.0
// What a preparation reports about rows that it uses: each kind of finding once, with its number and the first place.
//
// RY-1 (same report): notes of batches that are merged in the order of the rows make the same lines as the notes of all
//       rows in one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maestro {

enum class RowNote : std::uint8_t {
  prompt_differs,  ///< of an answer; the example shows both texts
  next_turn_ends,  ///< an answer ends by the token that begins the next turn; the subject is the token
  end_appended,    ///< the template writes no end of an answer; the subject is the token
  unlearned,       ///< an answer with weight 0
  passed_over,     ///< an answer of keys that the template does not write
  spelled_token,   ///< a text spells a special token, the subject
  unknown_role,    ///< the subject is the role
};

/// Characters of texts, and those that a template has left out.
struct TextShare {
  std::uint64_t characters = 0;
  std::uint64_t missing = 0;
  std::string first;  ///< where characters are missing first
};

/// A key of messages or rows that only the template can use.
struct KeyUse {
  std::uint64_t count = 0;
  int tried = 0;      ///< renderings with and without the key
  bool read = false;  ///< they differed
  std::string first;  ///< place
};

class RowNotes {
 public:
  /// Sets the place of the row that the following notes are about.
  void set_row(std::string where) { row_ = std::move(where); }
  void count_answers(std::uint64_t answers) { answers_ += answers; }
  /// `place` is in the row; `example` follows the place.
  void add(RowNote note, const std::string& subject, const std::string& place, const std::string& example = "");
  /// Counts the characters of a text that is learned, or of another message.
  void add_text(bool learned, std::uint64_t characters, std::uint64_t missing, const std::string& place);
  /// Counts a use of a key (in a message), and returns what is known about it.
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
