// SPDX-License-Identifier: Apache-2.0
#include "actors/live/live_page.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "actors/control/control_text.hpp"
#include "actors/control/control_types.h"
#include "actors/job/lane_text.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/page/markup.hpp"
#include "runtime/page/page_parts.hpp"
#include "runtime/page/recorded_lanes.hpp"
#include "runtime/page/run_reader.hpp"
#include "runtime/page/run_tables.hpp"

namespace maestro {
namespace {

/// Refreshes the page, but keeps it while text is selected and after the run has ended.
constexpr const char* script = R"(<script>
addEventListener("DOMContentLoaded", () => {
  const page = document.getElementById("page"), gone = document.createElement("p");
  gone.id = "gone"; gone.className = "state bad"; gone.hidden = true;
  gone.textContent = "The run does not answer: it has ended, or this page cannot reach it. Below is what it last sent.";
  page.before(gone);
  let last = "", asking = false;
  setInterval(async () => {
    if (asking || document.hidden || String(getSelection())) return;
    asking = true;
    try {
      const answer = await fetch("page-body" + location.search, {cache: "no-store"});
      if (!answer.ok) throw answer.status;
      const body = await answer.text();
      if (body !== last) { last = body; page.innerHTML = body; }
      gone.hidden = true;
    } catch { gone.hidden = false; }
    asking = false;
  }, 2000);
});
</script>
<style>#gone { max-width: 1040px; margin: 1rem auto 0; padding: 0 1.25rem; } #gone[hidden] { display: none; }</style>
)";

constexpr std::size_t most_figures = 12;

std::string upper_first(std::string text) {
  if (!text.empty()) text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::vector<PageFigure> figures_of(const control::Status& status) {
  std::vector<PageFigure> figures{
      {"now", state_text(status), {}},
      {"step", std::to_string(status.step), "of " + std::to_string(status.steps), std::to_string(status.step)},
      {"samples/s", shortened(status.samples_per_s), "over the last steps"},
      {"epoch", fixed(status.epoch, 2), {}}};
  for (const control::DeviceFigures& device : status.devices) {
    if (figures.size() == most_figures) break;
    const bool several = status.devices.front().process != status.devices.back().process;
    figures.push_back({"busy: " + device.device + (several ? " of process " + std::to_string(device.process) : ""),
                       percent(device.busy, 0), "share of the last steps' time in passes and at step ends"});
  }
  return figures;
}

PageTable replicas_of(const control::Status& status) {
  PageTable table{"Now",
                  "What each replica does, or whom it waits for. Busy: share of the time of the last steps that it "
                  "spent in passes.",
                  {"replica", "process", "devices", "busy", "does"},
                  {}};
  for (const control::ReplicaFigures& replica : status.replicas) {
    const std::string host = replica.host.empty() ? "" : " at " + replica.host;
    table.rows.push_back({{replica.section + " " + std::to_string(replica.replica)},
                          {std::to_string(replica.process) + host},
                          {joined(replica.devices)},
                          {replica.__isset.busy ? percent(replica.busy, 0) : "-"},
                          {doing_text(replica)}});
  }
  return table;
}

PageTable recoveries_of(const control::Status& status) {
  PageTable table{"Recoveries", {}, {""}, {}};
  for (const std::string& line : status.recoveries) table.rows.push_back({{line}});
  return table;
}

/// Returns the passes of the last steps, on lanes in the order of the job.
Timeline timeline_of(const StepTotals& figures, const ResolvedJob& job) {
  Timeline timeline;
  timeline.sections = sections_of(lanes_of(lanes_of(job)));  // in the order of the record
  std::map<std::pair<SectionId, ReplicaIndex>, std::size_t> lane_of;
  std::optional<StepFigures::Clock::time_point> begin;
  for (const auto& step : figures.recent) {
    for (const DonePass& pass : step->passes) {
      if (job.graph.node(pass.section).role == Role::source) continue;  // a source computes nothing
      lane_of[{pass.section, pass.replica}];
      begin = begin ? std::min(*begin, pass.begin) : pass.begin;
    }
  }
  for (auto& [lane, at] : lane_of) {
    at = timeline.lanes.size();
    const std::string& section = job.graph.node(lane.first).name;
    const auto place = std::ranges::find_if(job.places, [lane = lane](const ReplicaPlacement& each) {
      return each.section == lane.first && each.replica == lane.second;
    });
    timeline.lanes.push_back({section, section + " " + std::to_string(lane.second.value()),
                              place == job.places.end() ? "" : joined(texts_of(place->devices))});
  }
  const auto ms = [](StepFigures::Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  for (const auto& step : figures.recent) {
    for (const DonePass& pass : step->passes) {
      const auto lane = lane_of.find({pass.section, pass.replica});
      if (lane == lane_of.end()) continue;
      timeline.slices.push_back({lane->second, pass.backward ? TimelinePass::backward : TimelinePass::forward,
                                 ms(pass.begin - *begin), ms(pass.end - pass.begin),
                                 static_cast<std::int64_t>(step->step.value())});
    }
  }
  std::ranges::stable_sort(timeline.slices, {}, &TimelineSlice::begin_ms);
  if (figures.recent.empty()) return timeline;
  timeline.first_step = static_cast<std::int64_t>(figures.recent.front()->step.value());
  timeline.last_step = static_cast<std::int64_t>(figures.recent.back()->step.value());
  return timeline;
}

std::string left_out_line(const StepTotals& figures) {
  std::size_t left_out = 0;
  for (const auto& step : figures.recent) left_out += step->left_out;
  if (left_out == 0) return {};
  return "<p class=\"faint\">" + std::to_string(left_out) + " further passes of these steps are not drawn.</p>\n";
}

}  // namespace

struct LivePage::State {
  const ResolvedJob& job;
  std::optional<RunReader> record;
};

LivePage::LivePage(const ResolvedJob& job, bool keeps_record)
    : state_(std::make_unique<State>(State{job, std::nullopt})) {
  if (keeps_record) state_->record.emplace(job.train.out);
}
LivePage::~LivePage() = default;

std::string LivePage::body(const control::Status& status, const StepTotals& figures) {
  std::string out = figures_part(figures_of(status)) + html_of(replicas_of(status));
  if (!status.recoveries.empty()) out += html_of(recoveries_of(status));
  out = "<section id=\"now\">\n" + out + timeline_part(timeline_of(figures, state_->job)) + left_out_line(figures) +
        "</section>\n";
  if (!state_->record) return repaired_utf8("<h1>" + escaped(status.job) + "</h1>\n" + out);
  if (const Status read = state_->record->refresh(); !read) {
    return repaired_utf8("<h1>" + escaped(status.job) + "</h1>\n<p class=\"state bad\">" +
                         escaped(upper_first(read.error().message)) + "</p>\n" + out);
  }
  const std::string recorded = body_of(state_->record->page());
  // Insert below the title, the state and the figures of the record.
  const std::size_t first_part = std::min(recorded.find("<h2>"), recorded.size());
  return recorded.substr(0, first_part) + repaired_utf8(out) + recorded.substr(first_part);
}

std::string LivePage::whole(const std::string& body) const {
  return html_page(repaired_utf8(state_->job.name), body, script);
}

}  // namespace maestro
