// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/lessons.hpp"

#include <algorithm>
#include <cstdint>

#include "runtime/data/corpus.hpp"

namespace maestro {

namespace {

void append(std::vector<RowRange>& ranges, RowRange more) {
  if (!ranges.empty() && ranges.back().end() == more.first) {
    ranges.back().count += more.count;
  } else {
    ranges.push_back(more);
  }
}

/// Returns a lesson without rows for the teachers of a sample (LS-2).
Lesson empty_lesson(std::size_t sample, const std::vector<TaughtSamples>& teachers) {
  Lesson lesson;
  double sum = 0;
  for (std::size_t number = 0; number < teachers.size(); ++number) {
    if (!teachers[number].taken[sample]) continue;
    lesson.teachers.push_back({number, teachers[number].weight, {}});
    sum += teachers[number].weight;
  }
  for (Lesson::Teacher& teacher : lesson.teachers) teacher.share /= sum;
  return lesson;
}

bool same_lesson(const Lesson& a, const Lesson& b) {
  return a.made == b.made &&
         std::ranges::equal(a.teachers, b.teachers, {}, &Lesson::Teacher::number, &Lesson::Teacher::number);
}

/// Returns the ranges of the entries of `rows` that are chosen.
std::vector<RowRange> chosen(const std::vector<std::int64_t>& rows, const std::vector<bool>& chosen) {
  std::vector<RowRange> ranges;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    if (chosen[at]) append(ranges, {rows[at], 1});
  }
  return ranges;
}

/// Returns for each row of the samples that a teacher takes the number of answers before it.
std::vector<std::int64_t> answers_before(std::span<const std::int32_t> offsets, const TaughtSamples& teacher,
                                         std::span<const std::int32_t> targets) {
  std::vector<std::int64_t> before;
  std::int64_t answers = 0;
  for (std::size_t sample = 0; sample + 1 < offsets.size(); ++sample) {
    for (auto row = offsets[sample]; teacher.taken[sample] && row < offsets[sample + 1]; ++row) {
      before.push_back(answers);
      if (targets[static_cast<std::size_t>(row)] != ignored_target) ++answers;
    }
  }
  return before;
}

}  // namespace

std::vector<std::int64_t> row_numbers(const std::vector<RowRange>& ranges) {
  std::vector<std::int64_t> rows;
  for (const RowRange& range : ranges) {
    for (std::int64_t row = range.first; row < range.end(); ++row) rows.push_back(row);
  }
  return rows;
}

std::vector<Lesson> lessons_of(std::span<const std::int32_t> offsets, RowRange part,
                               const std::vector<TaughtSamples>& teachers, const std::vector<bool>& made) {
  std::vector<Lesson> lessons;
  std::vector<std::int64_t> sent(teachers.size(), 0);  // rows of the samples before
  for (std::size_t sample = 0; sample + 1 < offsets.size(); ++sample) {
    const std::int64_t begin = offsets[sample];
    const std::int64_t first = std::max(begin, part.first);
    const std::int64_t count = std::min<std::int64_t>(offsets[sample + 1], part.end()) - first;
    if (count > 0) {
      Lesson wanted = empty_lesson(sample, teachers);
      wanted.made = !made.empty() && made[sample];
      auto lesson = std::ranges::find_if(lessons, [&](const Lesson& known) { return same_lesson(known, wanted); });
      if (lesson == lessons.end()) lesson = lessons.insert(lesson, std::move(wanted));
      append(lesson->rows, {first - part.first, count});
      for (Lesson::Teacher& teacher : lesson->teachers) {
        append(teacher.rows, {sent[teacher.number] + (first - begin), count});
      }
    }
    for (std::size_t number = 0; number < teachers.size(); ++number) {
      if (teachers[number].taken[sample]) sent[number] += offsets[sample + 1] - begin;
    }
  }
  if (lessons.empty()) lessons.emplace_back();
  return lessons;
}

std::vector<Lesson> answer_lessons(std::span<const std::int32_t> offsets, const std::vector<TaughtSamples>& teachers,
                                   std::span<const std::int32_t> targets) {
  std::vector<Lesson> lessons = lessons_of(offsets, {0, std::ssize(targets)}, teachers);
  for (Lesson& lesson : lessons) {
    const std::vector<std::int64_t> rows = row_numbers(lesson.rows);
    std::vector<bool> answers;
    for (const std::int64_t row : rows) answers.push_back(targets[static_cast<std::size_t>(row)] != ignored_target);
    lesson.rows = chosen(rows, answers);
    for (Lesson::Teacher& teacher : lesson.teachers) {
      std::vector<std::int64_t> sent = row_numbers(teacher.rows);
      if (const TaughtSamples& of = teachers[teacher.number]; of.answers) {
        const std::vector<std::int64_t> before = answers_before(offsets, of, targets);
        for (std::int64_t& row : sent) row = before[static_cast<std::size_t>(row)];
      }
      teacher.rows = chosen(sent, answers);
    }
  }
  return lessons;
}

}  // namespace maestro
