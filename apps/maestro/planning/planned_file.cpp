// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/planning/planned_file.hpp"

#include "apps/maestro/run/recorded_job.hpp"
#include "apps/plan/planned_job_text.hpp"
#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/observe/output_file.hpp"

namespace maestro {

PlannedFile::PlannedFile(const PlanArguments& arguments)
    : arguments_(&arguments), text_(read_text(arguments.job).value_or_throw()) {}

PlannedApp PlannedFile::app(Console& console) const {
  const auto compose = [this](const std::vector<std::string>& settings, RunOptions options, Console& of_app) {
    return job_app(document(settings), std::move(options), of_app);
  };
  return {compose, console};
}

JobDocument PlannedFile::document(const std::vector<std::string>& settings) const {
  std::vector<std::string> all = arguments_->overrides;
  all.insert(all.end(), settings.begin(), settings.end());
  return job_document(text_, arguments_->job.string(), all, arguments_->plug_ins);
}

void PlannedFile::write(const std::vector<std::string>& settings, const PlanConfig& predicted,
                        const std::string& comment, Console& console) const {
  if (arguments_->out.empty()) return;
  std::vector<std::string> all = arguments_->overrides;
  std::erase_if(all, [](const std::string& each) { return each.starts_with("plan."); });
  all.insert(all.end(), settings.begin(), settings.end());
  const std::vector<std::string> table = settings_of(predicted);
  all.insert(all.end(), table.begin(), table.end());
  write_output(arguments_->out, job_text_with(job_text_without_plan(text_), all, {comment})).or_throw();
  console.note("written   " + printable(arguments_->out.string()));
}

}  // namespace maestro
