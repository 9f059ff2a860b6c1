// SPDX-License-Identifier: Apache-2.0
// The page of a run's record (RunPage) during the run, with the run's current state and the passes of the last steps.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "actors/job/resolved_job.hpp"
#include "actors/run/record/step_figures.hpp"

namespace maestro {

namespace control {
class Status;  // generated, see control.thrift
}  // namespace control

/// Not thread-safe.
class LivePage {
 public:
  /// `job` outlives the page. `keeps_record`: the run leaves a record in train.out.
  LivePage(const ResolvedJob& job, bool keeps_record);
  ~LivePage();
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

  /// Returns the content of the page's <main>, after reading the record's new lines.
  [[nodiscard]] std::string body(const control::Status& status, const StepTotals& figures);
  /// Returns the complete page around a body, with a script that replaces the body by /page-body every two seconds.
  [[nodiscard]] std::string whole(const std::string& body) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
