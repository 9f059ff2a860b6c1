// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/planning/planned_app.hpp"

#include <sstream>

#include "actors/job/resolved_job.hpp"
#include "apps/maestro/run/recorded_job.hpp"
#include "apps/plan/planned_job_text.hpp"
#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/observe/output_file.hpp"
#include "runtime/page/markup.hpp"
#include "sections/served/served_section.hpp"

namespace maestro {

PlannedApp::PlannedApp(const PlanArguments& arguments, Console& console)
    : arguments_(arguments), console_(console), text_(read_text(arguments.job).value_or_throw()) {
  RunOptions options;
  options.check_only = true;
  const App composed = app({}, std::move(options), console);
  for (const auto& [section, type] : composed.section_types()) {
    if (read_type(composed.table(section), type) == served_type) {
      throw JobError(section + ".type = \"" + served_type + "\": another process computes it, which plan cannot price");
    }
    sections_.push_back(section);
  }
}

App PlannedApp::app(const std::vector<std::string>& settings, RunOptions options, Console& console) const {
  return job_app(document(settings), std::move(options), console);
}

JobDocument PlannedApp::document(const std::vector<std::string>& settings) const {
  std::vector<std::string> all = arguments_.overrides;
  all.insert(all.end(), settings.begin(), settings.end());
  return job_document(text_, arguments_.job.string(), all, arguments_.plug_ins);
}

ResolvedJob PlannedApp::resolve(const std::vector<std::string>& settings, std::int64_t cpu_devices) {
  RunOptions options;
  options.check_only = true;
  options.quiet = true;
  options.cpu_devices = cpu_devices;
  App composed = app(settings, std::move(options), console_);
  composed.reuse_corpus(corpus_);
  composed.default_to_one_replica();  // an app's default may be too many for the global batch
  ResolvedJob plan = composed.plan();
  corpus_ = plan.corpus;
  return plan;
}

void PlannedApp::write(const std::vector<std::string>& settings, const PlanConfig& predicted,
                       const std::string& comment) const {
  if (arguments_.out.empty()) return;
  std::vector<std::string> all = arguments_.overrides;
  std::erase_if(all, [](const std::string& each) { return each.starts_with("plan."); });
  all.insert(all.end(), settings.begin(), settings.end());
  const std::vector<std::string> table = settings_of(predicted);
  all.insert(all.end(), table.begin(), table.end());
  write_output(arguments_.out, job_text_with(job_text_without_plan(text_), all, {comment})).or_throw();
  console_.note("written   " + printable(arguments_.out.string()));
}

std::string layout_text(const SectionLayout& layout) {
  std::string text;
  const auto add = [&](const std::string& words) { text += (text.empty() ? "" : " ") + words; };
  if (layout.replicas > 1) add(std::to_string(layout.replicas) + " x");
  if (layout.micro_batch <= most_samples_of_a_step) add("m" + std::to_string(layout.micro_batch));  // else by tokens
  if (layout.tensor > 1) add("tensor " + std::to_string(layout.tensor));
  if (layout.context > 1) add("context " + std::to_string(layout.context));
  if (layout.pipeline > 1) add("pipeline " + std::to_string(layout.pipeline));
  if (layout.zero) add("zero");
  return text;
}

std::string signed_percent(double share) {
  return (share >= 0 ? "+" : "") + percent(share);
}

std::string placed_text(const RankedLayout& ranked, const std::string& section) {
  std::string text = layout_text(ranked.sections.at(section));
  text += (text.empty() ? "" : " ") + ranked.kind + ":";
  const std::vector<int>& devices = ranked.devices.at(section);
  for (std::size_t at = 0; at < devices.size(); ++at) text += (at == 0 ? "" : ",") + std::to_string(devices[at]);
  const auto share = ranked.shares_of_devices.find(section);
  return share == ranked.shares_of_devices.end() ? text : text + " share " + number_text(share->second);
}

std::string with_runs(const std::string& setting) {
  const std::size_t begin = setting.find('[');
  if (begin == std::string::npos) return setting;
  std::string text = setting.substr(0, begin + 1);
  std::istringstream list(setting.substr(begin + 1, setting.size() - begin - 2));
  std::string before;
  std::size_t count = 0;
  for (std::string item; true;) {
    const bool more = static_cast<bool>(std::getline(list >> std::ws, item, ','));
    if (count > 0 && (!more || item != before)) {
      text += (text.back() == '[' ? "" : ", ") + std::to_string(count) + " x " + before;
      count = 0;
    }
    if (!more) return text + "]";
    before = item;
    ++count;
  }
}

}  // namespace maestro
