// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/run/run_options.hpp"

#include <algorithm>

#include "apps/maestro/number_options.hpp"

namespace maestro {

namespace {

constexpr const char* log_format = "--log-format";
constexpr const char* json_format = "json";

}  // namespace

void add_log_format(CLI::App& command, std::string& format) {
  command.add_option(log_format, format, "lines as text, or as JSON objects")
      ->check(CLI::IsMember({"text", json_format}));
}

bool requests_json_lines(std::span<const std::string> arguments) {
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    if (arguments[at] == std::string(log_format) + "=" + json_format) return true;
    if (arguments[at] == log_format && at + 1 < arguments.size() && arguments[at + 1] == json_format) return true;
  }
  return false;
}

std::vector<std::string> log_arguments(const std::string& format) {
  if (format != json_format) return {};
  return {log_format, json_format};
}

void add_run_options(CLI::App& command, RunOptions& run) {
  CLI::Option* processes =
      command.add_option("--processes", run.processes, "processes on this machine; rank 0 coordinates")
          ->check(whole_number(1, 64));
  command
      .add_option("--hosts", run.hosts, "a,b:2: processes on these hosts, started by ssh; this machine is the first")
      ->excludes(processes);
  command.add_option("--ssh", run.ssh, "remote shell and its options (default: ssh)");
  command.add_option("--listen", run.listen, "address or interface to listen on, or auto (default: loopback)");
  command.add_option("--keys", run.keys, "folder of certificates and token, as made by maestro keys");
  command
      .add_option("--cpu-devices", run.cpu_devices, "CPU devices, which share the host's cores (default: one per core)")
      ->check(whole_number(1, 4096));
  command.add_option("--report", run.report, "write a JSON report here");
  command.add_option("--trace", run.trace, "write a Perfetto trace here");
  command
      .add_option("--tensorboard", run.tensorboard,
                  "write curves for TensorBoard as the run goes on, in this folder (default: <train.out>/tensorboard)")
      ->expected(0, 1)
      ->default_str("auto");
  add_log_format(command, run.log_format);
  command.add_option(
      "--control", run.control,
      "serve status and steering at unix:/PATH or HOST:PORT (default: a socket of this user); none: off");
  command
      .add_option("--pause-after", run.pause_after,
                  "pause the run after this step, until maestro continue; 0: before the first step")
      ->check(whole_number(0));
  command.add_option("--http", run.http,
                     "serve a live page, Prometheus metrics and probes at [HOST:]PORT (default host: 127.0.0.1)");
}

void add_start_options(CLI::App& command, RunOptions& run) {
  CLI::Option* resume =
      command.add_option("--resume", run.resume,
                         "continue from the last checkpoint of the run in this folder; auto: of the run\n"
                         "in train.out, or start if there is none");
  command.add_flag("--new-data", run.new_data, "continue with other data than the checkpoint's")->needs(resume);
  command.add_flag("--fresh", run.fresh, "move an earlier run in train.out to <out>.1 (or .2, ...) and begin anew")
      ->excludes(resume);
}

}  // namespace maestro
