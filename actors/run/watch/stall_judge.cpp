// SPDX-License-Identifier: Apache-2.0
#include "actors/run/watch/stall_judge.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

namespace {

constexpr std::size_t most_named = 4;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t at = 0; at < std::min(names.size(), most_named); ++at) text += (at == 0 ? "" : "; ") + names[at];
  if (names.size() > most_named) text += "; and " + std::to_string(names.size() - most_named) + " more";
  return text;
}

std::string seconds(RunClock::Duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

}  // namespace

StallJudge::Duration StallJudge::limit() const {
  return std::max(least_, 4 * longest_gap_);
}

bool StallJudge::wants_look(std::uint64_t events, Duration now) {
  if (events != events_) {
    longest_gap_ = std::max(longest_gap_, now - last_event_);
    events_ = events;
    last_event_ = now;
    last_.reset();
    report_at_ = Duration(0);
  }
  if (now - last_event_ < limit()) return false;
  return !last_ || now - last_look_ >= limit() / 2;
}

StallJudge::Verdict StallJudge::judge(const StallLook& look, Duration now) {
  Verdict verdict;
  const std::optional<StallLook> before = std::exchange(last_, look);
  last_look_ = now;
  const Duration quiet = now - last_event_;
  if (!look.announced) {
    last_event_ = now;  // in a pause, silence is expected
    last_.reset();
  } else if (!look.silent.empty()) {
    if (before && before->silent == look.silent)
      verdict.ended = "no answer from " + listed(look.silent) + " for " + seconds(quiet);
  } else if (work_limit_ > Duration(0) && quiet >= work_limit_ && before && !before->working.empty() &&
             !look.working.empty()) {
    verdict.ended =
        "no work has ended for " + seconds(quiet) + ", longer than train.work_timeout_s: " + listed(look.working);
  } else if (!look.working.empty()) {
    if (report_at_ == Duration(0)) report_at_ = reports_after * limit();
    if (quiet < report_at_) return verdict;
    report_at_ = 2 * quiet;
    verdict.report = "no work has ended for " + seconds(quiet) + ": " + listed(look.working);
  } else if (before && before->announced && before->silent.empty() && before->working.empty() &&
             before->events == look.events) {
    verdict.ended = "the run is stalled: no progress for " + seconds(quiet) + " although work is announced" +
                    (look.waiting.empty() ? "" : "; " + listed(look.waiting));
  }
  return verdict;
}

}  // namespace maestro
