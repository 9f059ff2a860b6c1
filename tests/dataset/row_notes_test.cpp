// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/row_notes.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace maestro {
namespace {

constexpr int rows = 7;

/// Notes findings that begin in different rows.
void note_row(RowNotes& notes, int row) {
  const std::string place = "messages[" + std::to_string(row) + "]";
  notes.set_row("f:" + std::to_string(row));
  notes.count_answers(2);
  if (row % 3 == 1) notes.add(RowNote::prompt_differs, "", place, ": example " + std::to_string(row));
  if (row >= 2) notes.add(RowNote::spelled_token, row % 2 == 0 ? "<a>" : "<b>", place);
  notes.add_text(true, 10, row < 3 ? 0 : 2, place);
  notes.add_text(false, 100, row == 5 ? 7 : 0, place);
  if (row >= 1) notes.use_key("name", place);
  KeyUse& tools = notes.use_key("tools", place);
  tools.read = tools.read || row == 4;
}

TEST(RowNotes, each_finding_is_a_line_with_its_number_and_the_first_place) {
  RowNotes notes;
  for (int row = 0; row < rows; ++row) note_row(notes, row);
  EXPECT_EQ(
      notes.lines(),
      (std::vector<std::string>{
          "the template leaves out 11.4% of the text of answers (8 of 70 characters), first of messages[3] at f:3",
          "the template leaves out 1% of the text of other messages (7 of 700 characters), first of messages[5] "
          "at f:5",
          "the text of 2 of 14 answers does not begin with the template's prompt, and is learned from the end of their "
          "common prefix, first messages[1] at f:1: example 1",
          "the special token <a> is spelled 3 times in texts of messages and is encoded as that token, first "
          "messages[2] at f:2",
          "the special token <b> is spelled 2 times in texts of messages and is encoded as that token, first "
          "messages[3] at f:3",
          "the template does not read \"name\", which 6 messages or rows have, first messages[1] at f:1"}));
  EXPECT_EQ(notes.counts().at("special tokens spelled"), 5U);
  EXPECT_EQ(notes.counts().at("answer characters left out"), 8U);
}

TEST(RowNotes, notes_of_batches_make_the_lines_of_all_rows_in_one) {  // RY-1
  RowNotes whole;
  for (int row = 0; row < rows; ++row) note_row(whole, row);
  for (int size = 1; size <= rows; ++size) {
    RowNotes merged;
    for (int first = 0; first < rows; first += size) {
      RowNotes batch;
      for (int row = first; row < std::min(first + size, rows); ++row) note_row(batch, row);
      merged.merge(batch);
    }
    EXPECT_EQ(merged.lines(), whole.lines()) << "batches of " << size;
    EXPECT_EQ(merged.counts(), whole.counts()) << "batches of " << size;
  }
}

}  // namespace
}  // namespace maestro
