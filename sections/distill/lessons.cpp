// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/lessons.hpp"

#include <algorithm>
#include <cstdint>

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

}  // namespace

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

}  // namespace maestro
