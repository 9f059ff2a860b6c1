// SPDX-License-Identifier: Apache-2.0
// `maestro train JOB` and `maestro check JOB`.
#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/run/end_lines.hpp"
#include "apps/maestro/run/graph_print.hpp"
#include "apps/maestro/run/run_options.hpp"
#include "apps/maestro/run/train_job.hpp"

namespace maestro {

namespace {

int run_train(const TrainArguments& arguments, Console& console) {
  const RunResult result = train(arguments, console);
  if (result.status == 0) print_summary(result, console);
  return result.status;
}

struct CheckArguments : TrainArguments {
  std::string graph;  ///< form of the section graph; empty: it is not printed
};

/// Prints the graph of an app in a form: text, dot or svg.
void print_graph(App app, const std::string& form, Console& console) {
  const ResolvedJob plan = app.plan();
  PrintedGraph graph{plan, {}};
  for (const auto& [section, type] : app.section_types()) {
    graph.types[section] = read_type(app.table(section), type);
  }
  std::string text = form == "dot" ? graph_dot(graph) : form == "svg" ? graph_svg(graph) : graph_text(graph);
  text.pop_back();  // note() ends the line
  console.text(text);
}

int run_check(const CheckArguments& arguments, Console& console) {
  if (!arguments.graph.empty()) {
    print_graph(app_of(arguments, console), arguments.graph, console);
    return 0;
  }
  train(arguments, console);
  console.note(arguments.job.string() + ": ok");
  return 0;
}

void add_job_options(CLI::App& command, TrainArguments& arguments, const std::string& help_of_set) {
  command.add_option("job", arguments.job, "job file (TOML)")->required();
  command.add_option("--set", arguments.overrides, help_of_set)->allow_extra_args(false);
  command.add_option_function<std::string>(
      "--rollouts",
      [&arguments](const std::string& folder) {
        arguments.overrides.push_back("generator.rollouts=" + quoted(folder));
      },
      "read the samples that the run in this folder made (generator.record), in place of a generator");
  add_plug_in_options(command, arguments.plug_ins);
}

}  // namespace

void add_train(Commands& commands) {
  const auto [command, arguments] = commands.add("train", "train the job of a file", run_train);
  add_job_options(command, arguments, "override a key: --set student.micro_batch=4");
  arguments.run.joins = true;
  add_start_options(command, arguments.run);
  add_run_options(command, arguments.run);
}

void add_check(Commands& commands) {
  const auto [command, arguments] = commands.add("check", "validate a job file without running it", run_check);
  add_job_options(command, arguments, "override a key");
  RunOptions& run = arguments.run;
  run.check_only = true;
  command.add_option("--processes", run.processes, "processes to plan for")->check(whole_number(1, 64));
  command.add_option("--cpu-devices", run.cpu_devices, "CPU devices, which share the host's cores")
      ->check(whole_number(1, 4096));
  add_start_options(command, run);
  command.add_option("--graph", arguments.graph, "print the sections and edges: as text, dot (Graphviz) or svg")
      ->expected(0, 1)
      ->default_str("text")
      ->check(CLI::IsMember({"text", "dot", "svg"}));
}

}  // namespace maestro
