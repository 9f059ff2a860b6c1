// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/lessons.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace maestro {
namespace {

using Ranges = std::vector<RowRange>;

TEST(Lessons, samples_with_the_same_teachers_share_a_lesson) {  // LS-1, LS-2
  const std::vector<std::int32_t> offsets{0, 3, 5, 9, 10};
  const std::vector<Lesson> lessons =
      lessons_of(offsets, {0, 10}, {{3, {true, false, true, true}}, {1, {true, true, true, false}}});
  ASSERT_EQ(lessons.size(), 3U);
  EXPECT_EQ(lessons[0].rows, (Ranges{{0, 3}, {5, 4}}));
  ASSERT_EQ(lessons[0].teachers.size(), 2U);
  EXPECT_EQ(lessons[0].teachers[0].rows, (Ranges{{0, 7}})) << "the first teacher has no rows of the second sample";
  EXPECT_EQ(lessons[0].teachers[1].rows, (Ranges{{0, 3}, {5, 4}}));
  EXPECT_EQ(lessons[0].teachers[0].share, 0.75);
  EXPECT_EQ(lessons[0].teachers[1].share, 0.25);
  EXPECT_EQ(lessons[1].rows, (Ranges{{3, 2}}));
  EXPECT_EQ(lessons[1].teachers[0].number, 1U);
  EXPECT_EQ(lessons[1].teachers[0].share, 1);
  EXPECT_EQ(lessons[2].rows, (Ranges{{9, 1}}));
  EXPECT_EQ(lessons[2].teachers[0].rows, (Ranges{{7, 1}}));
}

TEST(Lessons, a_part_of_the_rows_has_those_of_its_samples_alone) {  // LS-1
  const std::vector<std::int32_t> offsets{0, 4, 8};
  const std::vector<TaughtSamples> teachers{{1, {true, false}}, {1, {false, true}}};
  const std::vector<Lesson> lessons = lessons_of(offsets, {2, 4}, teachers);
  ASSERT_EQ(lessons.size(), 2U);
  EXPECT_EQ(lessons[0].rows, (Ranges{{0, 2}}));
  EXPECT_EQ(lessons[0].teachers[0].rows, (Ranges{{2, 2}}));
  EXPECT_EQ(lessons[1].rows, (Ranges{{2, 2}}));
  EXPECT_EQ(lessons[1].teachers[0].rows, (Ranges{{0, 2}}));
  const std::vector<Lesson> none = lessons_of(offsets, {4, 0}, teachers);
  ASSERT_EQ(none.size(), 1U);
  EXPECT_TRUE(none[0].rows.empty() && none[0].teachers.empty());
}

TEST(Lessons, made_and_read_samples_are_apart) {
  const std::vector<std::int32_t> offsets{0, 2, 5, 6};
  const std::vector<Lesson> lessons = lessons_of(offsets, {0, 6}, {{1, {true, true, true}}}, {true, false, true});
  ASSERT_EQ(lessons.size(), 2U);
  EXPECT_TRUE(lessons[0].made);
  EXPECT_EQ(lessons[0].rows, (Ranges{{0, 2}, {5, 1}}));
  EXPECT_EQ(lessons[0].teachers[0].rows, (Ranges{{0, 2}, {5, 1}}));
  EXPECT_FALSE(lessons[1].made);
  EXPECT_EQ(lessons[1].rows, (Ranges{{2, 3}}));
}

TEST(Lessons, random_micro_batches_have_each_row_once_and_shares_of_one) {  // LS-1, LS-2
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::size_t samples = 1 + random() % 6;
    std::vector<std::int32_t> offsets{0};
    for (std::size_t at = 0; at < samples; ++at) offsets.push_back(offsets.back() + 1 + static_cast<int>(random() % 5));
    std::vector<TaughtSamples> teachers(1 + random() % 3);
    std::map<std::pair<std::size_t, std::int64_t>, std::int64_t> sent;  // teacher's row by teacher and student's row
    for (std::size_t number = 0; number < teachers.size(); ++number) {
      teachers[number].weight = 1 + static_cast<double>(random() % 4);
      std::int64_t next = 0;
      for (std::size_t at = 0; at < samples; ++at) {
        teachers[number].taken.push_back(random() % 2 == 0);
        if (!teachers[number].taken.back()) continue;
        for (std::int64_t row = offsets[at]; row < offsets[at + 1]; ++row) sent[{number, row}] = next++;
      }
    }
    const std::int64_t first = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(offsets.back()));
    const RowRange part{first, offsets.back() - first};
    std::map<std::int64_t, int> seen;
    for (const Lesson& lesson : lessons_of(offsets, part, teachers)) {
      std::vector<std::int64_t> rows;
      for (const RowRange& range : lesson.rows) {
        for (std::int64_t row = range.first; row < range.end(); ++row) rows.push_back(part.first + row);
      }
      for (const std::int64_t row : rows) ++seen[row];
      double shares = 0;
      for (const Lesson::Teacher& teacher : lesson.teachers) {
        shares += teacher.share;
        std::size_t at = 0;
        for (const RowRange& range : teacher.rows) {
          for (std::int64_t row = range.first; row < range.end(); ++row) {
            EXPECT_EQ(row, sent.at({teacher.number, rows.at(at++)}));
          }
        }
        EXPECT_EQ(at, rows.size());
      }
      EXPECT_NEAR(shares, lesson.teachers.empty() ? 0 : 1, 1e-12);
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), part.count);
    for (const auto& [row, times] : seen) EXPECT_EQ(times, 1) << row;
  }
}

TEST(Lessons, answers_are_paired_in_order_whatever_stands_between) {  // LS-3
  const std::vector<std::int32_t> offsets{0, 4, 6, 11};
  const std::vector<std::int32_t> targets{-1, 8, -1, 9, -1, 7, -1, -1, 6, 5, -1};
  const std::vector<Lesson> alone = answer_lessons(offsets, {{1, {true, true, true}, true}}, targets);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].rows, (Ranges{{1, 1}, {3, 1}, {5, 1}, {8, 2}}));
  EXPECT_EQ(alone[0].teachers[0].rows, (Ranges{{0, 5}}));
  // The first teacher sends all rows of the first and the last sample, the second the answers of the last two.
  const std::vector<Lesson> lessons =
      answer_lessons(offsets, {{1, {true, false, true}}, {3, {false, true, true}, true}}, targets);
  ASSERT_EQ(lessons.size(), 3U);
  EXPECT_EQ(lessons[0].rows, (Ranges{{1, 1}, {3, 1}}));
  EXPECT_EQ(lessons[0].teachers[0].rows, (Ranges{{1, 1}, {3, 1}}));
  EXPECT_EQ(lessons[1].rows, (Ranges{{5, 1}}));
  EXPECT_EQ(lessons[1].teachers[0].rows, (Ranges{{0, 1}}));
  EXPECT_EQ(lessons[2].rows, (Ranges{{8, 2}}));
  ASSERT_EQ(lessons[2].teachers.size(), 2U);
  EXPECT_EQ(lessons[2].teachers[0].rows, (Ranges{{6, 2}}));
  EXPECT_EQ(lessons[2].teachers[1].rows, (Ranges{{1, 2}}));
  EXPECT_EQ(lessons[2].teachers[1].share, 0.75);
}

}  // namespace
}  // namespace maestro
