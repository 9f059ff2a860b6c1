// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/cluster_plan.hpp"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "actors/layouts/cluster_planner.hpp"
#include "apps/maestro/bundled_apps.hpp"
#include "apps/maestro/padded.hpp"
#include "apps/maestro/planned_job_text.hpp"
#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/output_file.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

using Json = nlohmann::ordered_json;

/// Resolves a job with every section on emulated devices.
class EmulatedJob {
 public:
  EmulatedJob(const PlanArguments& arguments, Console& console) : arguments_(arguments), console_(console) {}

  JobPlan resolve(const std::vector<std::string>& settings) {
    std::vector<std::string> all = arguments_.overrides;
    all.insert(all.end(), settings.begin(), settings.end());
    for (const auto& [section, type] : app(all).section_types()) {
      const std::string key = section + ".devices=";
      const bool set = std::ranges::any_of(settings, [&](const std::string& each) { return each.starts_with(key); });
      if (!set) all.push_back(key + "[\"emulated\"]");
    }
    App made = app(all);
    if (opened_.corpus) made.reuse_corpus(opened_);
    JobPlan plan = made.plan();
    opened_.corpus = plan.corpus;
    return plan;
  }

 private:
  [[nodiscard]] App app(const std::vector<std::string>& settings) const {
    RunOptions options;
    options.check_only = true;
    options.quiet = true;
    JobDocument document = JobDocument::load(arguments_.job, settings);
    const BundledApp& bundled = read_app(document.root());
    App made(std::move(document), std::move(options), console_);
    bundled.compose(made);
    return made;
  }

  const PlanArguments& arguments_;
  Console& console_;
  JobPlan opened_;  // only its corpus
};

std::string percent(double share) {
  return fixed(100 * share, 1) + "%";
}

void print(const ClusterChoice& chosen, const DescribedCluster& cluster, const JobPlan& job) {
  std::cout << job.name << " on " << printable(cluster.name) << ": " << chosen.devices << " of " << cluster.devices()
            << " devices. " << chosen.priced << " layouts of sections priced, " << chosen.rehearsed
            << " rehearsals. All times are described, none is measured.\n"
            << "step      " << fixed(chosen.step_ms, 1) << " ms, "
            << fixed(static_cast<double>(job.train.global_batch) / chosen.step_ms * 1e3, 1) << " samples/s\n";
  std::size_t width = 9;
  for (const auto& [section, on] : chosen.sections) width = std::max(width, section.size() + 2);
  std::cout << padded("section", width) << "devices  bound ms  GiB   passes  step end  waits  layout\n";
  constexpr double gib = 1 << 30;
  for (const auto& [section, on] : chosen.sections) {
    double passes = 0;
    double ends = 0;
    std::int64_t stages = 0;
    for (const auto& [name, shares] : chosen.shares) {
      if (name != section && !name.starts_with(section + ".stage")) continue;
      passes += shares.passes;
      ends += shares.step_ends;
      ++stages;
    }
    const double count = static_cast<double>(std::max<std::int64_t>(stages, 1));
    const double waits = 1 - (passes + ends) / count;
    std::cout << padded(section, width) << padded(std::to_string(on.layout.devices()), 9)
              << padded(fixed(on.bound_ms, 1), 10) << padded(fixed(on.bytes / gib, 1), 6)
              << padded(percent(passes / count), 8) << padded(percent(ends / count), 10) << padded(percent(waits), 7)
              << layout_text(on.layout) << "\n";
  }
  std::cout << "bound     no layout with devices of its own for each section takes less than "
            << fixed(chosen.least_bound_ms, 1) << " ms; the choice is "
            << percent(chosen.step_ms / chosen.least_bound_ms - 1) << " above\n"
            << "critical  " << chosen.critical << ", which waits for others " << percent(chosen.stall)
            << " of the time\n";
  if (cluster.price_per_hour > 0) {
    const auto hosts = static_cast<double>((chosen.devices + cluster.devices_of_host - 1) / cluster.devices_of_host);
    const double hours = chosen.step_ms / 3.6e6 / static_cast<double>(job.train.global_batch) * 1e6;
    std::cout << "price     " << fixed(hosts * cluster.price_per_hour, 2) << " an hour for " << fixed(hosts, 0)
              << " hosts, " << fixed(hosts * cluster.price_per_hour * hours, 2) << " for a million samples\n";
  }
  if (chosen.refused > 0) {
    std::cout << "refused   " << chosen.refused << " layouts, the first: " << printable(chosen.first_refusal) << "\n";
  }
}

Json json_of(const ClusterChoice& chosen, const DescribedCluster& cluster) {
  Json sections = Json::object();
  for (const auto& [section, on] : chosen.sections) {
    const SectionLayout& layout = on.layout;
    sections[section] = {{"devices", layout.devices()},       {"replicas", layout.replicas}, {"tensor", layout.tensor},
                         {"context", layout.context},         {"pipeline", layout.pipeline}, {"zero", layout.zero},
                         {"micro_batch", layout.micro_batch}, {"bound_ms", on.bound_ms},     {"bytes", on.bytes}};
  }
  return {{"cluster", cluster.name},
          {"devices", chosen.devices},
          {"step_ms", chosen.step_ms},
          {"bound_ms", chosen.bound_ms},
          {"least_bound_ms", chosen.least_bound_ms},
          {"critical", chosen.critical},
          {"stall", chosen.stall},
          {"priced", chosen.priced},
          {"refused", chosen.refused},
          {"rehearsed", chosen.rehearsed},
          {"sections", sections}};
}

}  // namespace

std::string layout_text(const SectionLayout& layout) {
  std::string text = layout.replicas > 1 ? std::to_string(layout.replicas) + " x " : "";
  if (layout.micro_batch <= most_samples_of_a_step) text += "m" + std::to_string(layout.micro_batch);  // else by tokens
  if (layout.tensor > 1) text += " tensor " + std::to_string(layout.tensor);
  if (layout.context > 1) text += " context " + std::to_string(layout.context);
  if (layout.pipeline > 1) text += " pipeline " + std::to_string(layout.pipeline);
  if (layout.zero) text += " zero";
  return text;
}

void write_planned_job(const PlanArguments& arguments, const std::vector<std::string>& settings,
                       const std::string& comment, Console& console) {
  if (arguments.out.empty()) return;
  std::vector<std::string> all = arguments.overrides;
  all.insert(all.end(), settings.begin(), settings.end());
  const std::string text = read_text(arguments.job).value_or_throw();
  write_output(arguments.out, job_text_with(text, all, {comment})).or_throw();
  console.note("written   " + printable(arguments.out.string()));
}

int plan_on_cluster(const PlanArguments& arguments, bool json, Console& console) {
  const DescribedCluster cluster = read_cluster(arguments.cluster);
  EmulatedJob job(arguments, console);
  ClusterPlannerOptions options;
  options.varied.insert(arguments.varied.begin(), arguments.varied.end());
  options.varied.insert("devices");
  options.kept = arguments.kept;
  options.stall = arguments.stall;
  ClusterPlanner planner([&](const std::vector<std::string>& settings) { return job.resolve(settings); }, cluster,
                         std::move(options));
  const ClusterChoice chosen = planner.choose();
  if (json) {
    std::cout << json_of(chosen, cluster).dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else {
    print(chosen, cluster, planner.base());
  }
  write_planned_job(arguments, chosen.settings,
                    "Layouts chosen by `maestro plan` for " + cluster.name + ", a description: " +
                        fixed(chosen.step_ms, 1) + " ms a step on " + std::to_string(chosen.devices) + " devices.",
                    console);
  return 0;
}

}  // namespace maestro
