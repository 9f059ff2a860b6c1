// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/data_cursor.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

namespace maestro {

Result<DataCursor> DataCursor::of(std::vector<Segment> segments) {
  DataCursor cursor;
  if (segments.empty()) return cursor;
  const auto follows = [](const Segment& a, const Segment& b) { return a[0] < b[0] && a[1] < b[1]; };
  const auto wrong = std::ranges::adjacent_find(segments, std::not_fn(follows));
  if (segments.front()[0] != 1 || wrong != segments.end()) {
    const Segment& at = segments.front()[0] != 1 ? segments.front() : *wrong;
    return Error{ErrorCode::corrupt,
                 "cursor: the segment from step " + std::to_string(at[0]) + " and position " + std::to_string(at[1]) +
                     (&at == &segments.front() ? " is not the first" : " is followed by an earlier one")};
  }
  cursor.segments_ = std::move(segments);
  return cursor;
}

std::uint64_t DataCursor::position(std::uint64_t step, std::uint64_t global_batch) const {
  const auto after = std::ranges::upper_bound(segments_, step, {}, [](const Segment& segment) { return segment[0]; });
  const Segment& segment = *std::prev(after);
  return segment[1] + (step - segment[0]) * global_batch;
}

void DataCursor::skip(std::uint64_t step, std::uint64_t steps, std::uint64_t global_batch) {
  struct Gap {
    std::uint64_t begin, end;
  };
  std::vector<Gap> later;
  for (const Segment& segment : segments_) {
    if (segment[0] <= step) continue;
    later.push_back({position(segment[0] - 1, global_batch) + global_batch, segment[1]});
  }
  std::uint64_t end = position(step, global_batch) + steps * global_batch;
  std::erase_if(segments_, [step](const Segment& segment) { return segment[0] >= step; });
  auto gap = later.begin();
  for (; gap != later.end() && gap->begin <= end; ++gap) end += gap->end - gap->begin;
  segments_.push_back({step, end});
  for (; gap != later.end(); ++gap) {
    step += (gap->begin - end) / global_batch;
    end = gap->end;
    segments_.push_back({step, end});
  }
}

bool DataCursor::agrees(const DataCursor& other, std::uint64_t step) const {
  const auto until = [step](const std::vector<Segment>& segments) {
    return std::ranges::count_if(segments, [step](const Segment& segment) { return segment[0] <= step; });
  };
  const auto count = until(segments_);
  return count == until(other.segments_) &&
         std::equal(segments_.begin(), segments_.begin() + count, other.segments_.begin());
}

}  // namespace maestro
